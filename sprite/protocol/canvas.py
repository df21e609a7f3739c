"""The `canvas_interaction` message: one type for each `action` (pure)."""

from __future__ import annotations

from typing import Annotated, Any

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


#: The refusal of an invalid number in one of them.
OUT_OF_BOUNDS: dict[type[Payload], str] = {
    CardPlace: f"A card lies within {FARTHEST:,} pixels of the canvas' top left, in each direction.",
    CardSize: f"A card is between {SMALLEST} and {LARGEST:,} pixels wide and high.",
}


class CanvasInteraction(Payload, tag_field="action"):
    """What a person does to the canvas, without the agent."""


class NewBlock(Payload, omit_defaults=False):
    """A block that a person writes."""

    type: str
    data: dict[str, Any]


class CreateCard(CanvasInteraction, tag="create_card"):
    """A notes card of a person's, on the stack named or the one shown first."""

    title: str
    blocks: list[NewBlock]
    stack_id: str | None = None
    position: CardPlace | None = None
    size: CardSize | None = None


class UpdateBlock(CanvasInteraction, tag="update_block"):
    """A person's new data for a block. `seen` is the version that was edited: with another one by now it is refused."""

    card_id: str
    block_id: str
    data: dict[str, Any]
    seen: int


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


AnyCanvasInteraction = (
    CreateStack
    | RenameStack
    | ArchiveStack
    | RestoreStack
    | CreateCard
    | UpdateBlock
    | ArchiveCard
    | RestoreCard
    | MoveCard
)
