"""Search: untrusted words cannot change the order of the learnings of origin `user`."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_stores import SESSION, Stores, call, find, open_stores

#: Few words, so that texts share them.
WORDS = "tea kettle ketle kettel green garden gardens invoice invocie rent landlord port server bought buy".split()
UNTRUSTED = ("assistant", "tool", "web", "program", "none")
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
#: A turn: the person's message, its learnings of origin `user`, and the origins of its other learnings.
TURNS = st.lists(
    st.tuples(TEXT, st.lists(TEXT, max_size=3), st.lists(st.sampled_from(UNTRUSTED), max_size=2)),
    min_size=1,
    max_size=5,
)
Turns = list[tuple[str, list[str], list[str]]]


def add_learnings(folder: Path, rows: Sequence[tuple[str, str, int | None]]) -> None:
    """Write (origin, content, turn) into memory.db; curation would not accept arbitrary words."""
    with closing(sqlite3.connect(folder / "memory.db")) as writer, writer:
        writer.executemany(
            "INSERT INTO learnings (created_at, session_id, type, content, source_observation_id, confidence, "
            "origin) VALUES (1, ?, 'FACT', ?, ?, 0.9, ?)",
            [(SESSION, content, turn, origin) for origin, content, turn in rows],
        )


async def order(turns: Turns, strangers: Sequence[str], queries: Sequence[str], limit: int) -> list[list[str]]:
    """Return each query's learnings of origin `user`, best first; `strangers` is the text of all others, in turn."""
    words = iter(strangers)
    with tempfile.TemporaryDirectory() as folder:
        async with open_stores(Path(folder)) as stores:
            for message, own, origins in turns:
                turn = await stores.turn(message, next(words), calls=[call("WebFetch", next(words))])
                rows = [("user", content, turn) for content in own]
                add_learnings(Path(folder), rows + [(origin, next(words), turn) for origin in origins])
            return [await trusted(stores, query, limit) for query in queries]


async def trusted(stores: Stores, query: str, limit: int = 100) -> list[str]:
    """Return the hits of origin `user`, best first."""
    return [f"L{hit.id}" for hit in (await find(stores, query, limit)).hits if hit.origin == "user"]


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        yield opened


@given(turns=TURNS, data=st.data(), queries=st.lists(TEXT, min_size=1, max_size=4), limit=st.sampled_from([2, 100]))
def test_untrusted_words_keep_order(turns: Turns, data: st.DataObject, queries: list[str], limit: int) -> None:
    number = sum(2 + len(origins) for _, _, origins in turns)
    strangers = st.lists(TEXT, min_size=number, max_size=number)
    one = asyncio.run(order(turns, data.draw(strangers), queries, limit))
    other = asyncio.run(order(turns, data.draw(strangers), queries, limit))
    for first, second in zip(one, other, strict=True):
        # Strangers' hits can leave less room for others, but they cannot change their order.
        assert [hit for hit in first if hit in second] == [hit for hit in second if hit in first]
        assert limit < 100 or len(first) == len(second)


async def test_pages_do_not_make_words_common(stores: Stores) -> None:
    """Untrusted learnings and tool results repeat the rare word of one fact."""
    facts = ["The code of the alarm is 4711", "The alarm rings at seven", "The alarm is loud", "The alarm is new"]
    add_learnings(stores.folder, [("user", fact, None) for fact in facts])
    assert (await trusted(stores, "alarm code"))[0] == "L1"
    for number in range(50):
        turn = await stores.turn("Go on", "Code, code, code", calls=[call("WebFetch", "code")])
        add_learnings(stores.folder, [("web", f"The code of page {number} is a code", turn)])
    assert await trusted(stores, "alarm code") == ["L1", "L4", "L3", "L2"]


async def test_confirmed_learning_becomes_trusted(stores: Stores) -> None:
    """The person says what was known from elsewhere: its words leave the index of strangers' text."""
    await stores.learn('FACT [t] The port is 8080. | "port is 8080"', "Which port?", "The port is 8080.")
    (before,) = await stores.learnings()
    await stores.learn('FACT [t] The port is 8080. | "port is 8080"', "The port is 8080.", "Noted.")
    (after,) = await stores.learnings()
    assert (before.origin, after.origin) == ("none", "user")
    with closing(sqlite3.connect(stores.path("memory.db"))) as reader:
        counts = [
            reader.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH 'port'").fetchone()[0]
            for table in ("learnings_fts", "trusted_fts", "untrusted_fts")
        ]
    assert counts == [1, 1, 0]
