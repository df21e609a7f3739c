"""The `canvas_interaction` message: one type for each `action` (pure)."""

from __future__ import annotations

from sprite.protocol.shapes import Payload, Point, Size


class CanvasInteraction(Payload, tag_field="action"):
    """What a person does to the canvas, without the agent."""


class CreateStack(CanvasInteraction, tag="create_stack"):
    """A new, empty stack."""

    name: str


class RenameStack(CanvasInteraction, tag="rename_stack"):
    """Another name for a stack."""

    name: str
    stack_id: str


class ArchiveStack(CanvasInteraction, tag="archive_stack"):
    """Takes a stack off the canvas."""

    stack_id: str


class RestoreStack(CanvasInteraction, tag="restore_stack"):
    """Brings a stack back."""

    stack_id: str


class ArchiveCard(CanvasInteraction, tag="archive_card"):
    """Takes a card off the canvas."""

    card_id: str


class RestoreCard(CanvasInteraction, tag="restore_card"):
    """Brings a card back."""

    card_id: str


class MoveCard(CanvasInteraction, tag="move_card"):
    """Another place or size for a card; what is left out stays."""

    card_id: str
    position: Point | None = None
    size: Size | None = None


AnyCanvasInteraction = CreateStack | RenameStack | ArchiveStack | RestoreStack | ArchiveCard | RestoreCard | MoveCard
