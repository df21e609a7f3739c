"""Shapes of the wire that several messages contain (pure)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

#: Folders with the person's files: listed, shown, downloaded and deleted.
FILE_FOLDERS = ("documents", "artifacts", "ocr", "extractions")


class Payload(Struct, omit_defaults=True):
    """What every payload has in common: unknown fields are ignored, unset ones are not sent."""


class Point(Payload, omit_defaults=False):
    """A place on the canvas, in pixels from its top left."""

    x: float
    y: float


class Size(Payload, omit_defaults=False):
    """The canvas's extent from its corner, and the smallest and largest size of a card, in pixels."""

    width: float
    height: float


#: Limits in pixels: how far a canvas reaches from its corner, and how small and large a card on it may be.
FARTHEST = 1_000_000
SMALLEST = 1
LARGEST = 100_000


def is_place(point: Point) -> bool:
    """Return whether a place is within the canvas."""
    return abs(point.x) <= FARTHEST and abs(point.y) <= FARTHEST


def is_size(size: Size) -> bool:
    """Return whether a card's size is usable."""
    return SMALLEST <= size.width <= LARGEST and SMALLEST <= size.height <= LARGEST


class Block(Struct):
    """One piece of a card. `version` counts its changes, from 1; `by` is who made the last one."""

    id: str
    type: str
    data: dict[str, Any]
    version: int = 1
    by: Literal["agent", "person"] = "agent"


class Stack(Struct):
    """A tab of the canvas."""

    stack_id: str
    name: str
    archived: bool


class Card(Struct):
    """A card on a stack."""

    card_id: str
    stack_id: str
    title: str
    card_type: str
    position: Point | None
    size: Size | None
    blocks: list[Block]
    archived: bool


#: The origin of a turn: a message (of a person, or of a program in their name), the agent itself (its background work
#: ended), or a schedule.
Origin = Literal["person", "agent", "schedule"]


MissionStatus = Literal["queued", "running", "complete", "interrupted", "error"]


class UsedTool(Struct):
    """A tool that a turn used, in short: `title` says what for."""

    name: str
    title: str
    is_error: bool


class ChatMessage(Struct):
    """One line of the conversation as people see it; `at` in Unix seconds.

    `tools` are what the turn used, in order; a reply with tools may have no text. `status` is how its turn ended, or
    that it has not; null where no turn is known. `asked_by` names the program whose message it is, where it is
    not the person's.
    """

    id: int
    role: Literal["user", "assistant", "error"]
    text: str
    at: float
    mission_id: str | None
    origin: Origin = "person"
    tools: list[UsedTool] = []
    status: MissionStatus | None = None
    asked_by: str | None = None


#: Kinds of background work: a shell command, an agent, or any other kind of the CLI.
WorkKind = Literal["command", "agent", "task"]


class BackgroundWork(Struct):
    """Work that the agent has begun and does not wait for; `since` in Unix seconds."""

    id: str
    kind: WorkKind
    title: str
    since: float


class Stopped(Struct):
    """What was stopped: a person's mission, a turn that the agent had begun by itself, or background work."""

    id: str
    kind: Literal["mission", "turn"] | WorkKind


SlowKind = Literal["turn", "queue", "model_call"]


class SlowWork(Struct):
    """Work that is not done for more than a minute; `since` in Unix seconds.

    `turn` is the turn under way, `queue` the message that waits longest, `model_call` a call of the model without an
    answer.
    """

    kind: SlowKind
    since: float


class Paused(Struct):
    """Why the agent does nothing more by itself: `why` in words, `since` in Unix seconds.

    `by`: it went on for too many turns, or for too much money, or the day's budget is used up.
    """

    why: str
    by: Literal["turns", "cost", "budget"]
    since: float


class SessionState(Struct):
    """The conversation under way; `session_id` is null until its first mission.

    `running_mission_id` is the turn under way: a person's, or (where none runs) one that the agent began by itself.
    `busy` says whether a turn runs or a mission waits; `background` is what goes on beside turns, oldest first, and
    `held_until` (Unix seconds) when that stops keeping a VM awake: null where nothing goes on. `slow` names work that
    takes longer than a minute. Where it is `paused` the agent waits for the person's word.
    """

    session_id: str | None
    started_at: float | None
    turns: int
    running_mission_id: str | None
    queued: int
    busy: bool = False
    background: list[BackgroundWork] = []
    held_until: float | None = None
    slow: list[SlowWork] = []
    paused: Paused | None = None


class FileState(Struct):
    """A memory file in lines; `managed` says who writes it."""

    name: str
    lines: int
    limit: int
    managed: Literal["deploy", "curated"]
    updated_at: float | None


class QuarantinedTurn(Struct):
    """A turn that curation set aside, since every call about it was in vain; `at` in Unix seconds."""

    turn_id: int
    reason: str
    at: float


class MemoryState(Struct):
    """Memory in numbers: how many learnings and turns there are, how many turns wait to be curated.

    `quarantined` are the turns that are set aside, oldest first: they wait for a person's `retry`.
    `drift` names the files that changed on disk while the agent worked: they wait for the person's word.
    `unshipped_forgets` counts what was forgotten here and is not yet gone from the copy at the bridge.
    """

    files: list[FileState]
    learnings: int
    turns: int
    waiting: int
    spend_usd: float
    quarantined: list[QuarantinedTurn] = []
    drift: list[str] = []
    unshipped_forgets: int = 0
