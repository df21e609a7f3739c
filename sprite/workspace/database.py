"""workspace.db: data that people see. Stacks, cards, chat, the mission inbox, and the durable events.

All effects of an event (a mission's end, a line of chat, a card) are written in its transaction.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from sprite.common.sqlite import Schema
from sprite.errors import PeerError
from sprite.protocol import shapes
from sprite.protocol.pasted import Marked, Spans, read_spans, write_spans
from sprite.protocol.replication import Lease
from sprite.sandbox.hosts import SCHEMA as HOSTS
from sprite.sandbox.hosts import HostTables
from sprite.storage.changes import ROWS, SHIP_STATE, ShipChanges, ShipState, noted, shipped_tables
from sprite.storage.connection import Database, Tables, in_transaction, open_database, open_reader
from sprite.workspace.file_changes import FILE_CHANGES, FileChanges

CanvasChangeKind = Literal["created", "renamed", "archived", "restored", "moved", "resized", "edited"]

#: A row replaces those of the same kind for the same object, and these replace each other.
_OPPOSITES: dict[CanvasChangeKind, CanvasChangeKind] = {"archived": "restored", "restored": "archived"}

_CANVAS_CHANGES = """
    CREATE TABLE canvas_changes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        kind TEXT NOT NULL
            CHECK (kind IN ('created', 'renamed', 'archived', 'restored', 'moved', 'resized', 'edited')),
        stack_id TEXT,
        card_id TEXT,
        block_id TEXT,
        was TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX canvas_changes_of ON canvas_changes (card_id, stack_id);
"""


@dataclass(frozen=True, slots=True)
class CanvasChange:
    """A change by the person to a stack (`stack_id`), a card (`card_id`), or a block of it (both ids).

    `was` is the former name of a renamed stack, as the agent last knew it. `at` is in Unix seconds; `id` grows.
    """

    id: int
    at: float
    kind: CanvasChangeKind
    stack_id: str | None
    card_id: str | None
    block_id: str | None
    was: str


def note_change(
    tx: sqlite3.Connection,
    kind: CanvasChangeKind,
    *,
    stack_id: str | None = None,
    card_id: str | None = None,
    block_id: str | None = None,
    was: str = "",
) -> None:
    """Record a change by the person, for the agent's next prompt; `tx` is the change's transaction.

    Pass only `stack_id` for a stack, only `card_id` for a card, `card_id` and `block_id` for a block. A new card is
    `created`, a block with other data `edited`. The current content is read when the agent is told.
    """
    earlier = tx.execute(
        "DELETE FROM canvas_changes WHERE kind IN (?, ?) AND stack_id IS ? AND card_id IS ? AND block_id IS ? "
        "RETURNING was",
        (kind, _OPPOSITES.get(kind, kind), stack_id, card_id, block_id),
    ).fetchall()
    tx.execute(
        "INSERT INTO canvas_changes (at, kind, stack_id, card_id, block_id, was) VALUES (?, ?, ?, ?, ?, ?)",
        (time.time(), kind, stack_id, card_id, block_id, earlier[0][0] if earlier else was),
    )


#: Limit for starting a schedule's mission: once, and twice more if it was cut off.
MOST_ATTEMPTS = 3
#: Limit for the title of a session.
TITLE_CHARS = 120
#: Events kept for replay; a client further behind receives a `gap` and a fresh state.
EVENTS_KEPT = 5000

_REPLICATED = ("stacks", "cards", "canvas_changes", "chat_messages", "missions", "session_titles")
SCHEMA = Schema(
    name="workspace.db",
    application_id=0x53505731,  # "SPW1"
    migrations=[
        """
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE stacks (
            stack_id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            archived INTEGER NOT NULL DEFAULT 0,
            created_at REAL NOT NULL
        );
        CREATE TABLE cards (
            card_id TEXT PRIMARY KEY,
            stack_id TEXT NOT NULL REFERENCES stacks (stack_id),
            title TEXT NOT NULL,
            card_type TEXT NOT NULL,
            position_json TEXT,
            size_json TEXT,
            blocks_json TEXT NOT NULL CHECK (json_valid(blocks_json)),
            archived INTEGER NOT NULL DEFAULT 0,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL
        );
        CREATE TABLE chat_messages (
            id INTEGER PRIMARY KEY,
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'error')),
            text TEXT NOT NULL,
            at REAL NOT NULL,
            mission_id TEXT,
            origin TEXT NOT NULL DEFAULT 'person' CHECK (origin IN ('person', 'agent', 'schedule')),
            -- What the turn used: a list of {name, title, is_error}.
            tools_json TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(tools_json)),
            -- Which program's message it is; null where it is the person's, or nobody's.
            asked_by TEXT,
            -- The hits of the turn's searches of memory.
            found_json TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(found_json))
        );
        CREATE TABLE missions (
            position INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            text TEXT NOT NULL,
            stack_id TEXT,
            status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'complete', 'interrupted', 'error')),
            received_at REAL NOT NULL,
            session_id TEXT,
            origin TEXT NOT NULL DEFAULT 'person' CHECK (origin IN ('person', 'agent', 'schedule')),
            -- Of a schedule's mission: the action that it is about, and whether the action's history says how it ended.
            action_id INTEGER,
            due REAL,
            told INTEGER NOT NULL DEFAULT 0,
            ended_at REAL,
            cost_usd REAL,
            -- What its calls cost beyond that, as far as they were seen.
            estimated_usd REAL NOT NULL DEFAULT 0,
            duration_ms INTEGER,
            error_code TEXT,
            asked_by TEXT,
            -- How often it was begun.
            attempt INTEGER NOT NULL DEFAULT 0,
            -- Which parts of the message the person pasted: [[start, end], ...] in code points; null: none. They hold
            -- for `text`, and for the chat's line, which has the same text and stays.
            pasted_json TEXT CHECK (pasted_json IS NULL OR json_valid(pasted_json))
        );
        CREATE INDEX missions_open ON missions (position) WHERE status IN ('queued', 'running');
        CREATE INDEX missions_scheduled ON missions (ended_at) WHERE origin = 'schedule';
        CREATE INDEX missions_of_actions ON missions (action_id, position) WHERE origin = 'schedule';
        CREATE INDEX missions_of_sessions ON missions (session_id, position);
        CREATE TABLE session_titles (session_id TEXT PRIMARY KEY, title TEXT NOT NULL);
        CREATE TABLE events (seq INTEGER PRIMARY KEY, frame BLOB NOT NULL);
        """
        + _CANVAS_CHANGES
        + HOSTS
        + FILE_CHANGES
        + noted((*_REPLICATED, "host_rules", "host_connections"))
        + SHIP_STATE
    ],
)


@dataclass(frozen=True, slots=True)
class StoredMission:
    """A mission in the inbox.

    From the database, `text` is redacted: secrets and private words are lost with an interrupted process, and after
    a crash the agent gets the mission without them. Until then it is the person's text.
    """

    id: str
    text: str = field(repr=False)
    stack_id: str | None
    status: shapes.MissionStatus
    session_id: str | None
    origin: shapes.Origin = "person"
    #: The action and the due time of a schedule's mission.
    action_id: int | None = None
    due: float | None = None
    #: The program that wrote the text, or None for the person.
    asked_by: str | None = None
    #: Number of starts; 0 before the first.
    attempt: int = 0
    #: The parts of `text` that the person pasted.
    pasted: Spans = ()
    #: Paths of the pictures beside the text. They are not stored: after a crash the agent reads the files by itself.
    images: tuple[str, ...] = ()

    @property
    def may_begin_again(self) -> bool:
        """Whether it may restart if it is cut off before its first tool call."""
        return self.origin == "schedule" and self.attempt < MOST_ATTEMPTS


@dataclass(frozen=True, slots=True)
class ScheduledMission:
    """A schedule's mission and its status; `error` is the text of its final error, `error_code` its code."""

    id: str
    action_id: int
    due: float
    received_at: float
    status: shapes.MissionStatus
    error_code: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """Effect of an event: a turn that no message began has started."""

    mission_id: str
    origin: shapes.Origin
    session_id: str | None


@dataclass(frozen=True, slots=True)
class MissionMoved:
    """Effect of an event: a mission changed its status. Its text is deleted when it ends; the chat has it.

    `cost_usd` is its reported cost, if known, `estimated_usd` what its calls cost beyond that. `error_code` names
    its final error.
    """

    mission_id: str
    status: shapes.MissionStatus
    session_id: str | None = None
    cost_usd: float | None = None
    error_code: str | None = None
    duration_ms: int | None = None
    estimated_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class ChatAdded:
    """Effect of an event: a line is added to the chat; its `tools` are redacted already, as in the log."""

    role: Literal["user", "assistant", "error"]
    text: str
    mission_id: str | None
    origin: shapes.Origin = "person"
    tools: Sequence[shapes.UsedTool] = ()
    asked_by: str | None = None
    found: Sequence[shapes.FoundHit] = ()


@dataclass(frozen=True, slots=True)
class CardSaved:
    """Effect of an event: the agent saved a card. Blocks that the person changed after the versions in `base` stay."""

    card: shapes.Card
    base: Mapping[str, int] = field(default_factory=dict)


Effect = TurnBegan | MissionMoved | ChatAdded | CardSaved


_TOOLS = msgspec.json.Decoder(list[shapes.UsedTool])
_FOUND = msgspec.json.Decoder(list[shapes.FoundHit])
_BLOCKS = msgspec.json.Decoder(list[shapes.Block])
_POINT: msgspec.json.Decoder[shapes.Point | None] = msgspec.json.Decoder(shapes.Point | None)
_SIZE: msgspec.json.Decoder[shapes.Size | None] = msgspec.json.Decoder(shapes.Size | None)

#: Columns with people's text: (table, key, column, column of the mission it belongs to, if any). JSON columns end in
#: `_json`.
TEXT_COLUMNS = (
    ("chat_messages", "id", "text", "mission_id"),
    ("chat_messages", "id", "tools_json", "mission_id"),
    ("chat_messages", "id", "found_json", "mission_id"),
    ("missions", "id", "text", "id"),
    ("session_titles", "session_id", "title", "session_id"),
    ("cards", "card_id", "title", "card_id"),
    ("cards", "card_id", "blocks_json", "card_id"),
    ("stacks", "stack_id", "name", None),
    ("canvas_changes", "id", "was", "card_id"),
    ("host_rules", "id", "host", None),
    ("host_connections", "id", "host", "mission_id"),
)
#: Tables of hosts: a part of a host's name is none, so forgetting deletes the row.
_HOST_TABLES = ("host_rules", "host_connections")


@dataclass(frozen=True, slots=True)
class SeenText:
    """A text in one column of one row, with the mission, card or session that it belongs to."""

    table: str
    key: str
    column: str
    row: str | int
    text: str
    owner: str | None

    @property
    def is_json(self) -> bool:
        """Return whether the text is JSON."""
        return self.column.endswith("_json")


_LAST_SEQ = (
    "SELECT coalesce((SELECT max(seq) FROM events), "
    "(SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned_to'), 0)"
)


def _drop_events(tx: sqlite3.Connection, skipped: int = 0) -> None:
    pruned_to = tx.execute(_LAST_SEQ).fetchone()[0] + skipped
    tx.execute("DELETE FROM events")
    tx.execute("INSERT OR REPLACE INTO meta VALUES ('pruned_to', ?)", (str(pruned_to),))


class WorkspaceDB(Tables):
    """Read and write workspace.db: the canvas, the chat, the mission inbox and the stored events."""

    def __init__(self, database: Database, epoch: str) -> None:
        super().__init__(database)
        self.changes = ShipChanges(database, [*shipped_tables("workspace.db"), ROWS])
        self.ship_state = ShipState(database)
        self.hosts = HostTables(database)
        #: The change sets of turns.
        self.file_changes = FileChanges(database)
        #: Id of this file's sequence of events; a new file is a new epoch.
        self.epoch = epoch
        #: Held during a change of the canvas, from reading a card until its event is published. So no concurrent
        #: change is overwritten, and events have the order of the changes.
        self.canvas_lock = asyncio.Lock()

    # --- the bridge that has this sprite ---

    async def lease(self) -> Lease | None:
        """Return the newest lease that was ever stored, or None before the first."""
        kept = await self._db.fetch_value("SELECT value FROM meta WHERE key = 'lease'")
        return None if kept is None else msgspec.json.decode(kept, type=Lease)

    async def keep_lease(self, lease: Lease) -> None:
        """Store the newest lease; it survives a power cut."""
        sql = "INSERT OR REPLACE INTO meta VALUES ('lease', ?)"
        await self._db.transact(lambda tx: tx.execute(sql, (_json(lease),)), is_synced=True)

    # --- events ---

    async def last_seq(self) -> int:
        """Return the newest event's number, 0 before the first."""
        return int(await self._db.fetch_value(_LAST_SEQ))

    async def oldest_seq(self) -> int:
        """Return the oldest stored event's number, 0 if there is none."""
        sql = (
            "SELECT coalesce((SELECT min(seq) FROM events), "
            "(SELECT CAST(value AS INTEGER) + 1 FROM meta WHERE key = 'pruned_to'), 0)"
        )
        return int(await self._db.fetch_value(sql))

    @in_transaction
    def record(self, tx: sqlite3.Connection, events: Sequence[tuple[int, bytes]], effects: Sequence[Effect]) -> None:
        """Write events and their effects in one transaction."""
        tx.executemany("INSERT INTO events (seq, frame) VALUES (?, ?)", events)
        for effect in effects:
            _apply(tx, effect)

    async def events_after(self, seq: int) -> list[tuple[int, bytes]]:
        """Return the next stored events above a number, oldest first."""
        rows = await self._db.fetch_all("SELECT seq, frame FROM events WHERE seq > ? ORDER BY seq LIMIT 200", (seq,))
        return [(row[0], row[1]) for row in rows]

    async def prune_events(self) -> None:
        """Delete the oldest events above the number of events to keep."""
        await self._db.execute("DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - ?", (EVENTS_KEPT,))

    # --- missions ---

    @in_transaction
    def accept_mission(self, tx: sqlite3.Connection, mission: StoredMission, said: str | None = None) -> bool:
        """Store a mission (its `text` redacted) in the inbox, with its chat line. Return False if its id is known.

        `said` is the text of the line, if it differs from the mission's text.
        """
        cursor = tx.execute(
            "INSERT OR IGNORE INTO missions "
            "(id, text, stack_id, status, received_at, origin, action_id, due, asked_by, pasted_json) "
            "VALUES (?1, ?2, ?3, 'queued', ?4, ?5, ?6, ?7, ?8, ?9)",
            (
                *(mission.id, mission.text, mission.stack_id, time.time()),
                *(mission.origin, mission.action_id, mission.due, mission.asked_by, write_spans(mission.pasted)),
            ),
        )
        if cursor.rowcount == 1:
            line = mission.text if said is None else said
            _apply(tx, ChatAdded("user", line, mission.id, mission.origin, asked_by=mission.asked_by))
        return cursor.rowcount == 1

    async def open_missions(self) -> list[StoredMission]:
        """Return missions that have not ended, in order."""
        rows = await self._db.fetch_all(
            "SELECT id, text, stack_id, status, session_id, origin, action_id, due, asked_by, attempt, pasted_json "
            "FROM missions WHERE status IN ('queued', 'running') ORDER BY position"
        )
        return [_stored_mission(row) for row in rows]

    async def begin_none_again(self) -> None:
        """Keep running missions from beginning again, because the effects of their turns may be unknown here."""
        await self._db.execute("UPDATE missions SET attempt = ? WHERE status = 'running'", (MOST_ATTEMPTS,))

    # --- missions of schedules ---

    async def scheduled_missions(self) -> list[ScheduledMission]:
        """Return schedules' missions that wait, run, or have ended without being noted in their action, in order."""
        return await self._db.fetch_as(
            ScheduledMission,
            "SELECT id, action_id, due, received_at, status, error_code, (SELECT text FROM chat_messages line "
            "WHERE line.mission_id = missions.id AND role = 'error' ORDER BY line.id DESC LIMIT 1) AS error "
            "FROM missions WHERE origin = 'schedule' AND action_id IS NOT NULL AND told = 0 ORDER BY position",
        )

    async def mark_told(self, mission_id: str) -> None:
        """Mark that the action's history contains how the mission ended."""
        await self._db.execute("UPDATE missions SET told = 1 WHERE id = ?", (mission_id,))

    async def failures_of(self, action_id: int, limit: int) -> list[str | None]:
        """Return the error codes of an action's newest missions, newest first, or None for those without an error."""
        return await self._db.fetch_column(
            "SELECT error_code FROM missions WHERE origin = 'schedule' AND action_id = ? "
            "ORDER BY position DESC LIMIT ?",
            (action_id, limit),
        )

    async def spent_by_schedules(self, since: float) -> float:
        """Return the US dollars that schedules' missions cost since a time; an unknown cost counts as the average."""
        sql = (
            "SELECT coalesce(sum(coalesce(cost_usd + estimated_usd, nullif(estimated_usd, 0), "
            "(SELECT avg(cost_usd) FROM missions WHERE origin = 'schedule'))), 0.0) FROM missions "
            "WHERE origin = 'schedule' AND ended_at >= ?"
        )
        return float(await self._db.fetch_value(sql, (since,)))

    async def spend(self, since: float, session_id: str | None) -> shapes.Spend:
        """Return what missions cost since a time, in a session, and the newest one, without curation."""
        sums = ", ".join(
            f"coalesce(sum({column}) FILTER (WHERE {which}), 0.0)"
            for which in ("ended_at >= ?1", "session_id = ?2")
            for column in ("cost_usd", "estimated_usd")
        )
        rows = await self._db.fetch_all(
            f"SELECT origin = 'schedule', {sums} FROM missions GROUP BY 1",  # noqa: S608 - ours
            (since, session_id),
        )
        found = {bool(row[0]): (shapes.Cost(row[1], row[2]), shapes.Cost(row[3], row[4])) for row in rows}
        (today, session), (of_schedules, scheduled) = (
            found.get(each, (shapes.Cost(), shapes.Cost())) for each in (False, True)
        )
        newest = await self._db.fetch_one(
            "SELECT cost_usd, estimated_usd FROM missions WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1"
        )
        turn = None
        if newest is not None and (newest[0] is not None or newest[1]):
            turn = shapes.Cost(newest[0] or 0.0, newest[1])
        return shapes.Spend(
            shapes.Costs(today, of_schedules, shapes.Cost()), shapes.Costs(session, scheduled, shapes.Cost()), turn
        )

    # --- forgetting ---

    async def texts(self) -> list[SeenText]:
        """Return all text that people see, except events."""
        found: list[SeenText] = []
        for table, key, column, owner in TEXT_COLUMNS:
            rows = await self._db.fetch_all(
                f"SELECT {key}, {column}, {owner or 'NULL'} FROM {table} WHERE {column} IS NOT NULL"  # noqa: S608 - ours
            )
            found += [SeenText(table, key, column, *row) for row in rows]
        return found

    @in_transaction
    def forget(
        self,
        tx: sqlite3.Connection,
        missions: Collection[str],
        cards: Collection[str],
        session: str | None,
        rewritten: Sequence[SeenText],
    ) -> None:
        """Delete all text of the given missions, cards and session, and all events; replace the `rewritten` texts.

        A client that resumes later finds its events pruned and receives the current state.
        """
        for table in ("chat_messages", *_HOST_TABLES):
            tx.executemany(f"DELETE FROM {table} WHERE mission_id = ?", [(mission,) for mission in missions])  # noqa: S608
        tx.executemany(
            "UPDATE missions SET text = '', pasted_json = NULL WHERE id = ?", [(mission,) for mission in missions]
        )
        tx.execute("DELETE FROM session_titles WHERE session_id = ?", (session,))
        for table in ("cards", "canvas_changes"):
            tx.executemany(f"DELETE FROM {table} WHERE card_id = ?", [(card_id,) for card_id in cards])  # noqa: S608
        for new in rewritten:
            if new.table in _HOST_TABLES:
                tx.execute(f"DELETE FROM {new.table} WHERE id = ?", (new.row,))  # noqa: S608 - ours
                continue
            if (new.table, new.column) == ("chat_messages", "text"):
                _move_pasted(tx, new)
            tx.execute(f"UPDATE {new.table} SET {new.column} = ? WHERE {new.key} = ?", (new.text, new.row))  # noqa: S608 - ours
        # Skip one number, so that a client with the newest event also receives the whole state.
        _drop_events(tx, skipped=1)

    async def purge(self) -> None:
        """Rebuild the database file, so that no page of it contains forgotten text."""
        await self._db.transact(_drop_events)
        await self._db.purge()

    # --- canvas ---

    async def stacks(self) -> list[shapes.Stack]:
        """Return every stack, oldest first."""
        rows = await self._db.fetch_all("SELECT stack_id, name, archived FROM stacks ORDER BY created_at, rowid")
        return [shapes.Stack(row[0], row[1], archived=bool(row[2])) for row in rows]

    async def stack(self, stack_id: str) -> shapes.Stack | None:
        """Return a stack, or None."""
        row = await self._db.fetch_one("SELECT stack_id, name, archived FROM stacks WHERE stack_id = ?", (stack_id,))
        return shapes.Stack(row[0], row[1], archived=bool(row[2])) if row else None

    @in_transaction
    def create_stack(self, tx: sqlite3.Connection, name: str) -> str:
        """Add a stack by the person; return its id."""
        stack_id = _add_stack(tx, name)
        note_change(tx, "created", stack_id=stack_id)
        return stack_id

    async def stack_for(self, stack_id: str | None) -> str:
        """Return the requested stack if it is open, else the newest open one, else a new one named Canvas."""
        found: str | None = await self._db.fetch_value(
            "SELECT stack_id FROM stacks WHERE archived = 0 "
            "ORDER BY stack_id = ? DESC, created_at DESC, rowid DESC LIMIT 1",
            (stack_id,),
        )
        return await self._db.transact(lambda tx: _add_stack(tx, "Canvas")) if found is None else found

    @in_transaction
    def change_stack(
        self, tx: sqlite3.Connection, stack_id: str, *, name: str | None = None, archived: bool | None = None
    ) -> bool:
        """Rename, archive or restore a stack at the person's request. Return False if there is none."""
        before = tx.execute("SELECT name, archived FROM stacks WHERE stack_id = ?", (stack_id,)).fetchone()
        if before is None:
            return False
        tx.execute(
            "UPDATE stacks SET name = coalesce(?, name), archived = coalesce(?, archived) WHERE stack_id = ?",
            (name, archived, stack_id),
        )
        if name not in {None, before["name"]}:
            note_change(tx, "renamed", stack_id=stack_id, was=before["name"])
        if archived not in {None, bool(before["archived"])}:
            note_change(tx, "archived" if archived else "restored", stack_id=stack_id)
        return True

    async def cards(self) -> list[shapes.Card]:
        """Return every card, oldest first."""
        return [_card(row) for row in await self._db.fetch_all("SELECT * FROM cards ORDER BY created_at, rowid")]

    async def newest_cards(self) -> list[shapes.Card]:
        """Return every card, most recently changed first."""
        rows = await self._db.fetch_all("SELECT * FROM cards ORDER BY updated_at DESC, rowid DESC")
        return [_card(row) for row in rows]

    async def open_cards(self, limit: int) -> tuple[list[shapes.Card], int]:
        """Return the most recently changed cards on open stacks, newest first, and their total number."""
        of_open = "FROM cards JOIN stacks USING (stack_id) WHERE cards.archived = 0 AND stacks.archived = 0"

        def read(tx: sqlite3.Connection) -> tuple[list[shapes.Card], int]:
            rows = tx.execute(f"SELECT cards.* {of_open} ORDER BY updated_at DESC, cards.rowid DESC LIMIT ?", (limit,))
            return [_card(row) for row in rows], int(tx.execute(f"SELECT count(*) {of_open}").fetchone()[0])

        return await self._db.read(read)

    async def card(self, card_id: str) -> shapes.Card | None:
        """Return a card, or None."""
        row = await self._db.fetch_one("SELECT * FROM cards WHERE card_id = ?", (card_id,))
        return _card(row) if row else None

    @in_transaction
    def make_card(self, tx: sqlite3.Connection, card: shapes.Card) -> None:
        """Store a person's new card."""
        _apply(tx, CardSaved(card))
        note_change(tx, "created", card_id=card.card_id)

    @in_transaction
    def change_block(
        self, tx: sqlite3.Connection, card_id: str, block_id: str, data: dict[str, Any], seen: int
    ) -> shapes.Card | None:
        """Replace a block's data at version `seen` by a person's data; return the changed card.

        Return None and change nothing if the card or the block is gone, or the block has another version.
        """
        card = _card_in(tx, card_id)
        block = next((each for each in card.blocks if each.id == block_id), None) if card else None
        if card is None or block is None or block.version != seen:
            return None
        block.data, block.version, block.by = data, seen + 1, "person"
        tx.execute(
            "UPDATE cards SET blocks_json = ?, updated_at = ? WHERE card_id = ?",
            (_json(card.blocks), time.time(), card_id),
        )
        note_change(tx, "edited", card_id=card_id, block_id=block_id)
        return card

    @in_transaction
    def move_card(
        self, tx: sqlite3.Connection, card_id: str, position: shapes.Point | None, size: shapes.Size | None
    ) -> bool:
        """Move or resize a card at the person's request. Return False if there is none."""
        before = _card_in(tx, card_id)
        if before is None:
            return False
        tx.execute(
            "UPDATE cards SET position_json = coalesce(?, position_json), "
            "size_json = coalesce(?, size_json), updated_at = ? WHERE card_id = ?",
            (_optional_json(position), _optional_json(size), time.time(), card_id),
        )
        if position is not None and position != before.position:
            note_change(tx, "moved", card_id=card_id)
        if size is not None and size != before.size:
            note_change(tx, "resized", card_id=card_id)
        return True

    @in_transaction
    def archive_card(self, tx: sqlite3.Connection, card_id: str, *, archived: bool) -> bool:
        """Archive or restore a card at the person's request. Return False if there is none."""
        before = _card_in(tx, card_id)
        if before is None:
            return False
        if before.archived != archived:
            sql = "UPDATE cards SET archived = ?, updated_at = ? WHERE card_id = ?"
            tx.execute(sql, (archived, time.time(), card_id))
            note_change(tx, "archived" if archived else "restored", card_id=card_id)
        return True

    async def canvas_changes(self, after: int = 0) -> list[CanvasChange]:
        """Return the person's changes of the canvas that the agent does not know yet, with ids above `after`."""
        return await self._db.fetch_as(
            CanvasChange,
            "SELECT id, at, kind, stack_id, card_id, block_id, was FROM canvas_changes WHERE id > ? ORDER BY id",
            (after,),
        )

    async def canvas_changes_told(self, up_to: int) -> None:
        """Delete the person's changes of the canvas with ids up to `up_to`, because the agent knows them."""
        await self._db.execute("DELETE FROM canvas_changes WHERE id <= ?", (up_to,))

    # --- chat ---

    async def chat(self, limit: int, before: int | None = None) -> list[shapes.ChatMessage]:
        """Return the newest lines of chat, oldest first; with `before`, only lines with a smaller id."""
        rows = await self._db.fetch_all(
            "SELECT line.id, role, line.text, line.at, mission_id, line.origin, tools_json, status, line.asked_by, "
            "CASE role WHEN 'user' THEN pasted_json END AS pasted, added, modified, deleted, session_id, "
            "duration_ms, cost_usd, found_json, EXISTS (SELECT 1 FROM change_sets AS undo "
            "WHERE undo.undoes = mission_id AND NOT undo.is_open AND NOT EXISTS (SELECT 1 FROM change_sets AS redo "
            "WHERE redo.undoes = undo.turn AND NOT redo.is_open)) AS undone "
            "FROM chat_messages AS line LEFT JOIN missions ON missions.id = mission_id "
            "LEFT JOIN change_sets ON turn = mission_id AND role <> 'user' "
            "WHERE ?2 IS NULL OR line.id < ?2 ORDER BY line.id DESC LIMIT ?1",
            (limit, before),
        )
        return [_chat_message(row) for row in reversed(rows)]

    async def sessions(self, limit: int, before: int | None = None) -> list[shapes.SessionRow]:
        """Return sessions, the last used first; with `before`, only those with a smaller position."""
        rows = await self._db.fetch_as(
            shapes.SessionRow,
            "SELECT missions.session_id, coalesce(nullif((SELECT title FROM session_titles AS given "
            "WHERE given.session_id = missions.session_id), ''), (SELECT line.text FROM missions AS first "
            "JOIN chat_messages AS line ON line.mission_id = first.id AND role = 'user' "
            "WHERE first.session_id = missions.session_id ORDER BY first.position LIMIT 1), '') AS title, "
            "min(received_at) AS started_at, max(coalesce(ended_at, received_at)) AS last_at, count(*) AS turns, "
            "(SELECT id FROM missions AS first WHERE first.session_id = missions.session_id ORDER BY position LIMIT 1) "
            "AS mission_id, max(position) AS position FROM missions WHERE missions.session_id IS NOT NULL "
            "GROUP BY missions.session_id HAVING ?2 IS NULL OR max(position) < ?2 ORDER BY max(position) DESC LIMIT ?1",
            (limit, before),
        )
        for row in rows:
            row.title = row.title.strip().partition("\n")[0][:TITLE_CHARS]
        return rows

    async def rename_session(self, session_id: str, title: str) -> None:
        """Give a session a title. Raises PeerError if there is no such session."""
        kept = " ".join(title.split())[:TITLE_CHARS]
        if not await self._db.fetch_value("SELECT count(*) FROM missions WHERE session_id = ?", (session_id,)):
            raise PeerError("There is no such session.", code="not_found")
        await self._db.execute("INSERT OR REPLACE INTO session_titles VALUES (?, ?)", (session_id, kept))


def _apply(tx: sqlite3.Connection, effect: Effect) -> None:
    now = time.time()
    match effect:
        case TurnBegan(mission_id, origin, session_id):
            tx.execute(
                "INSERT INTO missions (id, text, status, received_at, session_id, origin) "
                "VALUES (?, '', 'running', ?, ?, ?)",
                (mission_id, now, session_id, origin),
            )
        case MissionMoved(mission_id, status, session_id, cost_usd, error_code, duration_ms, estimated_usd):
            ended = status not in {"queued", "running"}
            tx.execute(
                "UPDATE missions SET status = ?1, session_id = coalesce(?2, session_id), "
                "text = CASE WHEN ?3 THEN '' ELSE text END, ended_at = CASE WHEN ?3 THEN ?4 END, "
                "cost_usd = ?5, error_code = ?6, attempt = attempt + ?8, duration_ms = ?9, estimated_usd = ?10 "
                "WHERE id = ?7",
                (
                    *(status, session_id, ended, now, cost_usd, error_code, mission_id, status == "running"),
                    *(duration_ms, estimated_usd),
                ),
            )
        case ChatAdded(role, text, mission_id, origin, tools, asked_by, found):
            tx.execute(
                "INSERT INTO chat_messages (role, text, at, mission_id, origin, tools_json, asked_by, found_json) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (role, text, now, mission_id, origin, _json(tools), asked_by, _json(found)),
            )
        case CardSaved(card, base):
            there = _card_in(tx, card.card_id)
            blocks = card.blocks if there is None else _with_persons(there.blocks, card.blocks, base)
            tx.execute(
                "INSERT INTO cards (card_id, stack_id, title, card_type, position_json, size_json, "
                "blocks_json, archived, created_at, updated_at) "
                "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9) "
                "ON CONFLICT (card_id) DO UPDATE SET title = ?3, card_type = ?4, blocks_json = ?7, "
                # A person may have archived it meanwhile; only they restore it.
                "archived = archived OR ?8, updated_at = ?9",
                (
                    *(card.card_id, card.stack_id, card.title, card.card_type, _optional_json(card.position)),
                    *(_optional_json(card.size), _json(blocks), card.archived, now),
                ),
            )


def _with_persons(there: list[shapes.Block], new: list[shapes.Block], base: Mapping[str, int]) -> list[shapes.Block]:
    """Return the agent's blocks, except those that the person changed since the agent read them."""
    kept = {block.id: block for block in there if block.by == "person" and block.version > base.get(block.id, 0)}
    blocks = [kept.pop(block.id, block) for block in new]
    for block in kept.values():
        # The agent removed it; insert it after its former predecessors.
        before = {other.id for other in there[: there.index(block)]}
        blocks.insert(max((at for at, other in enumerate(blocks, 1) if other.id in before), default=0), block)
    return blocks


def _move_pasted(tx: sqlite3.Connection, new: SeenText) -> None:
    """Adapt a mission's pasted spans to the new text of its chat line, before that text is written."""
    rows = tx.execute(
        "SELECT line.text, pasted_json FROM chat_messages AS line JOIN missions ON missions.id = mission_id "
        "WHERE line.id = ? AND role = 'user'",
        (new.row,),
    ).fetchall()
    for text, pasted in rows:
        left = Marked(text, read_spans(pasted)).rewritten(new.text)
        tx.execute("UPDATE missions SET pasted_json = ? WHERE id = ?", (write_spans(left.pasted), new.owner))


def _add_stack(tx: sqlite3.Connection, name: str) -> str:
    stack_id = str(uuid.uuid4())
    tx.execute("INSERT INTO stacks (stack_id, name, created_at) VALUES (?, ?, ?)", (stack_id, name, time.time()))
    return stack_id


def _card_in(tx: sqlite3.Connection, card_id: str) -> shapes.Card | None:
    row = tx.execute("SELECT * FROM cards WHERE card_id = ?", (card_id,)).fetchone()
    return _card(row) if row else None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _optional_json(value: shapes.Point | shapes.Size | None) -> str | None:
    return None if value is None else _json(value)


def _stored_mission(row: sqlite3.Row) -> StoredMission:
    columns = dict(row)
    return StoredMission(pasted=read_spans(columns.pop("pasted_json")), **columns)


def _chat_message(row: sqlite3.Row) -> shapes.ChatMessage:
    columns = dict(row)
    pasted = list(read_spans(columns.pop("pasted")))
    counts = [columns.pop(name) for name in ("added", "modified", "deleted")]
    changes = None if None in counts else shapes.FileCounts(*counts)
    tools, found = _TOOLS.decode(columns.pop("tools_json")), _FOUND.decode(columns.pop("found_json"))
    undone = bool(columns.pop("undone"))
    return shapes.ChatMessage(changes=changes, tools=tools, found=found, pasted=pasted, undone=undone, **columns)


def _card(row: sqlite3.Row) -> shapes.Card:
    position = _POINT.decode(row["position_json"] or "null")
    size, blocks = _SIZE.decode(row["size_json"] or "null"), _BLOCKS.decode(row["blocks_json"])
    return shapes.Card(
        row["card_id"], row["stack_id"], row["title"], row["card_type"], position, size, blocks, bool(row["archived"])
    )


@asynccontextmanager
async def open_workspace(path: Path) -> AsyncIterator[WorkspaceDB]:
    """Open the workspace database as its owner; a new file gets a new epoch."""
    async with open_database(path, SCHEMA) as database:
        await database.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?)", (str(uuid.uuid4()),))
        workspace = WorkspaceDB(database, str(await database.fetch_value("SELECT value FROM meta WHERE key = 'epoch'")))
        await workspace.prune_events()
        yield workspace


@asynccontextmanager
async def read_workspace(path: Path) -> AsyncIterator[WorkspaceDB]:
    """Open the workspace database for reading, beside its owner."""
    async with open_reader(path, SCHEMA) as database:
        yield WorkspaceDB(database, str(await database.fetch_value("SELECT value FROM meta WHERE key = 'epoch'")))
