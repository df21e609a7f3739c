"""Forgetting reaches the replica, and the status says so until it has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from sprite.backup.replica_files import NOT_RID_OF_IT, shipping_report
from sprite.forget.plan import Target
from tests.curated_workspace import files_containing
from tests.memory_stores import Meanwhile, forgetter_of
from tests.shipping_stage import Copy, Stage, same, shipping_stage


async def forget(stage: Stage, text: str) -> None:
    forgetter = forgetter_of(stage.settings, stage.stores, stage.workspace)
    await forgetter.forget(Target(text=text), sure=True)


async def lived(stage: Stage) -> None:
    await stage.stores.learn("LEARNINGS\n[FACT] The codename is Quibblewort [t]\n", "My codename is Quibblewort.")
    await stage.stores.learn("LEARNINGS\n[FACT] Ada likes tables [t]\n", "I am Ada, and I like tables.")
    file = stage.settings.workspace / "documents/quibblewort.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("no word of it")


async def test_replica_gets_forgotten_rows_and_status_shows_pending(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        assert "Quibblewort" in repr(copy.rows)
        await forget(stage, "Quibblewort")
        report = await shipping_report(stage.stores.transcript, stage.workspace)
        assert report.unshipped_forgets == 1
        assert any(line.startswith(NOT_RID_OF_IT) for line in report.words())
        assert files_containing(stage.settings.workspace, "Quibblewort") == []

        await stage.follow(copy, lambda seen, _: bool(seen.tombstones))
        # Received, and not acknowledged.
        assert (await shipping_report(stage.stores.transcript, stage.workspace)).unshipped_forgets == 1
        await stage.follow(copy)
        assert (await shipping_report(stage.stores.transcript, stage.workspace)).unshipped_forgets == 0
        told = copy.tombstones[-1]["rows"]
        assert 1 in told["log/observations.jsonl"]
        assert "log/curations.jsonl" in told
        assert b"quibblewort" not in msgspec.json.encode(told).lower()
        rows = {key: row for key, row in copy.rows.items() if key[0] != "files"}
        assert "quibblewort" not in repr(rows).lower()
        same(copy, await stage.expected(), stage.settings)


async def test_forget_is_confirmed_by_replica_acknowledgement(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        assert await stage.shipping.has_forgotten(0.1), "no replica is attached"
        copy = Copy()
        await stage.follow(copy)
        await forget(stage, "Quibblewort")
        assert not await stage.shipping.has_forgotten(0.1)
        confirmed = asyncio.create_task(stage.shipping.has_forgotten(30))
        await stage.follow(copy)
        assert await confirmed


async def test_current_rows_precede_deletion_of_versions(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        await forget(stage, "Quibblewort")

        def clean(seen: Copy, _message: object) -> bool:
            if seen.tombstones:
                rows = {key: row for key, row in seen.rows.items() if key[0] != "files"}
                assert "quibblewort" not in repr(rows).lower()
            return bool(seen.tombstones)

        await stage.follow(copy, clean)
        assert copy.tombstones


async def test_forget_without_replica_is_complete(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        await forget(stage, "Quibblewort")
        report = await shipping_report(stage.stores.transcript, stage.workspace)
        assert (report.followed, report.unshipped_forgets) == (False, 0)
        copy = Copy()
        await stage.follow(copy)
        assert copy.tombstones == []
        assert "Quibblewort" not in repr(copy.rows)


class KilledError(BaseException):
    """The process was killed at this point: nothing that an exception would undo is undone."""


async def test_interrupted_forget_is_sent_when_completed(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)

        async def cut() -> None:
            raise KilledError

        forgetter = forgetter_of(stage.settings, stage.stores, stage.workspace, Meanwhile(cut))
        with pytest.raises(KilledError):
            await forgetter.forget(Target(text="Quibblewort"), sure=True)
    async with shipping_stage(tmp_path) as stage:
        assert (await shipping_report(stage.stores.transcript, stage.workspace)).unshipped_forgets == 0
        await forgetter_of(stage.settings, stage.stores, stage.workspace).finish_interrupted()
        assert (await shipping_report(stage.stores.transcript, stage.workspace)).unshipped_forgets == 1
        await stage.follow(copy)
        assert 1 in copy.tombstones[-1]["rows"]["log/observations.jsonl"]


async def test_replica_losing_acknowledged_forget_gets_it_again(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        position, rows = copy.through, dict(copy.rows)
        await forget(stage, "Quibblewort")
        await stage.follow(copy)
        copy.through, copy.rows, copy.tombstones = position, rows, []
        await stage.follow(copy)
        assert copy.tombstones == [{"rows": {}}]
