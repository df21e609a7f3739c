"""Recorded answers to the curator's requests: one JSON file each, with who answered and to exactly which request.

A request without an answer is written out as two texts, for a capable language model to answer from these alone. The
answer's text, laid beside them, becomes the record when the benchmark runs next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


class Recording(msgspec.Struct, frozen=True):
    """An answer to the request about these turns (`t1-t16`); an unknown request has the hash ""."""

    request_sha256: str
    answered_by: str
    model: str
    turns: str
    answer: str
    #: The user text of a verifier's request: its lines are looked up when an answer was changed by a slip.
    request: str = ""


_NUMBERED = re.compile(r"^(\d+)[.)]? (.*)$", re.MULTILINE)


def _forms(line: str) -> tuple[str, ...]:
    """Return a verifier's line, nearest form first: whole, without its kind, without what it replaces, without both.

    A slip or a later prompt may have changed the kind, or what memory held before.
    """
    whole = (line, line.partition(": ")[2] or line)
    return (*whole, *(form.partition(" (instead of: ")[0] for form in whole))


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the curator's model; `place` counts the requests of a replay from 1."""

    place: int
    turns: str
    system: str
    user: str

    @property
    def sha256(self) -> str:
        """Which request this is."""
        return hash_of(self.system, self.user)


def hash_of(system: str, user: str) -> str:
    """The SHA-256 of a request's two texts, in hex."""
    return hashlib.sha256(f"{system}\0{user}".encode()).hexdigest()


class NotRecordedError(Exception):
    """There is no answer to a request; the message says what to do about it."""


@dataclass(slots=True)
class Recordings:
    """Answers by the range of turns that they are about; new ones are kept in `folder`, if there is one."""

    folder: Path | None = None
    answers: dict[str, Recording] = field(default_factory=dict)
    #: Whether an answer to another request counts as none.
    fresh: bool = False
    #: The maker and the model of new answers, as noted in their records.
    answered_by: str = ""
    model: str = ""

    @classmethod
    def of_folder(cls, folder: Path, *, fresh: bool = False, answered_by: str = "", model: str = "") -> Recordings:
        """The records of a folder, which need not exist yet."""
        records = [msgspec.json.decode(path.read_bytes(), type=Recording) for path in sorted(folder.glob("*.json"))]
        return cls(folder, {record.turns: record for record in records}, fresh, answered_by, model)

    @classmethod
    def of_answers(cls, answers: Mapping[str, str]) -> Recordings:
        """Answers to requests that nobody kept."""
        return cls(answers={turns: Recording("", "", "", turns, answer) for turns, answer in answers.items()})

    def answer(self, request: Request) -> Recording:
        """The recorded answer. NotRecordedError if there is none; then the request stands in the folder."""
        known = self.answers.get(request.turns)
        if known is None and self.folder is None:
            # The last turn of a batch may be off the record today, or may have been then.
            first = request.turns.partition("-")[0]
            known = next((record for record in self.answers.values() if record.turns.startswith(f"{first}-")), None)
        if known is not None and not (self.fresh and known.request_sha256 != request.sha256):
            return known
        if self.folder is None:
            raise NotRecordedError(f"No answer about {request.turns}: this variant has {', '.join(self.answers)}.")
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._path(request, "answer.txt").exists():
            return self._take_in(request)
        self._path(request, "system.txt").write_text(request.system, encoding="utf-8")
        self._path(request, "user.txt").write_text(request.user, encoding="utf-8")
        name = self._path(request, "answer.txt")
        raise NotRecordedError(
            f"No answer about {request.turns} yet. The request stands in {name.parent}: have a capable language model "
            f"answer {request.place:02}.system.txt and {request.place:02}.user.txt, literally and from these two texts "
            f"alone, put its answer into {name.name}, and run this again with --answered-by and --model."
        )

    def verdicts(self, user: str) -> str:
        """Return the recorded verdicts on the lines of a verifier's request, by their text. Others are unsure."""
        known: dict[tuple[int, str], str] = {}
        for record in self.answers.values():
            if record.turns.endswith(" verified"):
                given = dict(_NUMBERED.findall(record.request.partition("\nLines:\n")[2]))
                said = dict(_NUMBERED.findall(record.answer))
                for number, line in given.items():
                    known |= {form: said.get(number, "unsure") for form in enumerate(_forms(line))}
        asked = _NUMBERED.findall(user.partition("\nLines:\n")[2])
        found = (next(filter(None, map(known.get, enumerate(_forms(line)))), "unsure") for _, line in asked)
        return "\n".join(f"{number} {verdict}" for (number, _), verdict in zip(asked, found, strict=True))

    def _take_in(self, request: Request) -> Recording:
        if not self.answered_by or not self.model:
            raise NotRecordedError(
                f"{self._path(request, 'answer.txt')} is there: say with --answered-by and --model whose answer it is."
            )
        system, user, answer = (
            self._path(request, name).read_text(encoding="utf-8") for name in ("system.txt", "user.txt", "answer.txt")
        )
        # Of the texts that were answered, which are not today's if the code has changed meanwhile.
        shown = user if request.turns.endswith(" verified") else ""
        record = Recording(hash_of(system, user), self.answered_by, self.model, request.turns, answer, shown)
        text = msgspec.json.format(msgspec.json.encode(record), indent=1)
        self._path(request, "json").write_bytes(text + b"\n")
        for name in ("system.txt", "user.txt", "answer.txt"):
            self._path(request, name).unlink()
        self.answers[request.turns] = record
        return record

    def _path(self, request: Request, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{request.place:02}.{name}"
