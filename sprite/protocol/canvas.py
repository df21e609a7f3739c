"""The `canvas_interaction` message: one type for each `action` (pure)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sprite.protocol.shapes import FARTHEST, LARGEST, SMALLEST, Payload

_Coordinate = Annotated[float, Meta(ge=-FARTHEST, le=FARTHEST)]
_Length = Annotated[float, Meta(ge=SMALLEST, le=LARGEST)]


class CardPlace(Payload, omit_defaults=False):
    """Where a person puts a card, in pixels from the canvas' top left."""

    x: _Coordinate
    y: _Coordinate


class CardSize(Payload, omit_defaults=False):
    """How large a person makes a card, in pixels."""

    width: _Length
    height: _Length


#: Why a number in one of them is refused.
OUT_OF_BOUNDS: dict[type[Payload], str] = {
    CardPlace: f"A card lies within {FARTHEST:,} pixels of the canvas' top left, in each direction.",
    CardSize: f"A card is between {SMALLEST} and {LARGEST:,} pixels wide and high.",
}


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
    position: CardPlace | None = None
    size: CardSize | None = None


AnyCanvasInteraction = CreateStack | RenameStack | ArchiveStack | RestoreStack | ArchiveCard | RestoreCard | MoveCard
