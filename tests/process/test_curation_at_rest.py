"""Waiting turns are curated when the conversation rests or a session ends, if they are worth a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sprite.config import Settings
from sprite.curation.processor import ObservationProcessor
from sprite.log.curations import OFF_RECORD, Curation
from sprite.log.transcript import NewObservation
from sprite.memory.decision import Written
from sprite.memory.folders import make_folders
from tests.emulator import Emulator
from tests.harness import PATIENCE, running_sprite
from tests.inspection import chat, curations, eventually
from tests.memory_stores import SESSION, Stores, open_stores, seed_turns
from tests.scripted_model import OfflineModel


@dataclass(frozen=True, slots=True)
class Curating:
    """An observation processor with separate stores, and its model."""

    stores: Stores
    processor: ObservationProcessor
    model: OfflineModel

    async def turns(self, count: int, **more: Any) -> None:
        """Add turns as the recorder writes them, and report the end of each."""
        for _ in range(count):
            await self.add_turns(1, **more)
            await self.processor.turn_ended()

    async def add_turns(self, count: int, **more: Any) -> None:
        """Add turns whose ends nobody reports."""
        for _ in range(count):
            turn = NewObservation(SESSION, "I prefer tea.", [], "Noted.", "complete")
            await self.stores.transcript.add_observation(replace(turn, **more))

    async def curated_ago(self, seconds: float) -> None:
        """Add a turn that was curated this many seconds ago."""
        turn = await self.stores.turn()
        answer = Curation("batch", "NONE", turn, turn, model="offline")
        decided = await self.stores.judge.decided(answer)
        await self.stores.log(replace(decided, created_at=time.time() - seconds))

    @property
    async def spans(self) -> list[tuple[int | None, int | None]]:
        """Return the first and last turn of each batch."""
        made = reversed(await self.stores.transcript.curations.before(None, 100))
        return [(batch.first_observation_id, batch.last_observation_id) for batch in made if batch.kind == "batch"]

    async def waiting(self) -> int:
        return await self.stores.transcript.waiting_count()


@asynccontextmanager
async def curating(workspace: Path, model: OfflineModel, **settings: Any) -> AsyncIterator[Curating]:
    known = Settings(workspace, api_key="offline", base_url=model.url, **settings)
    make_folders(known)
    async with open_stores(known.memory) as stores:
        await stores.projection.settle()
        processor = ObservationProcessor(
            known,
            stores.transcript,
            stores.memory,
            stores.projection,
            lambda _: None,
            is_left=lambda: False,
        )
        async with processor.running(lambda: None):
            yield Curating(stores, processor, model)


async def test_session_end_curates_few_turns_once_an_hour(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(1)
        await sprite.processor.session_ended(60)
        assert await sprite.spans == [(1, 1)]
        await sprite.turns(4)
        await sprite.processor.session_ended(60)
        assert (await sprite.spans, await sprite.waiting()) == ([(1, 1)], 4)
        await sprite.turns(1)
        await sprite.processor.session_ended(60)
        assert (await sprite.spans, await sprite.waiting()) == ([(1, 1), (2, 6)], 0)


async def test_stop_leaves_few_turns_to_next_start(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(4)
        await sprite.processor.session_ended(60, is_stopping=True)
        assert (await sprite.spans, await sprite.waiting()) == ([], 4)
        await sprite.turns(1)
        await sprite.processor.session_ended(60, is_stopping=True)
        assert await sprite.spans == [(1, 5)]


async def test_flush_at_turn_end_releases_machine(model: OfflineModel, workspace: Path) -> None:
    """The flush begins before the end of the turn has started the idle timer."""
    async with curating(workspace, model) as sprite:
        await sprite.add_turns(1)
        await asyncio.gather(sprite.processor.turn_ended(), sprite.processor.flush_all_within(60))
        assert await sprite.spans == [(1, 1)]
        assert not sprite.processor.needs_machine


@pytest.mark.parametrize(("minutes", "spans"), [(59, []), (61, [(2, 2)])])
async def test_start_curates_few_leftovers_an_hour_later(
    model: OfflineModel, workspace: Path, minutes: int, spans: list[tuple[int, int]]
) -> None:
    async with curating(workspace, model, idle_flush_seconds=1) as sprite:
        await sprite.curated_ago(minutes * 60)
        await sprite.add_turns(1)
        await sprite.processor.take_up()
        assert sprite.processor.needs_machine
        if spans:
            await _idle(sprite)
        else:
            # Twice as long as the rest.
            await asyncio.sleep(2)
        assert (await sprite.spans)[1:] == spans


async def test_start_curates_leftovers_from_five_turns(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.add_turns(5)
        await sprite.processor.take_up()
        await _idle(sprite)
        assert await sprite.spans == [(1, 5)]


async def test_idle_flush_curates_single_turn(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model, idle_flush_seconds=1) as sprite:
        await sprite.turns(1)
        assert sprite.processor.needs_machine
        await _idle(sprite)
        assert await sprite.spans == [(1, 1)]
        assert sprite.processor.last_error is None


async def test_idle_flush_within_hour_needs_five_turns(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model, idle_flush_seconds=1) as sprite:
        await sprite.curated_ago(60)
        await sprite.turns(4)
        await asyncio.sleep(2)
        assert (len(await sprite.spans), await sprite.waiting()) == (1, 4)
        await sprite.turns(1)
        await _idle(sprite)
        assert (await sprite.spans)[1:] == [(2, 6)]


async def test_machine_that_sleeps_waits_ten_minutes_at_most(
    model: OfflineModel, workspace: Path, tmp_path: Path
) -> None:
    """A reminder that is not curated could not wake it."""
    (socket := tmp_path / "vm.sock").touch()
    async with curating(workspace, model, idle_flush_seconds=1, vm_socket=socket) as sprite:
        await sprite.curated_ago(599)
        await sprite.turns(1)
        assert sprite.processor.needs_machine
        await _idle(sprite)
        assert (await sprite.spans)[1:] == [(2, 2)]


async def test_hanging_curator_delays_no_turn(model: OfflineModel, workspace: Path) -> None:
    """A full batch is curated without waiting for a rest."""
    async with curating(workspace, model, batch_turns=2) as sprite:
        await sprite.turns(1)
        assert (model.requests, await sprite.waiting()) == ([], 1)
        await sprite.turns(1)
        await _idle(sprite)
        assert (await sprite.spans, await sprite.waiting()) == ([(1, 2)], 0)
        model.script.curator({"hang": True, "times": -1})
        await sprite.turns(2)
        async with asyncio.timeout(PATIENCE):  # it hangs for ever
            await model.seen(lambda _: len(model.requests) == 2)
            await sprite.turns(1)
        assert (await sprite.spans, await sprite.waiting()) == ([(1, 2)], 3)


async def test_new_turn_cancels_idle_flush(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(5)
        assert sprite.processor.needs_machine
        sprite.processor.turn_began()
        assert not sprite.processor.needs_machine


async def test_private_and_quarantined_turns_do_not_wait(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.add_turns(1)
        await sprite.stores.transcript.quarantine.set_aside(1, "in vain", 0)
        await sprite.turns(3, processed=OFF_RECORD)
        assert not sprite.processor.needs_machine
        await sprite.processor.session_ended(60)
        assert (await sprite.spans, await sprite.waiting()) == ([], 0)


async def test_flush_curates_single_turn(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(1)
        assert await sprite.processor.flush_all_within(60)
        assert await sprite.spans == [(1, 1)]


async def test_flush_removes_old_line_of_files_md(model: OfflineModel, workspace: Path) -> None:
    line, at = "- artifacts/fair.pdf: leaflet for the fair.", time.time() - 61 * 86_400
    async with curating(workspace, model) as sprite:
        turn = await sprite.stores.turn("Hello", at=at)
        decision = msgspec.json.encode([Written("files.md", f"# Files\n\n{line}\n")]).decode()
        row = Curation("batch", "NONE", turn, turn, model="offline", decision_json=decision, created_at=at)
        await sprite.stores.log(row)
        await sprite.stores.projection.settle()
        assert line in sprite.stores.files.read("files.md")
        await sprite.turns(1)
        assert await sprite.processor.flush_all_within(60)
        assert line not in sprite.stores.files.read("files.md")


async def test_failed_flush_is_retried_for_single_turn(model: OfflineModel, workspace: Path) -> None:
    model.script.curator({"error": 529, "times": 1})
    async with curating(workspace, model) as sprite:
        await sprite.turns(1)
        assert not await sprite.processor.flush_all_within(60)
        await _idle(sprite)
        assert await sprite.spans == [(1, 1)]


async def test_turns_during_flush_wait_for_next(model: OfflineModel, workspace: Path) -> None:
    model.script.curator({"delay": 1.0, "times": 1})
    async with curating(workspace, model) as sprite:
        await sprite.turns(5)
        ending = asyncio.create_task(sprite.processor.session_ended(60))
        await model.seen(lambda request: request.kind == "curator")
        await sprite.turns(2)
        await ending
        assert (await sprite.spans, await sprite.waiting()) == ([(1, 5)], 2)


async def test_idle_flush_respects_daily_cap(model: OfflineModel, workspace: Path) -> None:
    """The VM may sleep although turns are waiting."""
    async with curating(workspace, model, idle_flush_seconds=1, daily_usd=0.0) as sprite:
        await sprite.turns(5)
        await _idle(sprite)
        assert (await sprite.waiting(), model.requests) == (5, [])
        assert "spending cap" in str(sprite.processor.last_error)


async def _idle(sprite: Curating) -> None:
    await eventually(lambda: not sprite.processor.needs_machine, "the processor is still working")


@pytest.mark.soak
async def test_vm_sleeps_after_rest_with_turns_curated(model: OfflineModel, workspace: Path, tmp_path: Path) -> None:
    """The person stays connected; test_own_turns.py covers a disconnected one."""
    # The rest is far longer than the interval between looks at the hold, so releasing it too early would show.
    rest = "8"
    async with Emulator(tmp_path / "vms") as emulator:
        vm = await emulator.add("ada")
        await seed_turns(workspace, *(f"Hello {number}" for number in range(1, 5)))

        def let_go() -> int:
            return sum(method == "DELETE" for method, _ in vm.task_calls)

        async with running_sprite(
            workspace, model.url, TESTS_VM_SOCKET=str(vm.socket), SPRITE_IDLE_FLUSH_SECONDS=rest
        ) as sprite:
            async with sprite.client() as client:
                await chat(client, "Hello 5")
                before = let_go()
                await eventually(lambda: let_go() > before, "the VM is still kept awake")
            await eventually(lambda: let_go() > before, "the VM is still kept awake")
            assert [(c["first_observation_id"], c["last_observation_id"]) for c in curations(workspace)] == [(1, 5)]
