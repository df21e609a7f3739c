"""Whether a line about the work is a stranger's (pure): by who used its words first.

Lines about the work are never shown to the verifier. Tools may be reported in the curator's words (versions, paths,
results), but no sentence of theirs may be copied, since anybody may have written it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sprite.curation.provenance.voices import UNTRUSTED, Turn
from sprite.memory.words import Run, content_words, plain, run_words, runs

#: A line is a stranger's if more of its words were first used by strangers.
MAX_FOREIGN = 1 / 3
#: A path, a package, a version: words bound by signs without a space. They have many words and say nothing.
_BOUND = re.compile(r"(?<!\w)[~.]{0,3}/?\w++(?:[-/._:=@+~]++\w++)+/?")
#: An e-mail address, a URL or a handle. A bare host looks like a file's name.
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]*@[\w.-]*\w|\b(?:https?://|www\.)[^\s<>\"')\]]*[\w/]", re.IGNORECASE)


class FirstUse:
    """The first users of words in these turns: strangers, or the person and the agent."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        voices = [voice for turn in turns for voice in turn.voices]
        own = [voice.text for voice in voices if voice.kind == "person"]
        #: The person's words, whenever they said them, and those that the agent used before strangers did.
        trusted = {word for text in own for word in content_words(text)}
        trusted_runs = {run for text in own for run in _runs(text)}
        named = {address for text in own for address in _addresses(text)}
        self._foreign: set[str] = set()
        #: Those of them that a document used: what stands in a file here may be told, in other words.
        self._documents: set[str] = set()
        self._shown_runs: set[Run] = set()
        #: Addresses that a tool or a stranger named first.
        self._shown_addresses: set[str] = set()
        for voice in voices:
            words, found, addresses = content_words(voice.text), set(_runs(voice.text)), _addresses(voice.text)
            if voice.kind == "input":
                named |= addresses - self._shown_addresses
            elif voice.kind != "person":
                self._shown_addresses |= addresses
            if voice.kind in UNTRUSTED:
                (self._documents if voice.kind in {"printed", "document"} else self._foreign).update(words - trusted)
            elif voice.kind != "memory":
                trusted |= words - self._foreign - self._documents
            # Whoever chose the words of a link or of a file's name, the agent did not say them.
            names = _BOUND.findall(plain(voice.text))
            self._shown_runs |= {run for name in names for run in runs(run_words(name))} - trusted_runs
            if voice.kind in UNTRUSTED | {"result"}:
                self._shown_runs |= found - trusted_runs
            elif voice.kind != "memory":
                trusted_runs |= found - self._shown_runs
        self._shown_addresses -= named

    def copied(self, text: str, after: str = "") -> str | None:
        """Return what a text copies from a stranger or a result, also together with the text before it, or None."""
        accepted = set(_runs(after))
        new = (run for run in _runs(f"{after} {text}") if run not in accepted)
        found = next((run for run in new if run in self._shown_runs), None)
        return None if found is None else f"it repeats word for word: {' '.join(found)}"

    def strangers(self, line: str, *, may_tell_documents: bool = False) -> str | None:
        """Return why a line is a stranger's, or None."""
        if (copied := self.copied(line)) is not None:
            return copied
        address = next((known for known in _ADDRESS.findall(line) if known.casefold() in self._shown_addresses), None)
        if address is not None:
            return f"nobody but others gave the address {address}"
        words = content_words(line)
        foreign = words & (self._foreign if may_tell_documents else self._foreign | self._documents)
        if len(foreign) > MAX_FOREIGN * len(words):
            return f"nobody but others said {', '.join(sorted(foreign)[:10])}"
        return None


def _runs(text: str) -> Iterable[Run]:
    return runs(run_words(_BOUND.sub(" ", plain(text))))


def _addresses(text: str) -> set[str]:
    return {address.casefold() for address in _ADDRESS.findall(text)}
