"""Invariants after the failures, checked on every disk and page, the database and the model."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bridge.config import read_keys
from bridge.db.open import open_database
from bridge.replicas.keys import fixed_keys
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.tables import DatabaseShelf
from bridge.replicas.upkeep import verified
from tests.cluster_people import CALLS, DAILY_USD, SPENT_USD, Person, Spenders
from tests.cluster_places import Vms
from tests.cluster_stage import STORE_KEY, Cluster
from tests.faithful_page import Heard
from tests.harness import observations
from tests.inspection import durable_events, endings, transcript, workspace_db

#: Longest delay of a bridge's last message after it lost a sprite to another, without this test's own delays.
WORD_SECONDS = 2.0


def say(words: str) -> None:
    """Print the text: pytest shows it if the test fails, `make soak` always."""
    print(words, flush=True)  # noqa: T201


def every_event_once_and_in_order(person: Person, workspace: Path, lost: Sequence[Path]) -> None:
    """Check each page, and the workspaces including those of machines `lost` before, oldest first."""
    *earlier, said = [
        {event["seq"]: (event["type"], event["payload"]) for event in durable_events(disk)}
        for disk in (*lost, workspace)
    ]
    for page in person.pages:
        heard = [*page.earlier, Heard(page.seqs, page.events)]
        assert page.began_anew == len(heard) == 1 + len(lost)
        for (seqs, events), on_disk in zip(((each.seqs, each.events) for each in heard), (*earlier, said), strict=True):
            # The first is where it began.
            assert seqs == list(range(seqs[0], seqs[-1] + 1))
            assert events == {seq: on_disk[seq] for seq in seqs[1:]}
        assert page.seqs[-1] == max(said)
        assert page.unsaid == {}


def no_mission_twice(person: Person, workspace: Path, lost: Sequence[Path]) -> None:
    """Check the messages of each machine of the sprite, and the final log and inbox."""
    ended = Counter[str]()
    for disk in (*lost, workspace):
        ended.update({mission: len(ends) for mission, ends in endings(disk).items()})
    assert ended == Counter(person.typed)
    turns = [turn for turn in observations(workspace) if turn["mission_id"]]
    assert Counter(turn["mission_id"] for turn in turns) == Counter(person.typed)
    assert {turn["mission_id"] for turn in turns if turn["outcome"] == "crashed"} == person.crashed
    inbox = workspace_db(workspace, "SELECT id, status FROM missions")
    assert sorted(row["id"] for row in inbox) == sorted(person.typed)
    assert {row["id"] for row in inbox if row["status"] != "complete"} == person.crashed


def one_owner_at_every_moment(stage: Cluster, delay: float) -> None:
    """Check the database's own record of leases, and all messages from bridges to each sprite.

    No lease overlaps the previous one. The sprite admitted exactly these leases, in this order. A bridge sent no
    message after another had the sprite, and the sprite would have ignored one.
    """
    owners = words = 0
    for sprite, tap in stage.place.taps.items():
        history = stage.ask("SELECT * FROM lease_history WHERE sprite = %s ORDER BY number", sprite)
        taken = {1: history[0]}
        for before, now in itertools.pairwise(history):
            if now["owner"] == before["owner"]:
                assert now["epoch"] == before["epoch"]
            else:
                assert now["epoch"] == before["epoch"] + 1
                assert now["at"] >= before["expires_at"], "taken before it had ended"
                taken[now["epoch"]] = now
        owners += len(taken) - 1
        assert tap.out_of_turn == []
        epochs = [lease.epoch for lease in tap.welcomed]
        assert epochs == sorted(epochs)
        assert {(lease.epoch, lease.owner) for lease in tap.welcomed} <= {(n, row["owner"]) for n, row in taken.items()}
        for said in tap.said:
            following = taken.get(said.lease.epoch + 1)
            if following is not None:
                late = said.at - following["at"]
                assert late <= WORD_SECONDS + delay, f"{said} was said {late:.1f} s after another bridge had {sprite}"
        words += len(tap.said)
        (kept,) = workspace_db(stage.workspace(sprite), "SELECT value FROM meta WHERE key = 'lease'")
        assert json.loads(kept["value"]) == {"owner": history[-1]["owner"], "epoch": history[-1]["epoch"]}
        assert epochs[-1] == history[-1]["epoch"]
    assert owners, "nothing ever changed hands"
    refusals = sum(tap.refusals for tap in stage.place.taps.values())
    say(f"{owners} changes of owner: no two leases overlap; of {words} words of bridges none was out of turn")
    say(f"{refusals} times a sprite refused an older lease; this process noticed things at most {delay:.2f} s late")


def no_budget_exceeded(stage: Cluster, spenders: Spenders) -> None:
    """Check the database's record of calls, and the model's own count."""
    calls = stage.ask("SELECT *, coalesce(spent_usd, held_usd) AS usd, floor(at / 86400) AS day FROM calls ORDER BY at")
    assert all(call["usd"] <= call["held_usd"] for call in calls)
    days = {(call["sprite"], call["day"]) for call in calls}
    for sprite, day in days:
        own = [call["usd"] for call in calls if (call["sprite"], call["day"]) == (sprite, day)]
        # A spender with money left may begin one more call.
        assert sum(own) - max(own) < DAILY_USD, sprite
    for spender in spenders.names:
        spent = [call["usd"] for call in calls if call["sprite"] == spender]
        assert sum(spent) > DAILY_USD - SPENT_USD, "it was never close"
        assert spenders.upstream[spender] <= CALLS * len([day for name, day in days if name == spender])
        assert spenders.upstream[spender] <= len(spent)
    assert set(spenders.statuses) <= {200, 402, 429, 500, 502, 503, 529}, spenders.statuses
    # Only paid calls were answered, and a killed bridge's reservations are still held.
    settled = [call for call in calls if call["sprite"] in spenders.names and call["state"] == "settled"]
    assert spenders.statuses[200] <= len(settled)
    counted = ", ".join(f"{spenders.upstream[name]}" for name in spenders.names)
    say(f"{len(spenders.names)} budgets of {CALLS} calls, one a plug: the model was called {counted} times")
    say(f"the spenders were answered {dict(spenders.statuses)}")


def no_vm_deployed_twice(vms: Vms) -> None:
    """Check the API requests: each VM was created and deployed once, or for the restore of a lost one.

    A restore deploys twice: first a VM that reads the replica, then one that admits no client of the earlier one.
    """
    lost = {sprite: len(disks) for sprite, disks in vms.lost.items()}
    assert vms.emulator.counted("POST", "/v1/sprites$") == len(vms.taps) + sum(lost.values())
    sent = Counter(
        call.path.split("/")[3]
        for call in vms.emulator.calls
        if call.path.endswith("/fs/write") and "next-" in call.query
    )
    assert sent == {sprite: 1 + 2 * lost.get(sprite, 0) for sprite in vms.taps}
    wakes = sum(machine.wakes for machine in vms.emulator.machines.values())
    say(f"{len(vms.taps)} VMs, {sum(lost.values())} lost, {wakes} wakes: none was deployed twice")


async def the_store_has_everything(stage: Cluster, patience: float) -> None:
    async with open_database(stage.url) as database:
        store = SealedStore(DatabaseShelf(database), fixed_keys(read_keys(STORE_KEY)), 2**31)
        for sprite in stage.tokens:
            async with asyncio.timeout(patience):
                while not await has_all(store, sprite, stage.workspace(sprite)):  # noqa: ASYNC110 - a bridge stores it
                    await asyncio.sleep(0.1)
            assert (await verified(store, sprite)).wrong == []
            assert transcript(stage.workspace(sprite), "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


async def has_all(store: SealedStore, sprite: str, workspace: Path) -> bool:
    if not (await store.position(sprite)).is_whole:
        return False
    kept = [row.row["id"] async for row in store.rows(sprite) if row.table == "log/observations.jsonl"]
    return kept == [row["id"] for row in observations(workspace)]
