"""What waits is curated when the conversation rests and when a session ends, where it is worth a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bridge.fake_model.model import OfflineModel
from sprite.config import Settings
from sprite.curation.processor import ObservationProcessor
from sprite.log.transcript import NewObservation
from sprite.memory.folders import make_folders
from tests.emulator import Emulator
from tests.harness import PATIENCE, running_sprite
from tests.inspection import chat, curations, eventually
from tests.memory_stores import SESSION, Stores, open_stores, seed_turns


@dataclass(frozen=True, slots=True)
class Curating:
    """A processor on stores of its own, and the model that it asks."""

    stores: Stores
    processor: ObservationProcessor
    model: OfflineModel

    async def turns(self, count: int, **more: Any) -> None:
        """Turns as the recorder writes them, each with its end told."""
        for _ in range(count):
            turn = NewObservation(SESSION, "I prefer tea.", [], "Noted.", "complete")
            await self.stores.transcript.add_observation(replace(turn, **more))
            await self.processor.turn_ended()

    @property
    async def spans(self) -> list[tuple[int | None, int | None]]:
        """The turns of each batch."""
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


async def test_a_sessions_end_curates_five_turns_and_lets_four_wait(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(4)
        await sprite.processor.session_ended(60)
        assert (await sprite.spans, await sprite.waiting()) == ([], 4)
        await sprite.turns(1)
        await sprite.processor.session_ended(60)
        assert (await sprite.spans, await sprite.waiting()) == ([(1, 5)], 0)


async def test_what_an_earlier_process_left_is_taken_up_from_five_turns_on(
    model: OfflineModel, workspace: Path
) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(4)
        await sprite.processor.take_up()
        assert not sprite.processor.needs_machine
        await sprite.turns(1)
        await sprite.processor.take_up()
        await _idle(sprite)
        assert await sprite.spans == [(1, 5)]


async def test_five_turns_are_curated_once_the_conversation_has_rested(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model, idle_flush_seconds=1) as sprite:
        await sprite.turns(4)
        assert not sprite.processor.needs_machine
        await sprite.turns(1)
        assert sprite.processor.needs_machine
        await _idle(sprite)
        assert await sprite.spans == [(1, 5)]
        assert sprite.processor.last_error is None


async def test_hanging_curator_delays_no_turn(model: OfflineModel, workspace: Path) -> None:
    """It is asked once enough turns wait, without a rest."""
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


async def test_a_turn_that_begins_ends_the_rest(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(5)
        assert sprite.processor.needs_machine
        sprite.processor.turn_began()
        assert not sprite.processor.needs_machine


async def test_what_is_off_the_record_or_set_aside_does_not_wait(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(4)
        await sprite.turns(3, off_record=True)
        await sprite.stores.transcript.quarantine.set_aside(2, "in vain", 0)
        await sprite.turns(1)
        assert not sprite.processor.needs_machine
        await sprite.processor.session_ended(60)
        assert (await sprite.spans, await sprite.waiting()) == ([], 4)


async def test_who_asks_for_a_flush_gets_one_turn_curated(model: OfflineModel, workspace: Path) -> None:
    async with curating(workspace, model) as sprite:
        await sprite.turns(1)
        assert await sprite.processor.flush_all_within(60)
        assert await sprite.spans == [(1, 1)]


async def test_a_flush_that_was_asked_for_and_fails_is_taken_up_whatever_waits(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.curator({"error": 529, "times": 1})
    async with curating(workspace, model) as sprite:
        await sprite.turns(1)
        assert not await sprite.processor.flush_all_within(60)
        await _idle(sprite)
        assert await sprite.spans == [(1, 1)]


async def test_what_comes_while_the_model_is_asked_is_no_reason_for_a_call_by_itself(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.curator({"delay": 1.0, "times": 1})
    async with curating(workspace, model) as sprite:
        await sprite.turns(5)
        ending = asyncio.create_task(sprite.processor.session_ended(60))
        await model.seen(lambda request: request.kind == "curator")
        await sprite.turns(2)
        await ending
        assert (await sprite.spans, await sprite.waiting()) == ([(1, 5)], 2)


async def test_a_rest_costs_nothing_beyond_the_daily_cap_and_holds_no_machine_for_it(
    model: OfflineModel, workspace: Path
) -> None:
    async with curating(workspace, model, idle_flush_seconds=1, daily_usd=0.0) as sprite:
        await sprite.turns(5)
        await _idle(sprite)
        assert (await sprite.waiting(), model.requests) == (5, [])
        assert "spending cap" in str(sprite.processor.last_error)


async def _idle(sprite: Curating) -> None:
    await eventually(lambda: not sprite.processor.needs_machine, "the processor comes to rest")


@pytest.mark.soak
async def test_vm_sleeps_after_rest_with_turns_curated(model: OfflineModel, workspace: Path, tmp_path: Path) -> None:
    """With the person still there (test_own_turns.py: when they leave)."""
    # Far more than the hold's looks are apart, so that a hold let go with the work would be seen to be.
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
                await eventually(lambda: let_go() > before, "the VM is let go")
            await eventually(lambda: let_go() > before, "the VM is let go")
            assert [(c["first_observation_id"], c["last_observation_id"]) for c in curations(workspace)] == [(1, 5)]
