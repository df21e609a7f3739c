"""What messages are made of: the shapes of the wire that more than one message holds (pure)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Payload(Struct, omit_defaults=True):
    """What every payload has in common: unknown fields are ignored, unset ones are not sent."""


class Point(Payload, omit_defaults=False):
    """A place on the canvas, in pixels from its top left."""

    x: float
    y: float


class Size(Payload, omit_defaults=False):
    """A card's size in pixels."""

    width: float
    height: float


class Block(Struct):
    """One piece of a card."""

    id: str
    type: str
    data: dict[str, Any]


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


class ChatMessage(Struct):
    """One line of the conversation as people see it; `at` in Unix seconds."""

    id: int
    role: Literal["user", "assistant", "error"]
    text: str
    at: float
    mission_id: str | None


class SessionState(Struct):
    """The conversation under way; `session_id` is null until its first mission."""

    session_id: str | None
    started_at: float | None
    turns: int
    running_mission_id: str | None
    queued: int


class FileState(Struct):
    """A memory file in lines; `managed` says who writes it."""

    name: str
    lines: int
    limit: int
    managed: Literal["deploy", "curated"]
    updated_at: float | None


class MemoryState(Struct):
    """Memory in numbers: how many learnings and turns there are, how many turns wait to be curated.

    `drift` names the files that changed on disk while the agent worked: they wait for the person's word.
    """

    files: list[FileState]
    learnings: int
    turns: int
    waiting: int
    spend_usd: float
    drift: list[str] = []
