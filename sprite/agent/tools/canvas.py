"""The agent's canvas tools: create_card, update_card, close_card (answered when stored and sent), and read_canvas."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from claude_agent_sdk import SdkMcpTool, tool
from mcp.types import ToolAnnotations

from sprite.agent.tools import answer
from sprite.agent.tools.blocks import BLOCKS, CARD_TYPES, BlockError, check_size, read_blocks, read_json
from sprite.boot.canvas import CanvasContext, as_id, block_line, card_words
from sprite.protocol.frames import well_formed
from sprite.protocol.framing import quoted
from sprite.protocol.messages import MAX_FRAME_BYTES, CanvasUpdate, StackUpdate
from sprite.protocol.shapes import Block, Card, Point, Size, Stack
from sprite.protocol.tools import READ_CANVAS_TOOL
from sprite.workspace.database import CardSaved, Effect, WorkspaceDB

_Shape = TypeVar("_Shape", Point, Size)
Publish = Callable[[CanvasUpdate | StackUpdate, Sequence[Effect]], Awaitable[None]]
MAX_TITLE_CHARS = 200
#: Longer text by a person is read with `read_canvas`.
MAX_REFUSAL_CHARS = 8_000

BLOCKS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "description": (
        "Blocks, each {type, data, id?}. data by type: heading {text, level 1-4}, stat {label, value, description?}, "
        "key-value {pairs: [{key, value}]}, table {columns: [name], rows: [[cell]]}, "
        "badge {text, variant: default|success|warning|destructive}, progress {value 0-100, label?}, "
        "text {content: markdown}, separator {}, document {path, title?, excerpt?}, note {content}"
    ),
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Names the block for later changes; made where left out"},
            "type": {"type": "string", "enum": list(BLOCKS)},
            "data": {"type": "object"},
        },
        "required": ["type"],
    },
}


def canvas_tools(
    workspace: WorkspaceDB, publish: Publish, current_stack: Callable[[], str | None], sight: CanvasContext
) -> list[SdkMcpTool[Any]]:
    """Return the three tools; `current_stack` returns the id of the stack the person is looking at, or None."""

    @tool(
        "create_card",
        "Draw a card on the person's canvas: a table, a document or notes, made of blocks. Returns its card_id.",
        {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "card_type": {"type": "string", "enum": list(CARD_TYPES)},
                "blocks": BLOCKS_SCHEMA,
                "stack_id": {"type": "string", "description": "Another stack than the one being looked at"},
                "position": {
                    "type": "object",
                    "description": "{x, y} in pixels from the canvas' top left; left out, it goes where there is room",
                },
                "size": {"type": "object", "description": "{width, height} in pixels; left out, as its content needs"},
            },
            "required": ["title", "card_type", "blocks"],
        },
    )
    async def create_card(args: dict[str, Any]) -> dict[str, Any]:
        try:
            title, card_type = _title(args.get("title")), _card_type(args.get("card_type", "notes"))
            blocks = read_blocks(args.get("blocks"))
            check_size(blocks)
            wanted = _stack_id(args.get("stack_id"))
            position = _shape(args.get("position"), Point, "position must be {x, y}")
            size = _shape(args.get("size"), Size, "size must be {width, height}")
        except BlockError as error:
            return _wrong(error)
        async with workspace.canvas_lock:
            stack_id = await _stack(workspace, wanted or current_stack(), publish)
            card = Card(str(uuid.uuid4()), stack_id, title, card_type, position, size, blocks, archived=False)
            await publish(CanvasUpdate.of("create_card", card), [CardSaved(card)])
        return _done(card)

    @tool(
        "update_card",
        "Change a card: a block whose id the card has replaces that block, others are added at the end, "
        "remove_blocks takes blocks away. What is not named stays as it is. A block that the person changed since you "
        "saw it is not replaced: you are told what it says now.",
        {
            "type": "object",
            "properties": {
                "card_id": {"type": "string"},
                "title": {"type": "string"},
                "blocks": BLOCKS_SCHEMA,
                "remove_blocks": {"type": "array", "items": {"type": "string"}, "description": "Ids of blocks"},
            },
            "required": ["card_id"],
        },
    )
    async def update_card(args: dict[str, Any]) -> dict[str, Any]:
        async with workspace.canvas_lock:
            try:
                card = await _open_card(workspace, args.get("card_id"))
                if args.get("title") is not None:
                    card.title = _title(args["title"])
                before = card.blocks
                card.blocks = _changed(before, read_blocks(args.get("blocks") or []), args.get("remove_blocks"))
                check_size(card.blocks)
                _check_seen(card, before, sight)
            except BlockError as error:
                return _wrong(error)
            await publish(CanvasUpdate.of("update_card", card), [CardSaved(card, _versions(before))])
        return _done(card)

    @tool(
        "close_card",
        "Take a card off the canvas. The person can bring it back.",
        {"type": "object", "properties": {"card_id": {"type": "string"}}, "required": ["card_id"]},
    )
    async def close_card(args: dict[str, Any]) -> dict[str, Any]:
        async with workspace.canvas_lock:
            try:
                card = await _open_card(workspace, args.get("card_id"))
            except BlockError as error:
                return _wrong(error)
            card.archived = True
            await publish(CanvasUpdate.of("close_card", card), [CardSaved(card, _versions(card.blocks))])
        said: dict[str, Any] = {"card_id": card.card_id, "closed": True}
        # No data is lost, because the person can restore the card; but the agent should know the missed changes.
        if missed := [block.id for block in card.blocks if sight.has_missed(card.card_id, block)]:
            said["note"] = f"the person had written in {', '.join(missed)} since you saw it; read_canvas shows it"
        return answer(json.dumps(said))

    return [create_card, update_card, close_card]


async def _stack(workspace: WorkspaceDB, wanted: str | None, publish: Publish) -> str:
    """Return the id of the card's stack; a stack created for the card is published before it."""
    known = {stack.stack_id for stack in await workspace.stacks()}
    stack_id = await workspace.stack_for(wanted)
    if stack_id not in known and (stack := await workspace.stack(stack_id)) is not None:
        await publish(StackUpdate(stack_id, stack.name, stack.archived), [])
    return stack_id


async def _open_card(workspace: WorkspaceDB, card_id: Any) -> Card:
    card = await workspace.card(well_formed(str(card_id)))
    if card is None or card.archived:
        known = [f"{c.card_id} ({c.title})" for c in await workspace.cards() if not c.archived][-10:]
        raise BlockError(f"there is no open card {str(card_id)[:60]!r}; open cards: {', '.join(known) or 'none'}")
    return card


def _shape(value: Any, shape: type[_Shape], wanted: str) -> _Shape | None:
    if isinstance(value, str):
        value = read_json(value, wanted)
    try:
        return msgspec.convert(value, shape | None)
    except msgspec.ValidationError as error:
        raise BlockError(f"{wanted}, in pixels: {error}") from error


def _stack_id(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BlockError("stack_id must be a stack's id, or left out for the stack being looked at")
    wanted: str | None = well_formed(value)
    return wanted


def _title(value: Any) -> str:
    title = " ".join(str(well_formed(value) or "").split())
    if not title:
        raise BlockError("title must not be empty")
    return title[:MAX_TITLE_CHARS]


def _card_type(value: Any) -> str:
    if value not in CARD_TYPES:
        raise BlockError(f"card_type must be one of {', '.join(CARD_TYPES)}, not {str(value)[:40]!r}")
    return str(value)


def _changed(old: list[Block], new: list[Block], removed: Any) -> list[Block]:
    wanted = "remove_blocks must be a list of block ids"
    gone = read_json(removed, wanted) if isinstance(removed, str) else removed or []
    if not isinstance(gone, list):
        raise BlockError(wanted)
    unknown = [str(block_id) for block_id in gone if all(block.id != block_id for block in old)]
    if unknown:
        raise BlockError(f"the card has no block {unknown[0]!r}; it has {', '.join(block.id for block in old)}")
    by_id = {block.id: block for block in new}
    kept = [_replaced(block, by_id.pop(block.id, block)) for block in old if block.id not in gone]
    return kept + list(by_id.values())


def _replaced(old: Block, new: Block) -> Block:
    """Return the new block with the next version and the agent as author, or the old block if the content is equal."""
    if (new.type, new.data) == (old.type, old.data):
        return old
    return Block(new.id, new.type, new.data, old.version + 1, "agent")


def _versions(blocks: Iterable[Block]) -> dict[str, int]:
    return {block.id: block.version for block in blocks}


def _check_seen(card: Card, before: list[Block], sight: CanvasContext) -> None:
    """Raise BlockError with the current content of replaced blocks that the person changed since the agent saw them."""
    kept = _versions(card.blocks)
    missed = [b for b in before if kept.get(b.id) != b.version and sight.has_missed(card.card_id, b)]
    if not missed:
        return
    left = MAX_REFUSAL_CHARS
    shown = []
    for block in missed:
        words = block_line(block)
        left -= len(words)
        if left >= 0:
            sight.saw(card.card_id, block)
            shown.append(words)
        else:
            shown.append(f"{as_id(block.id)} ({block.type}, long: read_canvas shows it)")
    raise BlockError(
        "the person changed what you would replace or remove since you saw it. Now there is "
        f"{'; '.join(shown)}. Keep what they wrote, and call again with that in mind"
    )


def _done(card: Card) -> dict[str, Any]:
    blocks = [{"id": block.id, "type": block.type} for block in card.blocks]
    return answer(json.dumps({"card_id": card.card_id, "blocks": blocks}))


def _wrong(error: BlockError) -> dict[str, Any]:
    return answer(f"Not drawn: {error}", is_error=True)


#: About 5,000 tokens. A card that is asked for by its id is shown whole.
MOST_CHARS = 16_000
#: Limit for the stacks listed when none has the requested name.
_MOST_KNOWN = 20
#: A line for the agent, its card, and the block that it contains completely.
_Line = tuple[str, Card, Block | None]


def canvas_reader(workspace: WorkspaceDB, sight: CanvasContext) -> SdkMcpTool[Any]:
    """Return the tool that reads the canvas; `sight` records which blocks the agent was shown."""

    @tool(
        READ_CANVAS_TOOL,
        "Look at the canvas: a card, the cards of a stack, or (with nothing named) all open cards, newest first; each "
        "with its blocks, their data, versions and who changed them last. Read a card before "
        "you change what the person wrote on it.",
        {
            "type": "object",
            "properties": {
                "card_id": {"type": "string"},
                "stack_id": {"type": "string"},
                "archived": {"type": "boolean", "description": "Also what was put away", "default": False},
            },
        },
        annotations=ToolAnnotations(read_only_hint=True),
    )
    async def read_canvas(args: dict[str, Any]) -> dict[str, Any]:
        stacks = {stack.stack_id: stack for stack in await workspace.stacks()}
        try:
            cards = await _asked_for(workspace, stacks, args)
        except BlockError as unknown:
            return answer(str(unknown), is_error=True)
        lines = [line for card in cards for line in _lines(card, stacks[card.stack_id])]
        most = MOST_CHARS if _given(args.get("card_id")) is None else MAX_FRAME_BYTES
        return answer(_told(lines, most, sight) if lines else f"No card found. {_known(stacks)}")

    return read_canvas


async def _asked_for(workspace: WorkspaceDB, stacks: Mapping[str, Stack], args: dict[str, Any]) -> list[Card]:
    """Return the requested cards. Raises BlockError for an unknown card or stack."""
    if (card_id := _given(args.get("card_id"))) is not None:
        card = await workspace.card(card_id)
        if card is None:
            raise BlockError(f"There is no card {card_id[:60]!r}; without card_id, read_canvas shows those there are.")
        # A card requested by id is shown wherever it is.
        return [card]
    stack_id = _given(args.get("stack_id"))
    if stack_id is not None and stack_id not in stacks:
        raise BlockError(f"There is no stack {stack_id[:60]!r}. {_known(stacks)}")
    with_archived = str(args.get("archived")).casefold() == "true"
    return [
        card
        for card in await workspace.newest_cards()
        if stack_id in {None, card.stack_id}
        and (with_archived or not (card.archived or stacks[card.stack_id].archived))
    ]


def _given(value: Any) -> str | None:
    text = "" if value is None else str(well_formed(str(value))).strip()
    return text or None


def _lines(card: Card, stack: Stack) -> list[_Line]:
    away = " (archived)" if card.archived or stack.archived else ""
    head = f"{card_words(card, stack.name)}{away}{_place(card)}"
    return [(head, card, None), *((f"- {block_line(block)}", card, block) for block in card.blocks)]


def _place(card: Card) -> str:
    at = "" if card.position is None else f", at x {card.position.x:.0f}, y {card.position.y:.0f}"
    return at + ("" if card.size is None else f", {card.size.width:.0f} wide and {card.size.height:.0f} high")


def _told(lines: Sequence[_Line], most: int, sight: CanvasContext) -> str:
    """Return the lines that fit into `most` characters. Register their blocks in `sight` as seen by the agent."""
    told: list[str] = []
    for text, card, block in lines:
        most -= len(text)
        if most < 0:
            told.append(f"And {len(lines) - len(told)} more lines: name a card by its card_id to see it whole.")
            break
        told.append(text)
        if block is not None:
            sight.saw(card.card_id, block)
    return "\n".join(told)


def _known(stacks: Mapping[str, Stack]) -> str:
    known = [f"{quoted(stack.name)} ({as_id(stack.stack_id)})" for stack in stacks.values() if not stack.archived]
    return f"Open stacks: {', '.join(known[-_MOST_KNOWN:]) or 'none'}."
