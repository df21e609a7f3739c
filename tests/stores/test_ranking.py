"""Search ranking: neighbours, speakers, dates, word forms, and learnings beside the turns that they cite."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from sprite.log.transcript import read_transcript
from sprite.log.turn_index import MAX_POSTINGS
from sprite.memory.database import read_memory
from sprite.memory.query import forms, own_names, parse_query
from sprite.search.search import search
from sprite.search.view import MemoryView
from sprite.storage.full_text import any_of, spaced
from tests.memory_stores import SESSION, Stores, call, find, names, open_stores

#: 2023-05-08T12:00:00Z
MAY_8 = 1_683_547_200.0
SMALL_TALK = ("What a day.", "Lovely weather again.", "The train was late.", "Lunch was fine.", "Nothing new here.")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        yield opened


async def small_talk(stores: Stores, turns: int = 5) -> None:
    for number in range(turns):
        await stores.turn(SMALL_TALK[number % len(SMALL_TALK)], "I see.")


# Turns and their neighbours


async def test_turn_is_found_by_preceding_words(stores: Stores) -> None:
    await small_talk(stores)
    asked = await stores.turn("Where did you buy that pendant?", "")
    answer = await stores.turn("It was in Paris, a year ago.", "")
    await small_talk(stores)
    other = await stores.turn("I would never buy that.", "")
    await small_talk(stores)
    found = names(await find(stores, "pendant bought where Paris shop"))
    assert found.index(f"T{answer}") < found.index(f"T{other}")
    assert {f"T{asked}", f"T{answer}"} == set(found[:2])


async def test_neighbours_belong_to_same_session(stores: Stores) -> None:
    await stores.transcript.start_session("other")
    await stores.turn("The pendant has a bird engraved on it", "")
    stranger = await stores.turn("Fine.", "", session="other")
    await stores.turn("It is silver.", "")
    assert f"T{stranger}" not in names(await find(stores, "pendant with engraved bird"))


async def test_short_query_finds_only_literal_matches(stores: Stores) -> None:
    await small_talk(stores)
    turn = await stores.turn("Oolong it is.", "")
    await small_talk(stores)
    assert names(await find(stores, "oolong")) == [f"T{turn}"]
    assert names(await find(stores, "oolong tea")) == [f"T{turn}"]


@pytest.mark.parametrize("form", ["{}: {}", "**{}:** {}", "[8 May 2023, 1:56 pm] {}: {}", "{} (at home): {}"])
async def test_named_speaker_ranks_first(form: str, stores: Stores) -> None:
    for speaker in ("Gina", "Jon", "Gina", "Jon", "Gina", "Jon"):
        await stores.turn(form.format(speaker, "I love to dance on the beach."), "")
        await small_talk(stores, 15)
    jon = names(await find(stores, "What does Jon love to dance to?"))
    gina = names(await find(stores, "What does Gina love to dance to?"))
    assert set(jon[:3]) == {"T17", "T49", "T81"}
    assert set(gina[:3]) == {"T1", "T33", "T65"}


@pytest.mark.parametrize("query", ["what did we do on 8 May 2023?", "what did we do on May 8th, 2023?"])
async def test_turn_is_found_by_implicit_date(query: str, stores: Stores) -> None:
    for day in range(-3, 4):
        await stores.turn(f"Meeting number {day + 100}", "", at=MAY_8 + day * 86_400)
    assert names(await find(stores, query))[0] == "T4"


@pytest.mark.parametrize(
    ("word", "other"),
    [("buy", "bought"), ("buying", "bought"), ("making", "made"), ("running", "ran"), ("mother", "mom"), ("8", "8th")],
)
async def test_irregular_word_form_is_found(word: str, other: str, stores: Stores) -> None:
    assert other in forms(word)
    turn = await stores.turn(f"something {other} something", "")
    assert names(await find(stores, word)) == [f"T{turn}"]


def test_most_words_have_no_irregular_forms() -> None:
    assert [forms(word) for word in ("invoice", "s", "ing", "2023", "٣", "x" * 64)] == [()] * 6


async def test_speech_outranks_tool_output(stores: Stores) -> None:
    await stores.turn("Look around", "Done", calls=[call("Read", "an oolong manual")])
    await small_talk(stores, 15)
    said = await stores.turn("I like oolong", "Noted")
    assert names(await find(stores, "oolong")) == [f"T{said}", "T1"]


async def test_project_name_does_not_beat_text(stores: Stores) -> None:
    """The paths in all of the project's tool calls contain its name, which somebody said only once."""
    for number in range(60):
        path = {"file_path": f"/home/ana/atlas/src/m{number}.py"}
        await stores.turn(f"Fix test {number}", "Done", calls=[call("Read", "ok", path)], project="/home/ana/atlas")
    said = await stores.turn("Let us begin with atlas now", "Fine")
    await small_talk(stores, 15)
    wanted = []
    for number in range(8):
        wanted.append(await stores.turn(f"Question {number}: how does staging differ from other servers?", ""))
        await small_talk(stores)
    found = names(await find(stores, "atlas staging", limit=10))
    assert found[0] == f"T{said}"
    assert {f"T{turn}" for turn in wanted} < set(found)


async def test_memory_output_is_not_found(stores: Stores) -> None:
    await stores.turn("What do I drink?", "I do not know", calls=[call("mcp__sprite__search_memory", "oolong")])
    assert names(await find(stores, "oolong")) == []


async def test_chinese_and_japanese_need_no_spaces(stores: Stores) -> None:
    await stores.learn('FACT [t] 用户喜欢喝乌龙茶。 | "乌龙茶"', "我最喜欢喝乌龙茶,不喜欢咖啡。")
    await stores.turn("東京の天気はどうですか", "晴れです")
    assert names(await find(stores, "乌龙茶")) == ["L1", "T1"]
    assert names(await find(stores, "乌龙茶 type:TURN")) == ["T1"]
    assert {"L1", "T1"} <= set(names(await find(stores, "我喜欢喝什么茶?")))
    assert names(await find(stores, "天気")) == ["T2"]
    assert names(await find(stores, "寿司")) == []
    assert spaced("a喝茶b, c") == "a 喝 茶 b, c"


# Two fields, each with its own length


async def test_term_frequencies_per_field_are_exact(stores: Stores) -> None:
    await stores.turn("tea, teas; buy", "bought tea " * 700, calls=[call("Read", "tea " * 50)])
    await stores.turn("coffee", "the tea of May", at=MAY_8)
    for number in range(20):
        await stores.turn("tea" if number % 2 else "hay", "tea tea")
    needles = [('"tea"',), ('"buy"', '"bought"'), ('"may"',), ('"zeppelin"',)]
    counts = await stores.transcript.ask(lambda look: look.counts(needles, [0] * 4, {1, 2, 3, 4}))
    assert counts == [{1: (2, 700), 2: (0, 1), 3: (0, 2), 4: (1, 2)}, {1: (1, 700)}, {2: (0, 1)}, {}]


async def test_persons_text_outranks_page_mention(stores: Stores) -> None:
    hay = "Nothing of the kind was ever said here. " * 60
    said = await stores.turn("My landlord raises the rent in spring", "Noted.")
    for _ in range(6):
        await stores.turn("Write me a page.", f"{hay} The landlord and his rent, the rent and the landlord. {hay}")
    assert names(await find(stores, "what does the landlord do about the rent?"))[0] == f"T{said}"


async def test_frequent_reply_word_does_not_hide_rare_speech(stores: Stores) -> None:
    said = await stores.turn("Which invoice plan do I want?", "")
    with closing(sqlite3.connect(stores.path("transcript.db"))) as writer, writer:
        writer.executemany(
            "INSERT INTO observations (timestamp, session_id, sequence_num, user_message, tool_calls_json, "
            "agent_response, processed, outcome) VALUES (?, ?, ?, 'go on', '[]', 'one invoice, another plan', 0, "
            "'complete')",
            [(MAY_8, SESSION, number) for number in range(10, 10 + MAX_POSTINGS + 50)],
        )
    assert f"T{said}" in names(await find(stores, "invoice plan wanted"))


def test_question_words_and_contraction_parts_are_ignored() -> None:
    query = parse_query("Don't you've Ada's list, as I'd mentioned?")
    assert query.terms == ("ada", "list", "mentioned")
    assert query.asking == [False, True, True]


@pytest.mark.parametrize("asker", ["the user", "Noor", "Haddad"])
async def test_owners_name_in_query_has_low_weight(asker: str, stores: Stores) -> None:
    stores.files.write("user.md", "# User\n\n## Profile\n- The user is Noor Haddad, backend developer in Rotterdam.\n")
    allergy = await stores.turn("An allergy to nuts", "")
    await small_talk(stores, 15)
    who = await stores.turn("user noor haddad", "")
    await small_talk(stores, 15)
    view = MemoryView(stores.transcript, stores.memory, stores.files)
    found = names(await view.search(f"{asker}: allergy"))
    assert found[:2] == [f"T{allergy}", f"T{who}"]


@pytest.mark.parametrize(
    ("profile", "own"),
    [
        ("- The user's name is Ana Lindqvist; she runs a pottery.", {"ana", "lindqvist"}),
        ("- The user is Noor Haddad, backend developer", {"noor", "haddad"}),
        ("- The user\u2019s first name is \u00c5sa.", {"\u00e5sa"}),
        ("Name: Bo Ek\n- The dog's name is Rex.", {"bo", "ek"}),
        ("- The user is Dutch. The user is a CTO.", set()),
        ("", set()),
    ],
)
def test_persons_name_comes_from_their_file(profile: str, own: set[str]) -> None:
    assert own_names(profile) == own


def test_long_unspaced_question_is_searched_completely() -> None:
    question = "".join(chr(0x4E00 + number) for number in range(60))
    assert len(parse_query(question).needles) == 59


# Any writer


async def test_external_rows_are_searchable_and_read_only(stores: Stores) -> None:
    odd_calls = (
        '[{"name": "Grep", "input": {"pattern": "gamma", "n": 7}, "result": ["delta"]}, "odd", 5]',
        '[{"name": "Half a pair", "result": "zeta \\ud83d"}]',
        "{}",
        "null",
    )
    with closing(sqlite3.connect(stores.path("transcript.db"))) as writer, writer:
        writer.executemany(
            "INSERT INTO observations (timestamp, session_id, sequence_num, user_message, tool_calls_json, "
            "agent_response, processed, outcome) VALUES (?, ?, ?, 'alpha', ?, 'beta', 0, 'complete')",
            [(MAY_8, SESSION, number, calls) for number, calls in enumerate(odd_calls)],
        )
    with closing(sqlite3.connect(stores.path("memory.db"))) as writer, writer:
        writer.execute(
            "INSERT INTO learnings (created_at, session_id, type, content, source_observation_id, confidence) "
            "VALUES (1, ?, 'FACT', 'epsilon', 2, 0.9)",
            (SESSION,),
        )
    async with read_transcript(stores.path("transcript.db")) as log, read_memory(stores.path("memory.db")) as memory:
        for word, hits in (("gamma", ["T1"]), ("delta", ["T1"]), ("7", ["T1"]), ("zeta", ["T2"])):
            assert names(await search(log, memory, word)) == hits
        assert names(await search(log, memory, "beta")) == ["T4", "T3", "T2", "T1"]
        assert names(await search(log, memory, "epsilon"))[0] == "L1"


# Learnings and turns in one list


async def test_learning_lifts_cited_turn_by_missing_words(stores: Stores) -> None:
    """The learning has words that its turn lacks."""
    for _ in range(3):
        await stores.turn("Green is what we painted the house, I think", "")
        await small_talk(stores, 15)
    before = names(await find(stores, "colour of the house type:TURN"))
    assert before[0] == "T33"
    await stores.batch('FACT [t17] Their house has the colour green. | "Green"', 17)
    await stores.projection.settle()
    assert names(await find(stores, "colour of the house type:TURN"))[0] == "T17"
    assert names(await find(stores, "colour of the house"))[:2] == ["L1", "T17"]


async def test_redundant_learning_does_not_displace_turn(stores: Stores) -> None:
    await stores.learn('FACT [t] The house is green. | "house"', "The green house was painted in the spring")
    await small_talk(stores, 15)
    other = await stores.turn("The green house was painted in the spring")
    await small_talk(stores, 15)
    assert names(await find(stores, "painted a green house in spring", limit=1)) == [f"T{other}"]


async def test_full_result_list_shows_each_turn_once(stores: Stores) -> None:
    for number in range(6):
        await stores.learn(f'FACT [t] Tea of kind {number}. | "tea"', f"tea {number} with milk")
    everything = names(await find(stores, "tea milk", limit=12))
    assert len(everything) == 12
    first = [hit.turn_id for hit in (await find(stores, "tea milk", limit=6)).hits]
    assert sorted(turn or 0 for turn in first) == [1, 2, 3, 4, 5, 6]


async def test_correction_is_found_by_words_of_mistake(stores: Stores) -> None:
    """An edit of a file shows that they are about the same."""
    line = "USER_MD_EDIT:\nADD Profile | - The favourite colour is blue."
    await stores.learn(f'FACT [t] The favourite colour is blue. | "blue"\n{line}', "blue")
    line = 'USER_MD_EDIT:\nREPLACE "- The favourite" | - Prefers green by now.'
    await stores.learn(f'CORRECTION [t] supersedes L1: Prefers green by now. | "green"\n{line}', "green")
    found = [name for name in names(await find(stores, "favourite colour")) if name.startswith("L")]
    assert found == ["L2", "L1"]


async def test_unverified_learning_ranks_lower(stores: Stores) -> None:
    await stores.learn('FACT [t] The code of the door is 4711. | "4711"', "The code is 4711")
    await stores.learn('FACT [t] The code of the door is 1234. | "never said"', "No idea")
    assert [name for name in names(await find(stores, "code of the door")) if name.startswith("L")] == ["L1", "L2"]


async def test_learning_is_not_found_by_type_name(stores: Stores) -> None:
    await stores.learn('PREFERENCE [t] Dates are short. | "short"', "short")
    for word in ("preference", "preferences", "prefers"):
        assert names(await find(stores, word)) == []


# Around a turn


async def test_around_shows_own_session_in_order(stores: Stores) -> None:
    await stores.transcript.start_session("other")
    for number in range(1, 13):
        await stores.turn(f"number {number}", session="other" if number % 2 else SESSION)
    assert names(await find(stores, "around:6")) == ["T2", "T4", "T6", "T8", "T10", "T12"]


# The index itself


def test_question_is_searched_word_by_word() -> None:
    assert parse_query("What did I buy?").needles == [('"buy"', '"bought"')]
    assert parse_query("我喜欢 tea").needles[:2] == [('"我 喜"',), ('"喜 欢"',)]
    assert any_of(['"a"', '"b"']) == '("a" OR "b")'
