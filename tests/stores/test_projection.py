"""Projection from curations to memory.db and the four files: permitted effects, crash safety and manual edits.

The file is long because every rule of the fold uses the same few stores.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVarTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprite.curation.decide import BatchFold
from sprite.curation.rebuild import reapply
from sprite.errors import PeerError
from sprite.log.curations import NOT_LOGGED, Curation, LostCall
from sprite.memory.files import BYTE_LIMIT, CURATED, LINE_LIMITS, template
from sprite.storage.connection import Database
from tests.looks import dump, eventually
from tests.memory_stores import Stores, added, call, noted, open_stores, rebuilt

_Ts = TypeVarTuple("_Ts")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.projection.settle()
        yield opened


def update(name: str, content: str) -> str:
    return f"{name.removesuffix('.md').upper()}_MD_UPDATE:\n{content}"


# A batch


async def test_batch_yields_learnings_actions_and_files(stores: Stores) -> None:
    turn = await stores.turn("My name is Ada. Remind me to call Bo.", "I will, Ada.")
    curation = await stores.batch(
        f'FACT [t{turn}] The person is called Ada. | "My name is Ada"\n'
        f'ACTION [t{turn}] Call Bo. | "Remind me to call Bo"\n'
        + added("user.md", "My name is Ada", turn=turn)
        + added("context.md", "Remind me to call Bo", turn=turn),
        turn,
    )
    (change,) = await stores.projection.settle()
    assert (change.curation_id, change.files, change.learnings) == (curation, ["user.md", "context.md"], [1, 2])
    fact, action = await stores.learnings()
    assert (fact.type, fact.content, fact.source_observation_id, fact.curation_id) == (
        "FACT",
        "The person is called Ada.",
        turn,
        curation,
    )
    assert (fact.origin, fact.evidence, fact.superseded_by, fact.seen) == ("user", "My name is Ada", None, 1)
    (open_action,) = await stores.memory.actions("open")
    assert (open_action.content, open_action.source_learning_id) == ("Call Bo.", action.id)
    assert stores.path("user.md").read_text() == noted("user.md", "My name is Ada")
    assert stores.path("context.md").read_text() == noted("context.md", "Remind me to call Bo")
    assert stores.path("tools.md").read_text() == template("tools.md")
    assert await stores.reports() == []


async def log_batch(stores: Stores, answer: Curation) -> None:
    await stores.projection.log_batch(lambda: stores.judge.decided(answer))


async def test_undecided_answer_is_refused_and_memory_continues(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: BatchFold) -> None:
        raise IndexError("a guard's bug")

    ada, bo = 'FACT [t1] The person is called Ada. | "I am Ada"', 'FACT [t] The dog is called Bo. | "the dog is Bo"'
    turn = await stores.turn("I am Ada")
    answer = await stores.verified(Curation("batch", ada, turn, turn, cost_usd=0.5))
    with monkeypatch.context() as broken:
        broken.setattr(BatchFold, "apply", fail)
        await log_batch(stores, answer)
    refusal = "nothing was taken over, since deciding about it failed: IndexError: a guard's bug"
    assert await stores.reports() == [("undecided", refusal)]
    assert (await stores.learnings(), await stores.transcript.waiting_count()) == ([], 0)
    await stores.learn(bo, "the dog is Bo")
    assert [learning.content for learning in await stores.learnings()] == ["The dog is called Bo."]
    _, (difference,) = await reapply(stores.transcript, stores.folder, lambda: None)
    assert difference.gone == [f"refused (undecided): {refusal}"]
    assert "FACT [t1, user] The person is called Ada." in difference.new


async def test_unlogged_answer_counts_as_failed_call(stores: Stores) -> None:
    turn = await stores.turn("I am Ada")
    log = stores.transcript
    lost = await log.lost_calls.append(LostCall("claude", NOT_LOGGED, {}, 0.5, (turn, turn)))
    assert (await log.spending.total(), (await log.lost_calls.failures([turn], 0))[turn].alone) == (0.5, 1)
    await log_batch(stores, Curation("batch", "", turn, turn, cost_usd=0.5, lost_calls=(lost,)))
    assert (await log.spending.total(), (await log.lost_calls.failures([turn], 0))[turn].alone) == (0.5, 0)
    assert await log.lost_calls.append(LostCall("claude", NOT_LOGGED, {}, 0.5, (turn, turn))) == lost + 1


async def test_exact_repeat_is_counted_once_stored(stores: Stores) -> None:
    for words in ("Dates are DD/MM.", "dates are dd/mm.", "Dates are DD/MM."):
        await stores.learn(f'PREFERENCE [t] {words} | "DD/MM"', "DD/MM please")
    (learning,) = await stores.learnings()
    assert (learning.content, learning.seen) == ("Dates are DD/MM.", 3)
    assert learning.last_seen > learning.created_at


async def test_same_words_with_other_meaning_are_new(stores: Stores) -> None:
    """The same words of another type, or after a correction, are stored."""
    five, six = "The kiln shelf is 5.", "The kiln shelf is 6."
    await stores.learn(f'FACT [t] {five} | "5"', "5")
    await stores.learn(f'PATTERN [t] {five} | "5"', "5")
    await stores.learn(f'CORRECTION [t] supersedes L1: {six} | "6"', "6")
    await stores.learn(f'FACT [t] {five} | "5"', "5 after all")
    assert [(row.id, row.type, row.content, row.superseded_by) for row in await stores.learnings()] == [
        (1, "FACT", five, 3),
        (2, "PATTERN", five, None),
        (3, "CORRECTION", six, None),
        (4, "FACT", five, None),
    ]


@pytest.mark.parametrize(
    ("said_by", "turn", "superseded"),
    [
        ("user", {"user": "It is SEK, not EUR"}, True),
        ("none", {"reply": "It is SEK, not EUR"}, False),
        ("tool", {"calls": [call("Bash", "It is SEK, not EUR")]}, False),
        ("web", {"calls": [call("WebFetch", "It is SEK, not EUR")]}, False),
        ("memory", {"calls": [call("mcp__sprite__search_memory", "It is SEK, not EUR")]}, False),
        ("none", {"user": "Nothing of the kind"}, False),
    ],
)
async def test_learning_is_retired_only_by_persons_words(
    said_by: str, turn: dict[str, Any], superseded: bool, stores: Stores
) -> None:
    await stores.learn('FACT [t] The report currency is EUR. | "EUR"', "EUR")
    await stores.learn('FACT [t] supersedes L1: The report currency is SEK. | "It is SEK, not EUR"', **turn)
    old, *rest = await stores.learnings()
    assert [new.origin for new in rest] == ([] if said_by == "memory" else [said_by])
    new = rest[0] if rest else old
    assert old.superseded_by == (new.id if superseded else None)


@pytest.mark.parametrize("new", ["Call Bo about a kiln shelf.", "The glaze is broken."])
async def test_superseding_tools_word_needs_relation(new: str, stores: Stores) -> None:
    await stores.learn('FACT [t] The kiln shelf is whole. | "shelf is whole"', calls=[call("Bash", "shelf is whole")])
    await stores.learn(f'FACT [t] supersedes L1: {new} | "it broke"', "it broke")
    is_related = "kiln" in new
    assert (await stores.learnings())[0].superseded_by == (2 if is_related else None)
    refusal = ("supersede_refused", "L1 stands: the new learning is not about it: The kiln shelf is whole.")
    assert await stores.reports() == ([] if is_related else [refusal])


async def test_superseded_action_is_done(stores: Stores) -> None:
    await stores.learn('ACTION [t] Call Bo about the kiln. | "call Bo"', "I must call Bo")
    await stores.learn('FACT [t] supersedes L1: The call about the kiln is over. | "called Bo"', "I called Bo")
    (action,) = await stores.memory.actions()
    assert action.status == "done"


async def test_learning_cannot_supersede_or_close_itself(stores: Stores) -> None:
    await stores.learn('ACTION [t] Call Bo. | "call Bo"', "I must call Bo")
    await stores.learn('ACTION [t] supersedes L1: Call Bo. | "call Bo"', "I still must call Bo")
    (learning,) = await stores.learnings()
    (action,) = await stores.memory.actions()
    assert (learning.superseded_by, learning.seen, action.status) == (None, 2, "open")


async def test_learning_superseding_unknown_is_kept(stores: Stores) -> None:
    await stores.learn('FACT [t] supersedes L7, L999999999999999: It is 5. | "5"', "5")
    (learning,) = await stores.learnings()
    assert learning.content == "It is 5."


# On the database's thread


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts the callbacks from other threads."""

    returns = 0

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self.returns += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def test_decision_is_applied_in_one_hop(tmp_path: Path) -> None:
    async def returns_of_one(loop: CountingLoop) -> int:
        async with open_stores(tmp_path) as stores:
            turns = [await stores.turn(f"My heron number {n} matters.") for n in range(1, 21)]
            learned = [f'FACT [t{turn}] Heron {turn} matters. | "matters"' for turn in turns]
            lines = [f'ADD Notes | [t{turn}] - Heron {turn} matters. | "matters"' for turn in turns]
            answer = "\n".join([*learned, "USER_MD_EDIT:", *lines])
            await stores.batch(answer, turns[0], turns[-1])
            (curation,) = await stores.transcript.curations.after(0)
            before = loop.returns
            change = await stores.projection.apply(curation, cursor=curation.id)
            assert (len(change.learnings), change.files) == (20, ["user.md"])
            return loop.returns - before

    loop = CountingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(returns_of_one(loop)) == 1


def is_in_transaction() -> bool:
    """Return whether a thread is at the beginning or end of a transaction, or waits there."""
    name = f"{Database.transact.__qualname__}.<locals>.transaction"
    return any(frame.f_code.co_qualname == name for frame in sys._current_frames().values())


async def test_cancelled_fold_completes_and_is_not_repeated(stores: Stores) -> None:
    turn = await stores.turn("I keep llamas.")
    await stores.batch(f'FACT [t{turn}] The person keeps llamas. | "keep llamas"', turn)
    (curation,) = await stores.transcript.curations.after(0)
    other = sqlite3.connect(stores.path("memory.db"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    applying = asyncio.create_task(stores.projection.apply(curation, cursor=curation.id))
    # It now waits inside SQLite, where no cancellation reaches it.
    await eventually(is_in_transaction, "the fold did not begin")
    applying.cancel()
    settling = asyncio.create_task(stores.projection.settle())
    await asyncio.sleep(0.05)
    other.execute("ROLLBACK")
    other.close()
    assert await settling == []
    assert applying.cancelled()
    assert [(learning.content, learning.seen) for learning in await stores.learnings()] == [
        ("The person keeps llamas.", 1)
    ]


# Evidence

QUOTE = "all dates as DD/MM"


@pytest.mark.parametrize(
    ("turn", "origin", "confidence"),
    [
        ({"user": f"I want {QUOTE}!"}, "user", 0.9),
        ({"user": "I want ALL   dates\nas dd/mm"}, "user", 0.9),
        ({"user": "Hello", "reply": f"So: {QUOTE}"}, "none", 0.1),
        ({"calls": [call("Write", "ok", {"content": f"x {QUOTE} x"})]}, "assistant", 0.6),
        ({"calls": [call("Bash", f"readme: {QUOTE}")]}, "tool", 0.6),
        ({"calls": [call("WebSearch", f"page: {QUOTE}")]}, "web", 0.6),
        ({"trigger": "task", "user": "", "notice": f"agent: {QUOTE}"}, "tool", 0.6),
        ({"user": "Nothing", "reply": "of the kind"}, "none", 0.1),
    ],
)
async def test_quote_speaker_determines_trust(
    turn: dict[str, Any], origin: str, confidence: float, stores: Stores
) -> None:
    await stores.learn(f'FACT [t] Dates are DD/MM. | "{QUOTE}"', **turn)
    (learning,) = await stores.learnings()
    assert (learning.origin, learning.confidence) == (origin, confidence)


async def test_quote_moves_to_its_turn(stores: Stores) -> None:
    await stores.turn(QUOTE)
    await stores.turn("something else")
    await stores.batch(f'FACT [t2] Dates are DD/MM. | "{QUOTE}"', 1, 2)
    await stores.projection.settle()
    (learning,) = await stores.learnings()
    assert (learning.origin, learning.source_observation_id) == ("user", 1)


async def test_turn_outside_batch_cannot_be_cited(stores: Stores) -> None:
    await stores.turn(QUOTE)
    await stores.turn("something else")
    await stores.batch(f'PREFERENCE [t1] Dates are DD/MM. | "{QUOTE}"', 2)
    await stores.projection.settle()
    (learning,) = await stores.learnings()
    assert (learning.type, learning.origin, learning.source_observation_id) == ("FACT", "none", None)


@pytest.mark.parametrize("kind", ["PREFERENCE", "CORRECTION", "ACTION"])
@pytest.mark.parametrize("who", ["reply", "calls"])
async def test_foreign_text_is_never_persons_wish(kind: str, who: str, stores: Stores) -> None:
    turn: dict[str, Any] = {who: [call("WebFetch", QUOTE)] if who == "calls" else QUOTE}
    await stores.learn(f'{kind} [t] Dates are DD/MM. | "{QUOTE}"', **turn)
    (learning,) = await stores.learnings()
    assert learning.type == "FACT"
    assert await stores.memory.actions() == []
    refused = f"a {kind} that the user did not say became a FACT: Dates are DD/MM."
    unproven = "its quote is not in the turn it names: Dates are DD/MM."
    assert await stores.reports() == [("unverified", unproven) if who == "reply" else ("type_lowered", refused)]


# Refusals are reported, and the rest is applied


@pytest.mark.parametrize("name", ["tools.md", "user.md"])
async def test_file_over_line_limit_is_refused_rest_kept(name: str, stores: Stores) -> None:
    other = "user.md" if name != "user.md" else "tools.md"
    room = LINE_LIMITS[name] - len(noted(name).splitlines())
    lines = [f"kiln number {number}" for number in range(room + 1)]
    said = " ".join(lines)
    await stores.learn('FACT [t] The kiln is 5. | "5"\n' + added(name, *lines) + added(other, lines[0]), said)
    assert stores.path(name).read_text() == template(name)
    assert stores.path(other).read_text() == noted(other, lines[0])
    assert len(await stores.learnings()) == 1
    ((kind, detail),) = await stores.reports()
    assert kind == "file_refused"
    assert f"{name} would have {LINE_LIMITS[name] + 1} lines; {LINE_LIMITS[name]} are allowed" in detail
    await stores.learn(added(name, *lines[:-1]), said)
    assert stores.path(name).read_text() == noted(name, *lines[:-1])


async def test_file_of_one_endless_line_is_refused(stores: Stores) -> None:
    line = "kiln " * (BYTE_LIMIT // 5)
    await stores.learn(f'USER_MD_EDIT:\nADD Profile | [t] - {line} | "kiln kiln"', line)
    assert stores.path("user.md").read_text() == template("user.md")
    ((kind, detail),) = await stores.reports()
    assert (kind, "bytes" in detail) == ("file_refused", True)


#: A full file in the script with the most tokens.
FULL = "漢" * (BYTE_LIMIT // 3 - 200)


async def test_oversized_answer_is_refused_unless_it_shortens(stores: Stores) -> None:
    for name in CURATED:
        answer = f'{name.removesuffix(".md").upper()}_MD_EDIT:\nADD Notes | [t] - {FULL} | "漢漢"'
        await stores.learn(answer, FULL)
    written = [name for name in CURATED if FULL in stores.path(name).read_text()]
    assert len(written) == 2
    assert {detail.partition(":")[0] for _, detail in await stores.reports()} == set(CURATED) - set(written)
    assert all("four curated files would have about" in detail for _, detail in await stores.reports())
    with pytest.raises(PeerError, match="tokens together") as refused:
        await stores.projection.edit("context.md", FULL)
    assert refused.value.code == "over_limit"


async def test_late_curation_does_not_retract_newer_learning(stores: Stores) -> None:
    early = await stores.turn("I live in Lund.")
    newer = await stores.turn("I live in Rome now.")
    await stores.transcript.quarantine.set_aside(early, "refused", 0)
    await stores.batch(f'FACT [t{newer}] The user lives in Rome. | "I live in Rome"', newer)
    await stores.projection.settle()
    assert await stores.transcript.waiting(10) == []
    assert await stores.transcript.quarantine.retry(early, 0)
    await stores.batch(f'FACT [t{early}] supersedes L1: The user lives in Lund. | "I live in Lund"', early)
    await stores.projection.settle()
    assert [row.superseded_by for row in await stores.learnings()] == [None, None]
    refusal = "L1 stands: it was learned from a newer turn: The user lives in Rome."
    assert ("supersede_refused", refusal) in await stores.reports()


async def test_batch_contains_only_its_turns(stores: Stores) -> None:
    turns = [await stores.turn(f"turn {n}") for n in range(5)]
    await stores.transcript.quarantine.set_aside(turns[2], "cut off", 0)
    assert [turn.id for turn in await stores.transcript.waiting(10)] == turns[:2]
    with pytest.raises(ValueError, match="already curated"):
        await stores.batch("NONE", turns[0], turns[4])
    await stores.batch("NONE", turns[0], turns[1])
    assert [turn.id for turn in await stores.transcript.waiting(10)] == turns[3:]
    assert [aside.turn_id for aside in await stores.transcript.quarantine.turns(10)] == [turns[2]]
    with pytest.raises(ValueError, match="does not wait"):
        await stores.transcript.quarantine.set_aside(turns[2], "cut off", 0)
    assert len(await stores.transcript.curations.after(0)) == 2
    assert not await stores.transcript.quarantine.retry(turns[0], 0)


async def test_unparsed_lines_are_reported(stores: Stores) -> None:
    await stores.learn('Here is what I found:\nFACT [t] It is 5. | "5"', "5")
    assert await stores.reports() == [("unparsed", "Here is what I found:")]
    assert len(await stores.learnings()) == 1


@pytest.mark.parametrize(
    "response",
    [
        "no json",
        "",
        "[]",
        "null",
        "5",
        '"action_id"',
        "{}",
        '{"name": "user.md"}',
        '{"name": "soul.md", "content": "I obey everyone."}',
        '{"name": "../../evil.md", "content": "x"}',
        '{"name": "user.md", "content": "\\ud800"}',
        '{"action_id": 1, "status": "burnt"}',
        '{"action_id": "one", "status": "done"}',
        '{"action_id": 1e999, "status": "done"}',
        '{"action_id": 99999999999999999999999, "status": "done"}',
        '{"action_id": null, "status": "done"}',
    ],
)
async def test_damaged_edit_is_reported_and_skipped(response: str, stores: Stores) -> None:
    before = {name: stores.path(name).read_text() for name in LINE_LIMITS}
    await stores.learn('ACTION [t] Call Bo. | "Bo"', "Bo")
    damaged = await stores.log(Curation("edit", response))
    await stores.learn('FACT [t] It is 5. | "5"', "5")
    assert [learning.content for learning in await stores.learnings()] == ["Call Bo.", "It is 5."]
    assert [(r.curation_id, r.kind) for r in await stores.memory.reports()] == [(damaged, "damaged")]
    assert {name: stores.path(name).read_text() for name in LINE_LIMITS} == before
    assert [action.status for action in await stores.memory.actions()] == ["open"]


async def test_curation_of_unknown_kind_is_reported_and_skipped(stores: Stores) -> None:
    later: Any = "a kind of a later version"
    await stores.log(Curation(later, "{}"))
    await stores.learn('FACT [t] It is 5. | "5"', "5")
    assert len(await stores.learnings()) == 1
    assert [kind for kind, _ in await stores.reports()] == ["unknown_kind"]


# The person's changes


async def test_persons_edit_is_logged_applied_and_written(stores: Stores) -> None:
    (change,) = await stores.projection.edit("user.md", "# User\n\n- Ada\n")
    assert change.files == ["user.md"]
    assert stores.path("user.md").read_text() == "# User\n\n- Ada\n"
    latest = await stores.memory.latest_version("user.md")
    assert latest is not None
    assert (latest.version, latest.source, latest.curation_id) == (1, "person", change.curation_id)


@pytest.mark.parametrize("name", ["soul.md", "os.md", "evil.md", "../user.md", ""])
async def test_only_curated_files_can_be_edited(name: str, stores: Stores) -> None:
    before = stores.path("soul.md").read_text()
    with pytest.raises(PeerError, match="cannot be edited"):
        await stores.projection.edit(name, "x")
    assert await stores.transcript.curations.after(0) == []
    assert stores.path("soul.md").read_text() == before


async def test_edit_over_limits_is_refused_and_unlogged(stores: Stores) -> None:
    for content in ("- x\n" * 201, "x" * (BYTE_LIMIT + 1)):
        with pytest.raises(PeerError, match="Not saved") as refused:
            await stores.projection.edit("user.md", content)
        assert refused.value.code == "over_limit"
    assert await stores.transcript.curations.after(0) == []


async def test_person_closes_and_reopens_action(stores: Stores) -> None:
    await stores.learn('ACTION [t] Call Bo. | "Bo"', "Bo")
    for status in ("done", "open", "dismissed"):
        await stores.actions.resolve(1, status, by="person")
        (action,) = await stores.memory.actions()
        assert action.status == status
    for action_id, status, words in ((1, "burnt", "open, done"), (9, "done", "no action 9")):
        with pytest.raises(PeerError, match=words):
            await stores.actions.resolve(action_id, status, by="person")


# Manual edits


async def test_manual_edit_is_logged_once_and_kept(stores: Stores) -> None:
    await stores.note("user.md", "By the curator")
    stores.path("user.md").write_text("# By hand\n")
    (change,) = await stores.projection.settle()
    assert change.files == ["user.md"]
    assert await stores.projection.settle() == []
    assert stores.path("user.md").read_text() == "# By hand\n"
    assert [(v.version, v.source, v.content) for v in await stores.memory.versions("user.md")] == [
        (1, "curator", noted("user.md", "By the curator")),
        (2, "person", "# By hand\n"),
    ]
    logged = (await stores.transcript.curations.after(0))[-1]
    assert (logged.kind, json.loads(logged.response)) == (
        "edit",
        {"name": "user.md", "content": "# By hand\n", "source": "disk"},
    )


async def test_manual_edit_of_default_file_is_detected(stores: Stores) -> None:
    stores.path("tools.md").write_text("# Mine\n")
    await stores.projection.settle()
    assert [v.source for v in await stores.memory.versions("tools.md")] == ["person"]


async def test_manual_revert_to_older_version_is_detected(stores: Stores) -> None:
    await stores.note("user.md", "Kiln one")
    await stores.note("user.md", "Kiln two")
    for content in (noted("user.md", "Kiln one"), template("user.md")):
        stores.path("user.md").write_text(content)
        await stores.projection.settle()
        assert stores.path("user.md").read_text() == content


async def test_manual_edit_during_batch_wins(stores: Stores) -> None:
    await stores.note("user.md", "Kiln before")
    turn = await stores.turn("By the curator")
    await stores.batch(added("user.md", "By the curator", turn=turn), turn)
    stores.path("user.md").write_text("# By hand\n")
    await stores.projection.settle()
    assert stores.path("user.md").read_text() == "# By hand\n"
    assert [v.content for v in await stores.memory.versions("user.md")] == [
        noted("user.md", "Kiln before"),
        noted("user.md", "Kiln before", "By the curator"),
        "# By hand\n",
    ]


@pytest.mark.parametrize("by_hand", [True, False])
async def test_logged_edit_unseen_by_batch_is_not_overwritten(by_hand: bool, stores: Stores) -> None:
    """A curator call takes seconds; its answer must not overwrite an edit saved meanwhile."""
    await stores.note("user.md", "Kiln before")
    turn = await stores.turn("Stale shelf 5, kiln")
    seen = await stores.memory.cursor()
    if by_hand:
        stores.path("user.md").write_text("# The person's\n")
        await stores.projection.settle()
    else:
        await stores.projection.edit("user.md", "# The person's\n")
    answer = (
        f'FACT [t{turn}] Shelf 5. | "5"\n{added("tools.md", "kiln", turn=turn)}USER_MD_UPDATE:\n- [t{turn}] stale shelf'
    )
    await stores.batch(answer, turn, seen_curation_id=seen)
    await stores.projection.settle()
    assert stores.path("user.md").read_text() == "# The person's\n"
    assert stores.path("tools.md").read_text() == noted("tools.md", "kiln"), "an untouched file is updated"
    assert len(await stores.learnings()) == 1
    assert [kind for kind, _ in await stores.reports()] == ["file_refused"]


async def test_batch_aware_of_edit_may_change_file(stores: Stores) -> None:
    await stores.projection.edit("user.md", "# The person's\n")
    turn = await stores.turn("and kilns")
    seen = await stores.memory.cursor()
    answer = f'USER_MD_UPDATE:\n# The person\'s\n\n## Notes\n- [t{turn}] and kilns | "and kilns"'
    await stores.batch(answer, turn, seen_curation_id=seen)
    await stores.projection.settle()
    assert stores.path("user.md").read_text() == "# The person's\n\n## Notes\n- and kilns\n"


async def test_manual_edit_survives_edit_over_wire(stores: Stores) -> None:
    stores.path("user.md").write_text("# By hand\n")
    await stores.projection.edit("user.md", "# Over the wire\n")
    assert stores.path("user.md").read_text() == "# Over the wire\n"
    assert [v.content for v in await stores.memory.versions("user.md")] == ["# By hand\n", "# Over the wire\n"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe broken", b"one\r\ntwo\r\n", b"no newline at the end", b"nul \x00 byte", b"x\n" * 5000],
)
async def test_arbitrary_manual_edit_is_logged_once_unchanged(content: bytes, stores: Stores) -> None:
    await stores.note("user.md", "By the curator")
    stores.path("user.md").write_bytes(content)
    assert len(await stores.projection.settle()) == 1
    assert await stores.projection.settle() == []
    assert stores.path("user.md").read_bytes() == content


@pytest.mark.parametrize("curated", [True, False])
async def test_deleted_file_is_restored(curated: bool, stores: Stores) -> None:
    if curated:
        await stores.note("user.md", "By the curator")
    before = stores.path("user.md").read_text()
    stores.path("user.md").unlink()
    assert await stores.projection.settle() == []
    assert stores.path("user.md").read_text() == before


async def test_deployed_files_are_never_written(stores: Stores) -> None:
    for name in ("soul.md", "os.md"):
        stores.path(name).write_text(f"# {name} of the deployer\n")
    await stores.learn(
        added("soul.md", "I am Ada") + added("os.md", "I am Ada") + added("user.md", "I am Ada"), "I am Ada"
    )
    for name in ("soul.md", "os.md"):
        assert stores.path(name).read_text() == f"# {name} of the deployer\n"
    assert stores.path("user.md").read_text() == noted("user.md", "I am Ada")


# Crashes: each state is constructed as a killed process would leave it


async def test_settle_is_idempotent(stores: Stores) -> None:
    await stores.learn('ACTION [t] Call Bo. | "Bo"\n' + added("user.md", "Call Bo"), "Call Bo")
    before = dump(stores.path("memory.db"))
    assert await stores.projection.settle() == []
    await asyncio.gather(*(stores.projection.settle() for _ in range(5)))
    assert dump(stores.path("memory.db")) == before


Crash = Callable[[Stores], Awaitable[None]]


async def after_the_log(_: Stores) -> None:
    """The curation is in the log, but not in memory.db."""


async def after_the_rows(stores: Stores) -> None:
    """memory.db has the curation, but the file is still the old one."""
    old = stores.path("user.md").read_text()
    mark = (await stores.memory.written()).get("user.md", "")
    await stores.projection.settle()
    stores.path("user.md").write_text(old)
    await stores.memory.mark_written("user.md", mark)


async def after_the_rename(stores: Stores) -> None:
    """The file is new, but not marked as written."""
    mark = (await stores.memory.written()).get("user.md", "")
    await stores.projection.settle()
    await stores.memory.mark_written("user.md", mark)


async def with_a_torn_temporary(stores: Stores) -> None:
    """The new file was only partly written beside the old one."""
    (stores.folder / ".user.md.x1y2z3").write_text("# Us")


@pytest.mark.parametrize("crash", [after_the_log, after_the_rows, after_the_rename, with_a_torn_temporary])
@pytest.mark.parametrize("kind", ["batch", "edit", "disk"])
async def test_crash_at_any_point_is_repaired_at_start(kind: str, crash: Crash, tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.note("user.md", "Kiln before")
        turn = await stores.turn("Kiln after 5")
        before, after = (noted("user.md", *lines) for lines in (["Kiln before"], ["Kiln before", "Kiln after"]))
        if kind == "batch":
            await stores.batch(f'FACT [t{turn}] Shelf 5. | "5"\n' + added("user.md", "Kiln after", turn=turn), turn)
        else:
            source = {"source": "disk"} if kind == "disk" else {}
            await stores.transcript.curations.append_said("edit", {"name": "user.md", "content": after, **source})
        if kind == "disk":
            stores.path("user.md").write_text(after)
        await crash(stores)
        logged = len(await stores.transcript.curations.after(0))
    async with open_stores(tmp_path) as stores:
        await stores.projection.settle()
        assert stores.path("user.md").read_text() == after
        assert len(await stores.learnings()) == (1 if kind == "batch" else 0)
        assert [v.content for v in await stores.memory.versions("user.md")] == [before, after]
        assert len(await stores.transcript.curations.after(0)) == logged, "no runtime write counts as a person's edit"
        settled = dump(tmp_path / "memory.db")
        assert await stores.projection.settle() == []
        assert dump(tmp_path / "memory.db") == settled


async def test_manual_edit_after_crash_is_kept(tmp_path: Path) -> None:
    for crash in (after_the_log, after_the_rows, after_the_rename):
        folder = tmp_path / crash.__name__
        folder.mkdir()
        async with open_stores(folder) as stores:
            await stores.note("user.md", "Kiln before")
            turn = await stores.turn("Kiln after")
            await stores.batch(added("user.md", "Kiln after", turn=turn), turn)
            await crash(stores)
        (folder / "user.md").write_text("# By hand, while nothing ran\n")
        async with open_stores(folder) as stores:
            await stores.projection.settle()
            assert (folder / "user.md").read_text() == "# By hand, while nothing ran\n"


async def test_concurrent_settles_curate_turns_exactly_once(stores: Stores) -> None:
    turns = [await stores.turn(f"number {n}") for n in range(10)]
    for turn in turns:
        await stores.batch(f'FACT [t{turn}] Kiln number {turn - 1}. | "number"', turn)
    await asyncio.gather(*(stores.projection.settle() for _ in range(5)), stores.projection.edit("user.md", "# User\n"))
    assert [learning.source_observation_id for learning in await stores.learnings()] == turns


# Rebuild


WORDS = st.text("abc xyzåß漢😀'\"|[]{}:\\\n`#", min_size=1, max_size=30)
EVENTS = st.one_of(
    st.tuples(
        st.just("learning"),
        st.sampled_from(["FACT", "PATTERN", "CORRECTION", "PREFERENCE", "ACTION", "TOOL_INSTALL"]),
        WORDS,
        st.lists(st.integers(1, 9), max_size=2),
    ),
    st.tuples(st.just("update"), st.sampled_from(CURATED), WORDS),
    st.tuples(st.just("answer"), WORDS),
    st.tuples(st.just("edit"), st.sampled_from(CURATED), WORDS),
    st.tuples(st.just("hand"), st.sampled_from(CURATED), WORDS),
    st.tuples(st.just("resolve"), st.integers(1, 3), st.sampled_from(["done", "dismissed", "open"])),
    st.tuples(st.just("damaged"), WORDS),
    st.tuples(st.just("settle")),
    st.tuples(st.just("restart")),
)


async def live_through(stores: Stores, event: tuple[Any, ...]) -> None:
    match event:
        case ("learning", kind, words, replaced):
            turn = await stores.turn(words)
            ids = f" supersedes {', '.join(f'L{i}' for i in replaced)}:" if replaced else ""
            await stores.batch(f'{kind} [t{turn}]{ids} {words} | "{words}"', turn)
        case ("update", name, words):
            turn = await stores.turn(words)
            await stores.batch(added(name, words, turn=turn) if "b" in words else update(name, words), turn)
        case ("answer", words):
            await stores.batch(words, await stores.turn(words))
        case ("edit", name, words):
            await stores.projection.edit(name, words)
        case ("hand", name, words):
            stores.path(name).write_text(words)
            await stores.projection.settle()
        case ("resolve", action_id, status):
            with contextlib.suppress(PeerError):
                await stores.actions.resolve(action_id, status, by="person")
        case ("damaged", words):
            await stores.log(Curation("edit", words))
        case _:
            await stores.projection.settle()


@settings(max_examples=settings().max_examples // 4)
@given(st.lists(EVENTS, max_size=12), st.booleans())
async def test_rebuild_is_byte_identical_to_live_memory(events: list[tuple[Any, ...]], without_files: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(2):
            async with open_stores(folder) as stores:
                await stores.projection.settle()
                for event in events:
                    await live_through(stores, event)
                await stores.projection.settle()
        live = dump(folder / "memory.db")
        written = {name: (folder / name).read_bytes() for name in CURATED}
        again = await rebuilt(folder, without_files=without_files)
        assert {name: (folder / name).read_bytes() for name in CURATED} == written
        if without_files:
            # An untouched file is recreated from its template; its mark is not part of memory.
            again, live = {**again, "written_files": []}, {**live, "written_files": []}
        assert again == live
