"""search_memory: every query gets an answer, with learnings and turns in one ranked list and its coverage stated."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sprite.agent.tools.memory import describe, memory_tools
from sprite.mcp.shapes import hits_text
from sprite.memory.query import MAX_TERMS, parse_query
from sprite.protocol.shapes import SearchHit
from sprite.search.search import DEFAULT_LIMIT, MAX_LIMIT, SNIPPET_CHARS, Found
from sprite.search.view import MemoryView
from tests.memory_stores import SESSION, Stores, call, find, names, open_stores

DAY = 86_400.0
#: 2026-03-01T00:00:00Z
MARCH = 1_772_323_200.0


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        yield opened


# The query


def test_filters_are_parsed_and_rest_is_query() -> None:
    query = parse_query("invoices type:preference TYPE:Fact since:2026-03-01 before:2026-03-02T12:00 session:abc rules")
    assert query.terms == ("invoices", "rules")
    assert query.types == ("PREFERENCE", "FACT")
    assert (query.since, query.before) == (MARCH, MARCH + 1.5 * DAY)
    assert query.session == "abc"


@pytest.mark.parametrize(("text", "turn"), [("around:31", 31), ("around:t31 please", 31), ("x around:T7", 7)])
def test_around_takes_turn_number(text: str, turn: int) -> None:
    assert parse_query(text).around == turn


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("since:yesterday", ("yesterday",)),
        ("around:noon", ("around", "noon")),
        ("before:2026-99-99", ("2026", "99")),
        ("retype:x", ("retype", "x")),
        ('"quoted words" here', ("quoted", "words")),
        ("a AND b OR NOT c NEAR(d)", ("b", "c", "near", "d")),
        ("content:x* ^y {z} (w) -v +u", ("content", "x", "y", "z", "w", "v", "u")),
        ("who am I", ("who", "am", "i")),
        ("the THE Invoice invoice", ("invoice",)),
        ("", ()),
        ("?!… — 🎉", ()),
        ("日本語 العربية über", ("日本語", "العربية", "über")),
    ],
)
def test_arbitrary_query_becomes_plain_words(text: str, terms: tuple[str, ...]) -> None:
    found = parse_query(text).terms
    assert set(terms) <= set(found)
    assert len(found) <= MAX_TERMS


def test_query_length_is_bounded() -> None:
    query = parse_query(" ".join(f"word{i} type:t{i}" for i in range(50_000)))
    assert len(query.terms) == MAX_TERMS
    assert len(query.types) <= MAX_TERMS
    assert len(str(parse_query("x" * 1_000_000).needles)) < 100


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Stores]]:
    """One memory for all hypothesis examples, on its own event loop."""
    with asyncio.Runner() as runner:
        opened = open_stores(tmp_path_factory.mktemp("shared"))
        stores = runner.run(opened.__aenter__())
        runner.run(stores.learn('FACT [t] 日本語 is fun. | "日本語"', "日本語 العربية 🎉 a AND b"))
        yield runner, stores
        runner.run(opened.__aexit__(None, None, None))


ODD = st.text(st.characters()) | st.text('"*()^:{}+-\\ \x00aNEARORNOT')
PIECES = st.one_of(
    ODD,
    st.builds("{}:{}".format, st.sampled_from(["type", "since", "before", "session", "around", "content"]), ODD),
    st.datetimes().map(lambda d: f"since:{d.isoformat()}"),
    st.integers().map(lambda n: f"around:{n}"),
    st.sampled_from(
        ["AND", "OR", "NOT", "NEAR(a b, 2)", "the of and", "日本語", "العربية", "🎉", '"a b"', "a*", "x " * 5000]
    ),
)


@example(pieces=["session:\ud800", "type:\udfff", "half \ud83d"], limit=1)
@given(pieces=st.lists(PIECES, max_size=5), limit=st.integers())
def test_arbitrary_query_raises_no_error(shared: tuple[asyncio.Runner, Stores], pieces: list[str], limit: int) -> None:
    runner, stores = shared
    found = runner.run(find(stores, " ".join(pieces), limit))
    assert (found.indexed_through, found.waiting) == (1, 0)


@pytest.mark.parametrize("text", ["日本語", "العربية", "AND", '"', "NEAR(", "x " * 5000 + "日本語"])
def test_other_scripts_and_fts_syntax_are_plain_words(text: str, shared: tuple[asyncio.Runner, Stores]) -> None:
    runner, stores = shared
    found = runner.run(find(stores, text))
    assert bool(found.hits) == any(word in text for word in ("日本語", "العربية", "AND"))


# Results


async def test_learning_precedes_turns_in_one_list(stores: Stores) -> None:
    turn = await stores.learn('FACT [t] The invoice format is PDF. | "invoice"', "The invoice format is PDF.")
    longer = "Something about an invoice, in many more words than the others have, as people write"
    other = await stores.turn(longer)
    found = await find(stores, "what is the invoice format?")
    assert names(found) == ["L1", f"T{turn}", f"T{other}"]
    learning, _, raw = found.hits
    assert (learning.type, learning.turn_id, learning.session_id) == ("FACT", turn, SESSION)
    assert (raw.type, raw.turn_id) == ("TURN", other)
    assert raw.text == f"User: {longer}\nAgent: Hi"


async def test_turn_is_searchable_immediately_in_all_fields(stores: Stores) -> None:
    await stores.turn("alpha", "beta", calls=[call("Grep", "gamma delta", {"pattern": "epsilon", "n": [1, "zeta"]})])
    for word in ("alpha", "BETA", "gamma", "epsilon", "zeta", "grep"):
        assert names(await find(stores, word)) == ["T1"]
    assert names(await find(stores, "omega")) == []


async def test_words_match_inflected_and_without_accents(stores: Stores) -> None:
    await stores.turn("She prefers travelling to Malmö")
    for word in ("prefer", "travel", "malmo", "MALMÖ"):
        assert names(await find(stores, word)) == ["T1"]


async def test_equal_hits_rank_newest_first(stores: Stores) -> None:
    for day in range(4):
        await stores.turn("same words", at=MARCH + day * DAY)
    assert names(await find(stores, "same words")) == ["T4", "T3", "T2", "T1"]


@pytest.mark.parametrize("query", ["currency", "currency EUR", "invoices in EUR as the old currency", "EUR EUR"])
async def test_superseded_learning_ranks_below_replacement(query: str, stores: Stores) -> None:
    await stores.learn('FACT [t] The currency of invoices is EUR, the old currency. | "EUR"', "EUR")
    await stores.learn('FACT [t] The main customer is Volvo. | "Volvo"', "Volvo")
    await stores.learn(
        "CORRECTION [t] supersedes L1: For every invoice that is written from now on the currency has to be SEK and no "
        'other one. | "SEK"',
        "SEK",
    )
    await stores.learn('CORRECTION [t] supersedes L3: The written currency is NOK. | "NOK"', "NOK")
    found = await find(stores, query)
    learnings = [name for name in names(found) if name in {"L1", "L3", "L4"}]
    assert "L1" in learnings
    assert learnings == sorted(learnings, reverse=True), "the newest correction first, the replaced learning after it"
    assert {hit.id: hit.superseded_by for hit in found.hits if hit.kind == "learning"}.items() >= {1: 3}.items()


async def test_long_turn_shows_relevant_passage_as_excerpt(stores: Stores) -> None:
    hay = "Nothing of the kind was said. " * 300
    await stores.turn("Write me a page.", f"{hay}The needle is in the drawer. {hay}")
    (hit,) = (await find(stores, "where is the needle?")).hits
    assert "The needle is in the drawer." in hit.text
    assert hit.text.startswith("Agent: …")
    assert hit.text.endswith("…")
    assert len(hit.text) <= SNIPPET_CHARS


async def test_long_word_does_not_lengthen_excerpt(stores: Stores) -> None:
    await stores.turn("needle " + "x" * 10_000)
    (hit,) = (await find(stores, "needle")).hits
    assert hit.text == "User: needle…"


async def test_long_learning_shows_relevant_passage(stores: Stores) -> None:
    hay = "Nothing of the kind was said there, and nobody knows. " * 8
    await stores.learn(f'DIGEST [t] {hay}The needle is in the drawer. {hay}| "needle"', "needle")
    (hit,) = (await find(stores, "where is the needle? type:DIGEST")).hits
    assert "The needle is in the drawer." in hit.text
    assert hit.text.startswith("…Nothing")
    assert 200 <= len(hit.text) <= SNIPPET_CHARS
    assert hit.text in describe(await find(stores, "needle type:DIGEST"))


async def test_excerpt_has_word_that_only_index_stems(stores: Stores) -> None:
    await stores.turn("hay " * 200 + "Their organization is small. " + "hay " * 200)
    (hit,) = (await find(stores, "organize")).hits
    assert "Their organization is small." in hit.text


async def test_around_shows_more_of_target_than_neighbours(stores: Stores) -> None:
    for _ in range(3):
        await stores.turn("Write me a page.", "hay " * 900)
    before, turn, after = (await find(stores, "around:2")).hits
    assert len(turn.text) > 3000
    assert max(len(before.text), len(after.text)) < SNIPPET_CHARS


# Filters


async def test_each_filter_keeps_only_matches(stores: Stores) -> None:
    await stores.transcript.start_session("other")
    await stores.turn("dates one", at=MARCH)
    await stores.turn("dates two", at=MARCH + DAY, session="other")
    await stores.turn("dates three", at=MARCH + 2 * DAY)
    await stores.batch('PREFERENCE [t1] dates short | "dates"\nFACT [t2] dates long | "dates"', 1, 3)
    await stores.projection.settle()
    turns_only = "dates type:TURN "
    assert set(names(await find(stores, "dates"))) == {"L1", "L2", "T1", "T2", "T3"}
    assert names(await find(stores, "dates type:PREFERENCE")) == ["L1"]
    assert set(names(await find(stores, "dates type:preference type:fact"))) == {"L1", "L2"}
    assert set(names(await find(stores, turns_only))) == {"T1", "T2", "T3"}
    assert set(names(await find(stores, "dates type:fact type:turn"))) == {"L2", "T1", "T2", "T3"}
    assert names(await find(stores, "dates type:BANANA")) == []
    assert set(names(await find(stores, turns_only + "since:2026-03-02"))) == {"T2", "T3"}
    assert set(names(await find(stores, turns_only + "before:2026-03-02"))) == {"T1"}
    assert names(await find(stores, turns_only + "since:2026-03-02 before:2026-03-03")) == ["T2"]
    assert set(names(await find(stores, "dates session:other"))) == {"L2", "T2"}
    assert names(await find(stores, "dates session:nobody")) == []


@pytest.mark.parametrize("query", ["type:PREFERENCE", "type:preference since:2026-01-01", " type:PREFERENCE ?"])
async def test_filters_alone_list_newest_first(query: str, stores: Stores) -> None:
    await stores.learn('PREFERENCE [t] dates short | "dates"\nFACT [t] x | "dates"', "dates")
    await stores.learn('PREFERENCE [t] tea | "tea"', "tea")
    assert names(await find(stores, query)) == ["L3", "L1"]


async def test_around_shows_conversation_in_order(stores: Stores) -> None:
    for number in range(1, 21):
        await stores.turn(f"number {number}")
    found = await find(stores, "around:10")
    assert names(found) == [f"T{n}" for n in range(5, 16)]
    assert names(await find(stores, "around:1")) == [f"T{n}" for n in range(1, 7)]
    assert names(await find(stores, "around:999")) == []


async def test_filters_without_matches_are_noted(stores: Stores) -> None:
    await stores.turn("dates are short", at=MARCH)
    note = "No hit passes the filters; without them there are hits."
    for filters in ("session:nobody", "type:banana", "type:FACT since:2027-01-01"):
        assert (await find(stores, f"dates {filters}")).notes == (note,)
    assert (await find(stores, "zeppelin session:nobody")).notes == ()
    assert (await find(stores, "around:99")).notes == ("There is no turn 99.",)
    assert note in describe(await find(stores, "dates session:nobody"))


# Unknown words and dates


async def test_unknown_word_does_not_filter(stores: Stores) -> None:
    for _ in range(3):
        await stores.turn("Please send the invoice to Volvo", "")
    found = await find(stores, "zeppelin invocie Volvo")
    assert (len(found.hits), found.notes) == (3, ())


#: Replaces MAX_POSTINGS, so that fewer turns have to be written.
FEW_POSTINGS = 200


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Stores]]:
    """Log so many turns with one word that the index does not read all of them."""
    with asyncio.Runner() as runner:
        opened = open_stores(tmp_path_factory.mktemp("many"))
        stores = runner.run(opened.__aenter__())

        async def write() -> None:
            for number in range(2 * FEW_POSTINGS + 300):
                await stores.turn(f"Fire the {'kiln' if number % 2 else 'oven'} for the invoice", "")

        runner.run(write())
        yield runner, stores
        runner.run(opened.__aexit__(None, None, None))


@pytest.mark.parametrize(
    "query",
    ["kiln", "the kiln invoce", "invoice xyzzyq", "xyzzyq invoice", "the kiln xyzzyq", "kiln oven", "oven kiln"],
)
def test_frequent_words_do_not_filter(
    query: str, many: tuple[asyncio.Runner, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, stores = many
    for module in ("sprite.log.turn_index", "sprite.search.search"):
        monkeypatch.setattr(f"{module}.MAX_POSTINGS", FEW_POSTINGS)
    assert len(runner.run(find(stores, query)).hits) == DEFAULT_LIMIT


async def test_date_in_question_lifts_its_day(stores: Stores) -> None:
    now = time.time()
    for weeks in (4, 3, 2, 1, 0):
        await stores.turn("The roof is leaking", at=now - weeks * 7 * DAY)
    day = time.strftime("%Y-%m-%d", time.localtime(now - 7 * DAY))
    assert names(await find(stores, f"what did I say about the roof on {day}?"))[0] == "T4"


@pytest.fixture
def summer_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in a time zone with daylight saving time."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("name", "month"), [("January", 1), ("July", 7)])
@pytest.mark.usefixtures("summer_time")
async def test_month_ends_at_local_midnight_all_year(name: str, month: int, stores: Stores) -> None:
    year = time.localtime().tm_year - (month > time.localtime().tm_mon)
    midnight = time.mktime((year, month + 1, 1, 0, 0, 0, 0, 0, -1))
    for minutes in (-30, 30):
        await stores.turn("The roof is leaking", at=midnight + minutes * 60)
    assert names(await find(stores, f"what did I say about the roof in {name}?"))[0] == "T1"


# Bounds and coverage


@pytest.mark.parametrize(("limit", "number"), [(-5, 1), (0, 1), (1, 1), (30, 30), (10**30, MAX_LIMIT)])
async def test_limit_is_clamped_to_one_to_hundred(limit: int, number: int, stores: Stores) -> None:
    for _ in range(MAX_LIMIT + 5):
        await stores.turn("same words")
    assert len((await find(stores, "words", limit)).hits) == number


async def test_coverage_reports_learnings_and_pending_turns(stores: Stores) -> None:
    assert await find(stores, "x") == Found([], 0, 0)
    for _ in range(5):
        await stores.turn()
    assert await find(stores, "x") == Found([], 0, 5)
    await stores.batch("NONE", 1, 3)
    assert await find(stores, "x") == Found([], 3, 2)
    await stores.batch("NONE", 4, 5)
    assert await find(stores, "") == Found([], 5, 0)


# The agent's tool


def test_hit_names_only_known_session() -> None:
    hit = SearchHit("learning", 1, "FACT", MARCH, None, None, "Ada lives in Bern.", origin="user")
    assert hits_text([hit], [], 1, 0).startswith("- [L1 FACT, 2026-03-01] Ada lives in Bern.")


async def test_tool_reports_hits_and_coverage(stores: Stores) -> None:
    await stores.learn('PREFERENCE [t] Dates are DD/MM. | "DD/MM"', "dates DD/MM", "All right, long ones go", at=MARCH)
    await stores.learn('FACT [t] Dates are ISO. | "ISO"', "x", calls=[call("WebFetch", "ISO dates")])
    await stores.turn("nothing yet")
    (tool,) = memory_tools(MemoryView(stores.transcript, stores.memory, stores.files), lambda _: None)
    answer = await tool.handler({"query": "long dates"})
    text = answer["content"][0]["text"]
    assert "PREFERENCE" in text
    assert f"turn 1, session {SESSION}] Dates are DD/MM." in text
    assert "(origin: web, not the person's words) Dates are ISO." in text
    assert re.search(rf"\[turn 1, 2026-03-01, session {SESSION}\] User: dates DD/MM", text)
    assert text.endswith("Learnings exist up to turn 2; 1 newer turn(s) are not curated yet.")
    assert not answer["is_error"]


@pytest.mark.parametrize("arguments", [{}, {"query": None}, {"query": 5, "limit": "many"}, {"query": "x", "limit": []}])
async def test_tool_accepts_arbitrary_arguments(arguments: dict[str, object], stores: Stores) -> None:
    (tool,) = memory_tools(MemoryView(stores.transcript, stores.memory, stores.files), lambda _: None)
    answer = await tool.handler(arguments)
    assert answer["content"][0]["text"] == describe(Found([], 0, 0))
