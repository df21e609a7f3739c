"""Every column and file that can hold people's text is covered by forgetting."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.db.open import open_database
from sprite.common.sqlite import Schema
from sprite.config import Settings
from sprite.log import transcript
from sprite.memory import database as memory
from sprite.search.meaning import vectors
from sprite.search.meaning.meaning import open_meaning
from sprite.storage.connection import empty_database
from sprite.workspace import database as workspace
from sprite.workspace.database import TEXT_COLUMNS
from tests.memory_stores import forgetter_of, open_stores

#: Columns with people's text, by the store that searches and removes it. Full text ("..._fts") derives from them.
REGISTERED: dict[str, dict[str, tuple[str, ...]]] = {
    "the log": {
        "observations": ("user_message", "tool_calls_json", "agent_response", "notice"),
        "curations": ("response", "decision_json", "verification_json"),
        "turn_journal": ("data_json",),
        "disk_entries": ("path",),
        "file_deeds": ("path",),
        "observations_fts": ("user_message", "agent_response", "tools", "said_on"),
    },
    "memory": {
        "learnings": ("content", "evidence", "said"),
        "file_versions": ("content",),
        "reports": ("detail",),
        "pending_actions": ("content", "history_json"),
        "rules": ("condition_json", "reason", "row_json"),
        "learnings_fts": ("content", "type"),
        "trusted_fts": ("content",),
        "untrusted_fts": ("content",),
    },
    # Derived from a turn's words, and deleted with them.
    "search by meaning": {"vectors": ("person", "reply")},
    "the chat and the canvas": {
        **{table: tuple(each[2] for each in TEXT_COLUMNS if each[0] == table) for table, *_ in TEXT_COLUMNS},
        # Every event is deleted.
        "events": ("frame",),
    },
    "a changed file's name": {"seen_files": ("path",), "changes": ("path",), "outside_files": ("path",)},
    "a file of the program's": {},
    "the bridge's replica": {},
    "a file of yours, which stays": {},
}
#: Columns without people's text: ids, names given by the program, times, hashes, numbers as JSON.
FREE: dict[str, dict[str, tuple[str, ...]]] = {
    "transcript.db": {
        "sessions": ("id", "cli_session_id", "model", "effort"),
        "observations": (
            *("session_id", "outcome", "mission_id", "trigger", "import_key"),
            # The place of a turn and its program: a folder's path, a repository's address.
            *("project", "source", "asked_by"),
            # Numbers.
            "pasted_json",
        ),
        "turn_journal": ("turn_key", "session_id", "event"),
        "curations": ("kind", "model", "prompt_sha256", "usage_json"),
        "lost_calls": ("model", "reason", "usage_json"),
        "log_identity": ("id",),
        "turn_outlines": ("session_id",),
        "file_deeds": ("what",),
        "ship_changes": ("part",),
    },
    "memory.db": {
        "learnings": ("session_id", "type", "origin", "project", "proposed"),
        "file_versions": ("name", "source", "sha256"),
        "written_files": ("name", "sha256"),
        "reports": ("kind",),
        "projection": ("tz",),
        "log_seen": ("log_id",),
        "pending_actions": ("status", "rrule", "tz", "origin", "mission_id"),
        "rules": ("action", "status"),
    },
    "vectors.db": {"model": ("id",)},
    "workspace.db": {
        "meta": ("key", "value"),
        "stacks": ("stack_id",),
        "cards": ("card_id", "stack_id", "card_type", "position_json", "size_json"),
        "chat_messages": ("role", "mission_id", "origin", "asked_by"),
        "missions": ("id", "stack_id", "status", "session_id", "origin", "error_code", "asked_by", "pasted_json"),
        "session_titles": ("session_id",),
        "canvas_changes": ("kind", "stack_id", "card_id", "block_id"),
        "host_rules": ("mission_id",),
        "host_connections": ("mission_id", "decision"),
        # Hashes of contents, which are files below `.os/undo/`.
        "seen_files": ("sha256",),
        "change_sets": ("turn", "undoes"),
        # The kind of the origin, with a host or a connection.
        "outside_files": ("origin",),
        "changes": ("turn", "kind", "before", "after"),
        "ship_changes": ("part",),
        "ship_state": ("numbering", "store"),
        # Names are hashes of paths, facts are sizes and hashes: see `sprite/backup/replica_files.py`.
        "ship_rows": ("part", "name", "facts"),
    },
}
#: The bridge's columns with people's text. Its replica forgets on request, and queued notices lose their texts then.
BRIDGES = {
    "stored_rows": ("name", "sealed"),
    "stored_chunks": ("name", "sealed"),
    "notices": ("title", "body"),
}
#: The bridge's columns without it: people, tokens, money, leases.
BRIDGES_FREE: dict[str, tuple[str, ...]] = {
    "audit": ("actor", "action", "subject", "detail_json"),
    "calls": ("id", "sprite", "state", "model", "outcome", "request_id"),
    "connections": ("person", "name", "key_id", "sealed"),
    "cookie_key": ("key",),
    "granted_access": ("access_sha256", "person", "label"),
    "homes": ("sprite", "machine", "path"),
    "leases": ("sprite", "owner", "address"),
    "login_links": ("token_sha256", "person"),
    "notices": ("sprite", "key", "kind", "request_id"),
    "notify_settings": ("person",),
    "oauth_clients": ("client_id", "info"),
    "oauth_codes": ("code_sha256", "client_id", "person", "info"),
    "oauth_grants": ("refresh_sha256", "person", "label", "client_id", "scopes"),
    "oauth_spent": ("refresh_sha256", "person", "label"),
    "oidc_identities": ("issuer", "subject", "person"),
    "passkeys": ("credential_id", "person", "public_key", "label"),
    "people": ("name", "role"),
    "person_tokens": ("token_sha256", "person", "label", "scopes"),
    "push_key": ("private_der",),
    "push_subscriptions": ("endpoint", "person", "session_sha256", "p256dh", "auth"),
    "raised_limits": ("sprite",),
    "restores": ("sprite",),
    "sessions": ("id_sha256", "person"),
    "spent_challenges": ("challenge_sha256",),
    "sprite_tokens": ("sprite", "token_sha256"),
    "stored_census": ("sprite", "part", "digest"),
    "stored_chunks": ("sprite", "key_id"),
    "stored_moments": ("sprite",),
    "stored_positions": ("sprite", "log"),
    "stored_references": ("sprite", "chunk", "part", "name"),
    "stored_rows": ("sprite", "part", "key_id"),
    "stored_sprites": ("sprite", "key_id", "sealed"),
    "told_until": ("sprite",),
    "waking": ("sprite",),
    "webhook_key": ("key",),
}


def words_columns(schema: Schema) -> dict[str, set[str]]:
    """Return every column of text, bytes or no declared type, by table; FTS5's own tables derive from them."""
    found: dict[str, set[str]] = {}
    with empty_database(schema) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        indexes = [name for name in names if name.endswith("_fts")]
        for name in names:
            if any(name.startswith(f"{index}_") for index in indexes) or name.startswith("sqlite_"):
                continue
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({name})") if row[2] in _HOLD_WORDS}
            if columns:
                found[name] = columns
    return found


_HOLD_WORDS = {"TEXT", "BLOB", ""}


#: In the order of removal.
ORDER = [
    *("the chat and the canvas", "a changed file's name", "a file of the program's", "the log"),
    *("memory", "search by meaning", "the bridge's replica", "a file of yours, which stays"),
]
SCHEMAS = (transcript.SCHEMA, memory.SCHEMA, workspace.SCHEMA, vectors.SCHEMA)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: s.name)
def test_every_column_of_words_is_registered_or_free(schema: Schema) -> None:
    columns = words_columns(schema)
    free = FREE[schema.name]
    registered = {table: names for tables in REGISTERED.values() for table, names in tables.items() if table in columns}
    assert columns == {table: {*registered.get(table, ()), *free.get(table, ())} for table in {*registered, *free}}
    for table, names in registered.items():
        assert not {*names} & {*free.get(table, ())}


async def test_every_store_is_in_registry(tmp_path: Path) -> None:
    """A sprite registers these stores, and each of their tables exists."""
    settings = Settings(tmp_path, embeddings="https://127.0.0.1:1/v1?model=none")
    settings.run.mkdir(parents=True)
    settings.memory.mkdir()
    async with (
        open_stores(settings.memory) as opened,
        workspace.open_workspace(settings.workspace_db) as seen,
        open_meaning(settings, opened.transcript) as meaning,
    ):
        assert [store.name for store in forgetter_of(settings, opened, seen, meaning).stores] == ORDER
    tables = {table for schema in SCHEMAS for table in words_columns(schema)}
    assert {table for store in REGISTERED.values() for table in store} <= tables
    assert set(ORDER) == REGISTERED.keys()


async def test_every_bridge_column_is_classified(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as database:
        columns = await database.read(
            lambda db: db.execute(
                "SELECT tables.name AS in_table, columns.name AS name, columns.type AS type "
                "FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
            ).fetchall()
        )
    found = {
        (row["in_table"], row["name"])
        for row in columns
        if row["type"] in _HOLD_WORDS and not row["in_table"].startswith("sqlite_")
    }
    classified = [(table, name) for part in (BRIDGES, BRIDGES_FREE) for table, names in part.items() for name in names]
    assert sorted(found) == sorted(classified)
