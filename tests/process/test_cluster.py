"""Three bridges on one Postgres with people on all of them, while one fault after another is injected.

The agents run in processes or on VMs of the emulated API; with VMs, faults hit VMs, too. `make soak` runs both with 40
sprites and 200 pages. The test is about faults, not about load: agents are real, and starting one takes a processor for
seconds. Therefore at most `AT_ONCE` missions run at a time; the other agents and all pages stay connected. The agents
also start in waves of that size, and the duration of a wave determines later timeouts.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.cluster.leases import LEASE_SECONDS
from tests.cluster_people import AT_ONCE, DAILY_USD, Person, Spenders, at_work, begin
from tests.cluster_places import Place, Processes, Vms
from tests.cluster_stage import BRIDGES, Cluster, cluster
from tests.cluster_verdict import (
    every_event_once_and_in_order,
    no_budget_exceeded,
    no_mission_twice,
    no_vm_deployed_twice,
    one_owner_at_every_moment,
    say,
    the_store_has_everything,
)
from tests.delays import Delays
from tests.faithful_page import staying
from tests.harness import PATIENCE
from tests.inspection import eventually, workspace_db
from tests.postgres import own_server
from tests.scripted_model import OfflineModel
from tests.vm_plugs import AWAY_SECONDS, api_away, destroyed_in_mid_mission, script_work
from tests.vms import Disk

pytestmark = pytest.mark.soak

SPRITES = {"processes": 6, "vms": 3}
PAGES_EACH = 4
#: Duration of a pause and of a network partition: longer than a lease, and longer than three missed heartbeats.
STOPPED_SECONDS = float(os.environ.get("SOAK_STOPPED_SECONDS") or LEASE_SECONDS + 2)
CUT_OFF_SECONDS = LEASE_SECONDS + 2

#: A fault. It receives the name of the bridge with the most sprites.
Plug = Callable[[str], Awaitable[None]]


@pytest.fixture(params=["processes", "vms"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The place where the sprites run."""
    if request.param == "processes":
        return Processes(tmp_path / "machines")
    disk: Disk = request.getfixturevalue("disk")
    return Vms(tmp_path / "machines", disk.root)


def plugs(stage: Cluster, people: list[Person]) -> dict[str, Plug]:
    """Return the faults of bridges, and of VMs if there are any, in order."""
    vms = stage.place if isinstance(stage.place, Vms) else None
    to_bridges: dict[str, Plug] = {
        "kill -9": stage.kill,
        f"stopped for {STOPPED_SECONDS:g} s": lambda name: stage.pause(name, STOPPED_SECONDS),
        f"cut off from the others for {CUT_OFF_SECONDS:g} s": lambda name: stage.cut_off(name, CUT_OFF_SECONDS),
        "Postgres restarted": lambda _: asyncio.to_thread(stage.restart_postgres),
    }
    if vms is None:
        return to_bridges | {"kill -9, and back at once": lambda name: _killed_and_back(stage, name)}
    return to_bridges | {
        "a VM destroyed, its bridge killed, and back at once": lambda name: destroyed_in_mid_mission(
            stage, vms, people, name
        ),
        f"the VMs' API away for {AWAY_SECONDS:g} s": lambda _: api_away(vms, people),
    }


async def _killed_and_back(stage: Cluster, name: str) -> None:
    await stage.kill(name)
    await stage.start_again(name)


async def storm(
    stage: Cluster, people: list[Person], spenders: Spenders, pulled: dict[str, Plug], patience: float
) -> None:
    """Inject one fault after another into the busiest bridge; after each, every person's next mission must end."""
    for what, pull in pulled.items():
        began = time.monotonic()
        await spenders.begin()
        await pull(stage.busiest())
        await _all_go_on(stage, people, patience)
        say(f"{what}: all go on {time.monotonic() - began:.0f} s after it")
        for name in [slot.name for slot in stage.slots.values() if not slot.is_up]:
            await stage.start_again(name)
    await spenders.end()


async def _all_go_on(stage: Cluster, people: list[Person], patience: float) -> None:
    """Wait until each sprite has ended a mission that was sent after this call."""
    counts = [len(person.typed) for person in people]

    def waiting() -> list[Person]:
        pairs = zip(people, counts, strict=True)
        return [person for person, count in pairs if not any(map(person.is_over, person.typed[count:]))]

    try:
        await eventually(lambda: not waiting(), "", patience)
    except AssertionError:
        raise AssertionError([_how_it_stands(stage, person) for person in waiting()]) from None


def _how_it_stands(stage: Cluster, person: Person) -> dict[str, Any]:
    inbox = workspace_db(stage.workspace(person.sprite), "SELECT id, status FROM missions")
    return {
        "sprite": person.sprite,
        "owner": stage.owners().get(person.sprite),
        "not over": {id_: row["status"] for row in inbox if not person.is_over(id_ := row["id"])},
        "typed last": person.typed[-1],
        "ready": [page.is_ready for page in person.pages],
        "unsaid": [list(page.unsaid) for page in person.pages],
    }


async def test_cluster_faults_lose_and_repeat_nothing(
    model: OfflineModel, place: Place, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    seed = int(os.environ.get("CLUSTER_SEED") or secrets.randbits(32))
    say(f"CLUSTER_SEED={seed}")
    rng, turns = random.Random(seed), asyncio.Semaphore(AT_ONCE)  # noqa: S311 - no secret
    script_work(model)
    sprites = int(os.environ.get("SOAK_SPRITES") or SPRITES[request.node.callspec.params["place"]])
    each = int(os.environ.get("SOAK_PAGES") or PAGES_EACH * sprites) // sprites
    with own_server() as server:
        flags = ("--daily-usd", str(DAILY_USD))
        # Between bridges, as many connections are cut as there are sprites.
        async with (
            cluster(tmp_path, server, model, sprites, *flags, place=place, cuts=sprites, seed=seed) as stage,
            Delays() as delays,
        ):
            doors = itertools.cycle(BRIDGES)
            people = [
                Person(sprite, [stage.page(sprite, next(doors)) for _ in range(each)], rng, turns)
                for sprite in stage.tokens
            ]
            pages = [page for person in people for page in person.pages]
            pulled = plugs(stage, people)
            async with staying(*pages), Spenders(stage, model, len(pulled)) as spenders:
                wave = await begin(people)
                # The timeout allows a turn of every person and a takeover.
                patience = PATIENCE + 3 * wave * len(people) / AT_ONCE
                say(f"{len(people)} sprites, {len(pages)} pages; {AT_ONCE} first missions at a time took {wave:.1f} s")
                async with at_work(people):
                    await storm(stage, people, spenders, pulled, patience)
                for person in people:
                    heard_all = partial(person.has_heard_all, stage.workspace(person.sprite))
                    await eventually(heard_all, "a page did not receive a mission's end", patience)
                for person in people:
                    disks = stage.workspace(person.sprite), place.lost.get(person.sprite, [])
                    every_event_once_and_in_order(person, *disks)
                    no_mission_twice(person, *disks)
            missions, events = (
                sum(len(person.typed) for person in people),
                sum(map(len, (page.events for page in pages))),
            )
            connections = sum(page.connections for page in pages)
            say(f"{events} events, each once and in order, at {len(pages)} pages over {connections} connections")
            say(f"{missions} missions, none twice")
            one_owner_at_every_moment(stage, delays.longest)
            no_budget_exceeded(stage, spenders)
            await the_store_has_everything(stage, patience)
            if isinstance(place, Vms):
                no_vm_deployed_twice(place)
