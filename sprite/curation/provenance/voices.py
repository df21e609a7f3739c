"""Who says what in a turn, and who said it first (pure).

Each turn is taken apart into voices: the person's own words, what they pasted, the agent's words and acts, what tools
showed. Over several turns it is noted who used words first: a sentence that a stranger's page had before is the page's,
also where the agent searches for it, echoes it, writes it into a file or follows a link that spells it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from sprite.capture.truncated_hashes import Unkept, known_among, read_all
from sprite.curation.provenance import results
from sprite.curation.provenance.guards import Work
from sprite.curation.provenance.pasted import Message, read_message
from sprite.curation.provenance.quotes import Spoken
from sprite.curation.provenance.results import WEB_TOOLS, kind_of
from sprite.curation.provenance.vocabulary import told_apart
from sprite.log.transcript import Observation
from sprite.memory.words import Run, Text, run_words, runs

#: `none`: a quote that is nowhere in the cited turn. `memory`: only memory's own echo says it. `program`: what another
#: program asked this agent, whoever it says it speaks for.
Origin = Literal["user", "assistant", "tool", "web", "program", "memory", "none"]
Kind = Literal["person", "reply", "input"] | results.Kind

#: A tool's input says here what the agent does; anywhere else it may hold a text that the agent was given.
_ACTS = frozenset({"command", "file_path", "path", "notebook_path", "pattern", "query", "url"})
#: Those of them that somebody else may have named.
_PLACES = frozenset({"file_path", "path", "notebook_path", "url"})
#: A longer act is a text in disguise.
_LONGEST_ACT_CHARS = 400
#: A sentence of which so many words stood in what the log does not keep is from there.
_UNSEEN_SHARE = 0.8

#: A part of a path or a link with so many words of meaning is a sentence.
_SENTENCE_WORDS = 5
_PARTS = re.compile(r"[/?&#\n]")
#: What a command carries that is no command: texts in quotation marks or behind `<<`, and all that `echo` prints.
_TEXTS = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|<<-?\s*['\"]?(\w+)['\"]?\n.*?(?:\n\1\b|\Z)|\b(?:echo|printf|say|wall)\s[^|;&\n]*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Voice:
    """One text of a turn with its speaker."""

    origin: Origin
    text: str
    kind: Kind
    #: It is a command, which did not fail.
    act: bool = False

    @cached_property
    def spoken(self) -> Spoken:
        """The text, for looking for quotes in it."""
        return Spoken(self.text)

    @cached_property
    def words(self) -> Text:
        """The text, for comparing sentences with it: its joined words are told apart."""
        return Text(told_apart(self.text))

    @cached_property
    def work(self) -> Work:
        """The text as a part of the agent's work."""
        return Work(self.words, is_own=self.kind in {"reply", "input"})


class Hearing:
    """The voices of turns that follow each other, and whose words were whose first."""

    def __init__(self, turns: Sequence[Observation]) -> None:
        self.voices: dict[int, list[Voice]] = {}
        #: What the person said in each turn, and what they pasted.
        self.messages: dict[int, Message] = {}
        #: What the agent did by itself: commands, paths, questions.
        self.acts: list[Text] = []
        #: Words that the agent used before anybody but the person did.
        self.own_words: set[str] = set()
        #: Hashes of words in results that the log does not keep, by whose words those are.
        self.unseen: dict[Kind, set[int]] = {"outside": set(), "document": set(), "result": set()}
        self._strangers_words: set[str] = set()
        self._strangers_unseen: set[int] = set()
        self._shown_runs: set[Run] = set()
        self._persons_runs: set[Run] = set()
        for turn in turns:
            self.voices[turn.id] = list(self._of_turn(turn))

    def _of_turn(self, turn: Observation) -> Iterator[Voice]:
        """The texts of a turn, the person's first, in the order in which a quote is looked for."""
        message = self.messages[turn.id] = self._read(turn)
        unkept = read_all(turn.unkept)
        self._persons_runs |= Text(told_apart(message.own)).runs
        yield self._voice("user", message.own, "person")
        # What a person pastes is shown by them, not said by them; in a turn that they did not begin they said nothing.
        by_person = turn.trigger == "user"
        asker: Origin = "program" if turn.trigger == "program" else "tool"
        yield self._voice(asker, "\n".join(message.pasted) if by_person else turn.user_message, "outside")
        notice = self._voice("tool", turn.notice, "outside")
        calls = [voice for call in turn.tool_calls for voice in self._of_call(call, unkept)]
        # Words of an image or of a document are known to nobody else: what is told of it proves nothing.
        is_blind = any(kept.is_blind for kept in unkept.values())
        reply = turn.agent_response
        yield self._voice("tool", reply, "outside") if is_blind else self._voice("assistant", reply, "reply")
        yield from calls
        yield notice

    def _read(self, turn: Observation) -> Message:
        """The message of a turn; in one of the CLI's own, a schedule's or a program's the person said nothing."""
        return read_message(turn.user_message) if turn.trigger == "user" else Message("", ())

    def _of_call(self, call: dict[str, Any], unkept: Mapping[str, Unkept]) -> Iterator[Voice]:
        # What the agent asked of a tool is its own words, unless a stranger had them first; the result is the tool's.
        is_led = _spells_a_sentence(call) or any(map(self._is_copied, _texts_in(call)))
        if not is_led:
            self.acts += [Text(told_apart(act)) for act in _acts(call)]
        if (command := _command(call)) and not call.get("is_error"):
            yield self._voice("assistant", command, "input", act=not is_led)
        given = text_of(call.get("input"))
        yield self._voice("tool", given, "outside") if is_led else self._voice("assistant", given, "input")
        shown = self._voice(_source(call), text_of(call.get("result")), kind_of(call))
        if is_led and shown.kind == "result":
            shown = replace(shown, kind="outside")
        if (kept := unkept.get(str(call.get("tool_use_id")))) is not None and shown.kind in self.unseen:
            self.unseen[shown.kind] |= kept.hashes
            if shown.kind != "result":
                self._strangers_unseen |= kept.hashes
        yield shown

    def _voice(self, origin: Origin, text: str, kind: Kind, *, act: bool = False) -> Voice:
        voice = Voice(origin, text, kind, act)
        if text:
            if kind in {"reply", "input"}:
                new = voice.words.words - self._strangers_words
                self.own_words |= new - known_among(new, self._strangers_unseen)
            elif kind in {"outside", "document"}:
                self._strangers_words |= voice.words.words
                self._shown_runs |= voice.words.runs
        return voice

    def _is_copied(self, text: str) -> bool:
        """Whether a text that the agent passes on was shown to it in these words."""
        words = run_words(told_apart(text))
        new = [run for run in runs(words) if run not in self._persons_runs]
        if not new:
            return False
        if any(run in self._shown_runs for run in new):
            return True
        return len(known_among(frozenset(words), self._strangers_unseen)) >= _UNSEEN_SHARE * len(set(words))


def voices_as_shown(turn: Observation) -> Iterator[Voice]:
    """Inputs and results that are no text, as the curator sees them: a quote may reach across their fields."""
    for call in turn.tool_calls:
        given, result = call.get("input"), call.get("result")
        if isinstance(given, dict | list):
            yield Voice("assistant", json.dumps(given, ensure_ascii=False), "input")
        if isinstance(result, dict | list):
            yield Voice(_source(call), json.dumps(result, ensure_ascii=False), kind_of(call))


def text_of(value: Any) -> str:
    """The readable text of a tool's input or result."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(text_of(v) for v in value.values())
    if isinstance(value, list):
        return "\n".join(text_of(v) for v in value)
    return "" if value is None else json.dumps(value)


def _texts_in(call: Mapping[str, Any]) -> Iterator[str]:
    """Sentences in a call's input: of a command what it only passes on, of a path or link what a part of it spells."""
    command = _command(call)
    if command:
        yield from (found[0] for found in _TEXTS.finditer(command))
    given = call.get("input")
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if name != "command":
            text = text_of(value)
            yield from _PARTS.split(text)
            if name not in _ACTS:
                yield text


def _acts(call: Mapping[str, Any]) -> Iterable[str]:
    given = call.get("input")
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if name in _ACTS and isinstance(value, str) and len(value) <= _LONGEST_ACT_CHARS:
            yield value


def _spells_a_sentence(call: Mapping[str, Any]) -> bool:
    """Whether a part of the path or link that is read is a sentence: its name is somebody's, whoever opens it."""
    given = call.get("input")
    if kind_of(call) not in {"outside", "document"} or not isinstance(given, Mapping):
        return False
    values = (value for name, value in given.items() if name in _PLACES and isinstance(value, str))
    return any(len(run_words(told_apart(part))) >= _SENTENCE_WORDS for value in values for part in _PARTS.split(value))


def _source(call: Mapping[str, Any]) -> Origin:
    if kind_of(call) == "memory":
        return "memory"
    return "web" if str(call.get("name", "")) in WEB_TOOLS else "tool"


def _command(call: Mapping[str, Any]) -> str:
    given = call.get("input")
    command = given.get("command") if isinstance(given, Mapping) else None
    return command if isinstance(command, str) else ""
