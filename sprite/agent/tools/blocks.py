"""The blocks of a card: their shapes, and one-line errors for the model (pure)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from sprite.protocol.frames import well_formed
from sprite.protocol.shapes import Block

CARD_TYPES = ("table", "document", "notes")
#: A card and its envelope must fit a frame; larger data belongs in a file.
MAX_CARD_BYTES = 512 * 1024
MAX_BLOCKS = 200

#: Limit for the cells of tables and pairs on a card, counted as rows times columns: a row may omit cells.
MAX_CELLS = 40_000
MAX_COLUMNS = 200
_MOST_JSON = 2 * MAX_CARD_BYTES

#: A browser shows integers exactly up to here; larger ones are text.
MAX_NUMBER = 2**53 - 1

Cell = str | int | float | bool | None
_T = TypeVar("_T")


class Heading(Struct):
    """A heading; `level` 1 is the largest."""

    text: str
    level: Annotated[int, Meta(ge=1, le=4)] = 2


class Stat(Struct):
    """One figure with its label."""

    label: str
    value: str | int | float
    description: str | None = None


class Pair(Struct):
    """One line of a key-value block."""

    key: str
    value: Cell


class KeyValue(Struct):
    """A list of names with their values."""

    pairs: Annotated[list[Pair], Meta(max_length=MAX_CELLS)]


class Table(Struct):
    """Rows as lists of cells, or as objects by column name."""

    columns: Annotated[list[str], Meta(min_length=1, max_length=MAX_COLUMNS)]
    rows: Annotated[list[list[Cell] | dict[str, Cell]], Meta(max_length=MAX_CELLS)]


class Badge(Struct):
    """A short status."""

    text: str
    variant: Literal["default", "success", "warning", "destructive"] = "default"


class Progress(Struct):
    """A progress bar; `value` is a percentage."""

    value: Annotated[float, Meta(ge=0, le=100)]
    label: str | None = None


class Text(Struct):
    """Markdown, also of a note, which is set apart from the rest."""

    content: str


class Separator(Struct):
    """A line between blocks."""


class Document(Struct):
    """A file in the workspace."""

    path: str
    title: str | None = None
    excerpt: str | None = None


BLOCKS: dict[str, type[Struct]] = {
    "heading": Heading,
    "stat": Stat,
    "key-value": KeyValue,
    "table": Table,
    "badge": Badge,
    "progress": Progress,
    "text": Text,
    "separator": Separator,
    "document": Document,
    "note": Text,
}


class _Given(Struct):
    """A canvas block as a model writes it; without `data`, its fields are beside `type`."""

    type: str
    id: str | None = None


class BlockError(ValueError):
    """The blocks of a card are invalid; the message is one line that tells the model what to change."""


def read_blocks(value: Any) -> list[Block]:
    """Return the blocks of a tool call's argument, which may be a JSON string. Raises BlockError if invalid."""
    if isinstance(value, str):
        if len(value) > _MOST_JSON:
            raise BlockError(f"blocks have {len(value):,} characters, {_MOST_JSON:,} are allowed")
        value = read_json(value, "blocks must be a JSON list of blocks")
    if not isinstance(value, list):
        raise BlockError("blocks must be a list of {type, data} objects")
    blocks = read_each(value, _read)
    ids = [block.id for block in blocks]
    if len(set(ids)) != len(ids):
        raise BlockError("two blocks have the same id; leave ids out to have them made")
    return blocks


def read_each(given: Sequence[_T], read: Callable[[int, _T], Block]) -> list[Block]:
    """Return the block that `read` makes of each item and its number. BlockError for too many blocks or cells."""
    _check_number(given)
    blocks, cells = [], 0
    for number, one in enumerate(given):
        blocks.append(read(number, one))
        cells += _cells(blocks[-1])
        _check_cells(cells)
    return blocks


def _cells(block: Block) -> int:
    match block.data:
        case {"columns": list(columns), "rows": list(rows)}:
            return len(columns) * len(rows)
        case {"pairs": list(pairs)}:
            return len(pairs)
    return 0


def _check_cells(cells: int) -> None:
    if cells > MAX_CELLS:
        raise BlockError(
            f"the card would have {cells:,} cells, {MAX_CELLS:,} are allowed: write the data to a file in artifacts/ "
            "and show a part of it"
        )


def read_json(text: str, wanted: str) -> Any:
    """Parse JSON that a model sent as a string. Raises BlockError; its message begins with `wanted`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise BlockError(f"{wanted}, not nested that deeply") from None
    except ValueError as error:
        raise BlockError(f"{wanted}: {error}") from error


def _check_number(blocks: Sized) -> None:
    if len(blocks) > MAX_BLOCKS:
        raise BlockError(f"a card may have {MAX_BLOCKS} blocks at most, not {len(blocks)}")


def check_size(blocks: list[Block]) -> None:
    """Raise BlockError if a card with these blocks would be too large to send."""
    _check_number(blocks)
    _check_cells(sum(map(_cells, blocks)))
    size = len(msgspec.json.encode(blocks))
    if size > MAX_CARD_BYTES:
        raise BlockError(
            f"the card would have {size:,} bytes, {MAX_CARD_BYTES:,} are allowed: write the data to a file in "
            "artifacts/ and show a part of it"
        )


def _read(number: int, item: Any) -> Block:
    where = f"blocks[{number}]"
    try:
        given = msgspec.convert(item, _Given)
    except msgspec.ValidationError as error:
        raise BlockError(f"{where}: {error}") from error
    data = item.get("data")
    if isinstance(data, str) and given.type != "text":
        data = read_json(data, f"{where} ({given.type}): data must be an object")
    if data is None:
        data = {key: value for key, value in item.items() if key not in {"type", "id", "data"}}
    return Block(
        id=well_formed(given.id) or str(uuid.uuid4()), type=given.type, data=read_data(given.type, data, where)
    )


def read_data(kind: str, data: Any, where: str = "the block") -> dict[str, Any]:
    """Return a block's data to store, with rows as lists. Raises BlockError that names the block by `where`."""
    shape = BLOCKS.get(kind)
    if shape is None:
        raise BlockError(f"{where}: unknown type {kind[:40]!r}; there are {', '.join(BLOCKS)}")
    try:
        checked = msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise BlockError(f"{where} ({kind}): {error}") from error
    # Also false for NaN, which compares with no number.
    if not all(-MAX_NUMBER <= number <= MAX_NUMBER for number in _numbers(checked)):
        raise BlockError(
            f"{where} ({kind}): a number is between -{MAX_NUMBER:,} and {MAX_NUMBER:,}; write others as text"
        )
    if isinstance(checked, Table):
        # Check before building rows: a row that omits its cells still has them all.
        _check_cells(len(checked.columns) * len(checked.rows))
        checked.rows = [_row(where, checked.columns, row) for row in checked.rows]
    plain = {key: value for key, value in msgspec.to_builtins(checked).items() if value is not None}
    kept: dict[str, Any] = well_formed(plain)
    return kept


def _numbers(block: Struct) -> Iterator[float]:
    """Yield the numbers that the block shows."""
    match block:
        case Stat(value=value) | Progress(value=value):
            cells: Iterable[Cell] = (value,)
        case KeyValue(pairs=pairs):
            cells = (pair.value for pair in pairs)
        case Table(rows=rows):
            cells = (cell for row in rows for cell in (row.values() if isinstance(row, dict) else row))
        case _:
            cells = ()
    return (cell for cell in cells if isinstance(cell, int | float))


def _row(where: str, columns: list[str], row: list[Cell] | dict[str, Cell]) -> list[Cell] | dict[str, Cell]:
    if isinstance(row, dict):
        unknown = set(row) - set(columns)
        if unknown:
            raise BlockError(f"{where} (table): a row has the unknown column {min(unknown)!r}")
        return [row.get(column) for column in columns]
    if len(row) != len(columns):
        raise BlockError(f"{where} (table): a row has {len(row)} cells, there are {len(columns)} columns")
    return row
