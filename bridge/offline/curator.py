"""The fake model as memory curator: a batch of turns in, a response in the curator's real format out.

Pure. It learns only from plain statements of a person and from successful tool calls.
"""

import re

from bridge.offline.batch import Batch, KnownLearning, parse_batch
from bridge.offline.files import FileDraft, kinship, related, updates
from bridge.offline.learnings import Finding, findings
from bridge.offline.words import normalised

_TITLES = {"tools.md": "Tools", "files.md": "Files", "user.md": "User", "context.md": "Context"}
_RECENT_LINES = 20
_LONGEST_TOPIC = 60
_HEADINGS = {"FACT": "Facts", "PREFERENCE": "Preferences", "CORRECTION": "Facts"}
_VALUE_OF = re.compile(r"\A(.*\b(?:is|are|was|be|written|called|named|as|in|at))\s+.+\Z", re.IGNORECASE | re.DOTALL)


def curate(text: str) -> str:
    """Answer the user content of a curation request; `NONE` when there is nothing to learn."""
    batch = parse_batch(text)
    learned = _new_findings(batch)
    if not learned:
        return "NONE"
    lines = []
    drafts = {name: FileDraft(name, title, batch.files.get(name)) for name, title in _TITLES.items()}
    for found in learned:
        old = _superseded(found, batch.learnings) if found.type == "CORRECTION" else None
        named = _spelt_out(found, old)
        lines.append(_line(named, old))
        _apply(named, old, drafts, batch)
    _note_topic(learned, drafts["context.md"], batch)
    return "\n".join([*lines, "", updates(drafts.values())]).rstrip() + "\n"


def _new_findings(batch: Batch) -> list[Finding]:
    """Return the findings of the batch that are not known yet, without repeats."""
    known = {normalised(learning.text) for learning in batch.learnings}
    new: list[Finding] = []
    for turn in batch.turns:
        for found in findings(turn):
            if normalised(found.content) not in known:
                known.add(normalised(found.content))
                new.append(found)
    return new


def _superseded(found: Finding, learnings: tuple[KnownLearning, ...]) -> KnownLearning | None:
    """Return the open learning that a correction is about: the closest, the newest of equals."""
    candidates = [
        learning for learning in learnings if learning.type != "ACTION" and related(found.content, learning.text)
    ]
    return max(
        candidates,
        key=lambda learning: (kinship(found.content, learning.text), _number(learning.id)),
        default=None,
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _spelt_out(found: Finding, old: KnownLearning | None) -> Finding:
    """Resolve "it": "It should be Y" becomes the corrected learning with Y as its new value."""
    if old is None or not found.content.startswith("It should be "):
        return found
    head = _VALUE_OF.match(old.text)
    if not head:
        return found
    return Finding(found.type, found.turn_id, f"{head[1]} {found.detail}.", found.quote, found.detail)


def _line(found: Finding, old: KnownLearning | None) -> str:
    supersedes = f" supersedes L{old.id}" if old else ""
    content = f"{supersedes}: {found.content}" if supersedes else f" {found.content}"
    return f'{found.type} [t{found.turn_id}]{content} | "{found.quote}"'


def _apply(found: Finding, old: KnownLearning | None, drafts: dict[str, FileDraft], batch: Batch) -> None:
    if found.type == "TOOL_INSTALL":
        drafts["tools.md"].add("Installed", found.content)
    elif found.type == "ACTION":
        drafts["context.md"].add("Open actions", found.content)
    elif found.type == "CORRECTION":
        drafts["user.md"].correct(_HEADINGS[found.type], found.content, old.text if old else None)
    elif found.detail:
        # Only the path of a written file makes a FACT with a detail.
        day = next((turn.at[:10] for turn in batch.turns if turn.id == found.turn_id), "")
        drafts["files.md"].put("Files", f"{found.detail} ", f"{found.detail} (turn {found.turn_id}, {day})")
    else:
        drafts["user.md"].add(_HEADINGS[found.type], found.content)


def _note_topic(learned: list[Finding], context: FileDraft, batch: Batch) -> None:
    """Add one line with the topic of this batch, in the person's words."""
    first, last = batch.turns[0], batch.turns[-1]
    topic = learned[-1].content[:_LONGEST_TOPIC].rstrip(". ")
    context.add("Recent", f"{last.at[:10]}, turns {first.id} to {last.id}: {topic}")
    context.drop_oldest("Recent", _RECENT_LINES)
