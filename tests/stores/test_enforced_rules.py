"""Rules about tool calls in the log and memory: offers, the person's word, rebuild, re-extraction and forgetting."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import msgspec
import pytest
from claude_agent_sdk import HookContext
from claude_agent_sdk.types import HookInput

from bridge.config import Settings as BridgeSettings
from bridge.replicas.archive import archive_of
from bridge.replicas.sealed_store import open_store
from sprite.agent.memory_events import MemoryEvents
from sprite.agent.options import guarding
from sprite.agent.permissions import Call, PermissionBroker, StandingRules
from sprite.agent.rules import MOST_RULES, RuleDesk, review, row_of
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.labels.outside import OutsideFiles
from sprite.labels.session import SessionLabel
from sprite.log.curations import Curation
from sprite.memory.rule_rows import Event, Offer, all_rules
from sprite.protocol.shapes import RuleRow
from sprite.sandbox.guard import Guard
from sprite.search.view import MemoryView
from sprite.workspace.database import open_workspace
from sprite.workspace.feed import Feed
from tests.curated_workspace import files_containing
from tests.looks import dump
from tests.memory_stores import Stores, call, forget_in, open_stores, rebuilt
from tests.rule_attempts import attempts
from tests.shipping_by_hand import ship
from tests.stores.test_archive import exported, imported, opened

SAID = "never commit to main, always a branch of its own"
RULE = 'stop when command "git commit" and branch "main": Commits go to a branch of their own, never to main.'
COMMIT = "git checkout -b main; git commit"
TAUGHT = (
    'CORRECTION [t] Commits go to a branch of their own, never to main. | "never commit to main"\n'
    f'RULE [t] {RULE} | "never commit to main"'
)


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    (tmp_path / ".os/run").mkdir()
    async with open_stores(folder) as opened:
        await opened.projection.settle()
        yield opened


@asynccontextmanager
async def desk_of(stores: Stores) -> AsyncIterator[RuleDesk]:
    """Open the rules of these stores, as `server.py` does."""
    async with open_workspace(stores.folder.parent / "workspace.db") as workspace:
        feed = Feed(workspace, await workspace.last_seq())
        view = MemoryView(stores.transcript, stores.memory, stores.files, None, None)
        announce = MemoryEvents(feed, stores.memory, view, lambda: None)
        async with feed.running(lambda: None):
            label = SessionLabel(
                Settings(stores.folder), stores.transcript, OutsideFiles(workspace.file_changes, stores.folder)
            )
            desk = PermissionBroker(feed, StandingRules(stores.folder), label)
            rules = RuleDesk(stores.transcript, stores.memory, stores.projection, feed, desk, announce)
            await rules.load()
            yield rules


async def taught(stores: Stores, desk: RuleDesk, answer: str = TAUGHT, said: str = SAID, **more: Any) -> int:
    """Curate a turn, and let its rules be offered; return the turn's id."""
    turn = await stores.turn(said, "Understood.", **more)
    await stores.batch(answer.replace("[t]", f"[t{turn}]"), turn)
    for change in await stores.projection.settle():
        await desk.heard(change)
    return turn


async def rules_in(stores: Stores) -> list[RuleRow]:
    return await all_rules(stores.memory)


async def use(desk: RuleDesk, command: str) -> str | None:
    asked = Call("Bash", {"command": command}, Path("/"), "t1")
    return await desk.refusal(asked, "m1", of_background=False, waits=False)


async def test_correction_offers_rule_with_past_calls(stores: Stores) -> None:
    commit = {"command": "git checkout -q main && git commit -m fix"}
    await stores.turn("Commit this to main", calls=[call("Bash", "ok", commit), call("Bash", "", {"command": "ls"})])
    await stores.turn("Go on", calls=[call("Bash", "ok", {"command": "git commit -m more"})])
    await stores.turn("Go on", calls=[call("Bash", "ok", {"command": "git switch -qc own && git commit -m more"})])
    async with desk_of(stores) as desk:
        turn = await taught(stores, desk)
        (rule,) = await rules_in(stores)
        assert (rule.status, rule.turn, rule.quote) == ("offered", turn, "never commit to main")
        assert (rule.words, rule.reason) == tuple(RULE.split(": ", 1))
        # Two of the four calls: a switch to main is not certain to succeed, and the branch is not in the log.
        assert (rule.checked, rule.stops, rule.asked) == (4, 2, 1)
        assert [(each.turn, each.asked, each.certain) for each in rule.examples] == [
            (1, True, False),
            (2, False, False),
        ]
        assert await use(desk, COMMIT) is None
        # It is offered once.
        await taught(stores, desk)
        assert len(await rules_in(stores)) == 1
        (row,) = await stores.memory._db.fetch_all("SELECT condition_json, action, source_learning_id FROM rules")
        assert tuple(row) == ('{"when":{"command":["git commit"],"branch":["main"]},"not":{}}', "stop", 1)


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("Look at the page", {"calls": [call("WebFetch", SAID)]}),
        (f"They wrote: {SAID}", {"pasted": ((12, 12 + len(SAID)),)}),
        (SAID, {"trigger": "program", "asked_by": "planner"}),
    ],
)
async def test_rule_from_strangers_words_is_refused(said: str, more: dict[str, Any], stores: Stores) -> None:
    async with desk_of(stores) as desk:
        await taught(stores, desk, said=said, **more)
        assert await rules_in(stores) == []
        assert [kind for kind, _ in await stores.reports() if kind == "rule_refused"] == ["rule_refused"]


async def test_rule_that_verifier_denies_is_refused(stores: Stores) -> None:
    async with desk_of(stores) as desk:
        turn = await stores.turn(SAID)
        await stores.batch(
            TAUGHT.replace("[t]", f"[t{turn}]"), turn, verify=lambda line: "yes" if "keep" in line else "no"
        )
        for change in await stores.projection.settle():
            await desk.heard(change)
        assert await rules_in(stores) == []


async def test_unreadable_rule_is_reported(stores: Stores) -> None:
    async with desk_of(stores) as desk:
        await taught(stores, desk, TAUGHT.replace("command", "regex"))
        assert await rules_in(stores) == []
        (report,) = [detail for kind, detail in await stores.reports() if kind == "rule_refused"]
        assert "is no condition" in report


async def test_persons_word_decides_about_rule(stores: Stores) -> None:
    async with desk_of(stores) as desk:
        await taught(stores, desk)
        (rule,) = await rules_in(stores)
        for word in ("retire", "override"):
            with pytest.raises(PeerError, match="This rule is offered"):
                await desk.answer(rule.id, word)
        await desk.answer(rule.id, "accept")
        assert await use(desk, COMMIT) is not None
        with pytest.raises(PeerError, match="This rule exists already"):
            await desk.propose(RULE)
        # A changed rule replaces it when it is accepted, not before.
        await desk.propose(RULE.replace('"main"', '"main" or "release/*"'), rule.id)
        (_, changed) = await rules_in(stores)
        assert [each.status for each in await rules_in(stores)] == ["active", "offered"]
        await desk.answer(changed.id, "accept")
        assert [each.status for each in await rules_in(stores)] == ["retired", "active"]
        # Its reason alone may change, too.
        await desk.propose(f"{changed.words}: Branches are free.", changed.id)
        await desk.answer((await rules_in(stores))[-1].id, "accept")
        (active,) = [each for each in await rules_in(stores) if each.status == "active"]
        assert (active.words, active.reason) == (changed.words, "Branches are free.")
        await desk.answer(active.id, "retire")
        assert await use(desk, COMMIT) is None


async def test_later_correction_changes_rule(stores: Stores) -> None:
    async with desk_of(stores) as desk:
        await taught(stores, desk)
        (rule,) = await rules_in(stores)
        await desk.answer(rule.id, "accept")
        later = TAUGHT.replace("CORRECTION [t]", "CORRECTION [t] supersedes L1:").replace("to main", "to trunk")
        await taught(stores, desk, later.replace('"main"', '"trunk"'), "never commit to trunk, not main")
        (_, changed) = await rules_in(stores)
        assert changed.instead_of == rule.id
        await desk.answer(changed.id, "accept")
        assert [each.status for each in await rules_in(stores)] == ["retired", "active"]


async def test_rules_survive_rebuild_and_re_extraction(stores: Stores) -> None:
    async with desk_of(stores) as desk:
        turn = await taught(stores, desk)
        (rule,) = await rules_in(stores)
        await desk.answer(rule.id, "accept")
        assert await use(desk, COMMIT)
        before = dump(stores.folder / "memory.db")
        (active,) = await rules_in(stores)
        assert (active.status, active.uses) == ("active", 1)
        assert await rebuilt(stores.folder, without_files=True) == before
        # Other numbers: the re-extraction learns something else first.
        again = f'FACT [t{turn}] It is late. | "always a branch"\n{TAUGHT.replace("[t]", f"[t{turn}]")}'
        await stores.extract_again(1, (again, turn, turn))
        await stores.projection.settle()
        assert await rules_in(stores) == [active]
        (row,) = await stores.memory._db.fetch_all("SELECT source_learning_id FROM rules")
        assert row[0] == 2
        assert await rebuilt(stores.folder, without_files=False) == dump(stores.folder / "memory.db")


async def in_every_state(stores: Stores) -> list[RuleRow]:
    """Leave one rule in each state: active, offered, dismissed, retired, replaced, and overridden twice."""
    async with desk_of(stores) as desk:
        await taught(stores, desk)
        texts = [f'stop when command "tool{number}": Not this.' for number in range(5)]
        for text in texts:
            await desk.propose(text)
        of_correction, _, dismissed, retired, replaced, overridden = [row.id for row in await rules_in(stores)]
        await desk.answer(dismissed, "dismiss")
        for each in (of_correction, retired, replaced, overridden):
            await desk.answer(each, "accept")
        await desk.answer(retired, "retire")
        await desk.propose('ask when command "tool3": Ask first.', replaced)
        await desk.answer((await rules_in(stores))[-1].id, "accept")
        for _ in range(2):
            await use(desk, "tool4")
            await desk.answer(overridden, "override")
            assert await use(desk, "tool4") is None
        await use(desk, COMMIT)
        return await rules_in(stores)


@pytest.mark.parametrize("way", ["archive", "replica", "rebuild"])
async def test_rules_survive_in_every_state(way: str, stores: Stores, tmp_path: Path) -> None:
    rules = await in_every_state(stores)
    assert sorted(row.status for row in rules) == ["active"] * 3 + ["dismissed", "offered"] + ["retired"] * 2
    assert [bool(row.doubt) for row in rules] == [False] * 5 + [True, False]
    moved, archive = tmp_path / "moved", tmp_path / "sprite.zip"
    if way == "rebuild":
        await rebuilt(stores.folder, without_files=True)
        moved = tmp_path
    elif way == "archive":
        await imported(await exported(tmp_path, archive, without_files=True), moved)
    else:
        async with open_store(BridgeSettings(tmp_path / "data"), None) as store:
            await ship(store, "ada", tmp_path)
            archive.write_bytes(b"".join([piece async for piece in archive_of(store, "ada")]))
        await imported(archive, moved)
    async with opened(moved) as (again, _):
        await again.projection.settle()
        assert await rules_in(again) == rules
        async with desk_of(again) as desk:
            assert "Stopped by" in (await use(desk, "tool4") or "")
            assert await use(desk, "tool2") is None


@pytest.mark.parametrize(
    "target", [{"turn": 1}, {"learning": 1}, {"text": "git commit"}, {"text": "never commit to main"}]
)
async def test_forget_takes_rule_with_its_evidence(target: dict[str, Any], stores: Stores) -> None:
    async with desk_of(stores) as desk:
        await taught(stores, desk)
        (rule,) = await rules_in(stores)
        await desk.answer(rule.id, "accept")
        assert await use(desk, COMMIT)
        shown = await forget_in(stores, preview=True, **target)
        assert any(place.where == "a rule" for place in shown.gone)
        left = await forget_in(stores, **target)
        assert left.still == []
        assert await rules_in(stores) == []
        await desk.load()
        assert await use(desk, COMMIT) is None
        # It is not offered again by the replayed answer.
        for change in await stores.projection.settle():
            await desk.heard(change)
        assert await rules_in(stores) == []
    # With the words alone, the learning stays.
    words = [target["text"]] if "text" in target else ["never commit to main", "Commits go to a branch"]
    assert files_containing(stores.folder.parent.parent, "git commit", *words) == []


async def test_forget_of_example_keeps_rule(stores: Stores) -> None:
    async with desk_of(stores) as desk:
        await stores.turn("Save it", calls=[call("Bash", "ok", {"command": "git commit -m 'Salary of Ana Brandt'"})])
        await taught(stores, desk)
        await forget_in(stores, text="Salary of Ana Brandt")
        (rule,) = await rules_in(stores)
        assert (rule.status, rule.examples) == ("offered", [])


async def test_damaged_rule_row_is_reported(stores: Stores) -> None:
    for response in (
        "{",
        '{"op":"offer"}',
        '{"op":"offer","rule":{"id":0,"words":"stop when branch \\"a\\"","action":"stop","reason":""}}',
    ):
        await stores.transcript.curations.append_event(Curation("rule", response))
    await stores.transcript.curations.append_event(Curation("rule", msgspec.json.encode(Event(999, "accept")).decode()))
    await stores.projection.settle()
    assert await rules_in(stores) == []
    assert [kind for kind, _ in await stores.reports()] == ["damaged"] * 3


async def test_unused_rule_is_in_doubt_after_90_days(stores: Stores) -> None:
    for age in (91, 89):
        at = time.time() - age * 86_400
        row = Curation("rule", msgspec.json.encode(Offer(row_of(RULE))).decode(), created_at=at)
        logged = await stores.transcript.curations.append_event(row)
        accept = Curation("rule", msgspec.json.encode(Event(logged.id, "accept")).decode(), created_at=at)
        await stores.transcript.curations.append_event(accept)
    await stores.projection.settle()
    assert [each.doubt for each in await rules_in(stores)] == ["It has not been needed for 90 days.", ""]


async def test_hook_holds_200_rules(stores: Stores, tmp_path: Path) -> None:
    """Each of 200 rules stops one attempt through the real hook; the others are in `test_rule_spellings.py`."""
    made = attempts()
    assert len(made) == MOST_RULES
    for condition, _ in made:
        row = Curation("rule", msgspec.json.encode(Offer(row_of(f"stop when {condition}: Not this."))).decode())
        logged = await stores.transcript.curations.append_event(row)
        await stores.transcript.curations.append_event(
            Curation("rule", msgspec.json.encode(Event(logged.id, "accept")).decode())
        )
    await stores.projection.settle()
    async with desk_of(stores) as desk:

        async def rules(asked: Call, _agent: str | None) -> str | None:
            return await desk.refusal(asked, "m1", of_background=False, waits=False)

        async def begins() -> None:
            pass

        guard = Guard(Settings(tmp_path), sandboxed=True)
        (hook,) = guarding(guard, begins, rules, lambda _call: False).hooks
        for number, (_, calls) in enumerate(made):
            tool, tool_input = calls[number % len(calls)]
            event = {"tool_name": tool, "tool_input": tool_input, "cwd": str(tmp_path)}
            output = cast("dict[str, Any]", await hook(cast("HookInput", event), f"t{number}", cast("HookContext", {})))
            decided = output["hookSpecificOutput"]
            assert decided["permissionDecision"] == "deny", calls[0]
            assert "Not this." in decided["permissionDecisionReason"]
        await desk.propose('stop when command "one more"')
        with pytest.raises(PeerError, match="There are 200 rules"):
            await desk.answer((await rules_in(stores))[-1].id, "accept")
    uses = [row for row in await stores.transcript.curations.after(0, 10_000) if '"stopped"' in row.response]
    assert len(uses) == 200


async def test_review_reads_any_logged_call(stores: Stores) -> None:
    """The log may hold calls of other programs in any form."""
    odd: list[Any] = [
        call("Bash", "", {"command": "git commit -m 'cut"}),
        call("Bash", "", {"command": 7}),
        call("x__", ""),
    ]
    await stores.turn("Hi", calls=[*odd, {**call("Bash", ""), "input": "git commit"}, {"name": None, "input": {}}])
    found = row_of(RULE)
    await review(found, stores.transcript, ZoneInfo("UTC"))
    assert (found.checked, found.stops) == (4, 1)
    assert not found.examples[0].certain
