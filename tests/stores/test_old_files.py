"""Lines of files.md about files that are gone and not mentioned for 60 days are removed with the next batch."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sprite.curation.old_files import named_files, without_old_files
from sprite.log.curations import Curation
from tests.looks import dump
from tests.memory_stores import Stores, call, open_stores, rebuilt

DAY = 86_400.0
GONE = "- artifacts/fair.pdf: leaflet for the fair, 2026-01-02."


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path / "memory") as opened:
        await opened.projection.settle()
        yield opened


async def curate(
    stores: Stores,
    answer: str = "NONE",
    *,
    days_ago: float = 0,
    said_before: float = 0,
    words: str = "Hello",
    **more: Any,
) -> None:
    """Curate one turn as the processor does, some days ago; it was said some days before."""
    at = time.time() - days_ago * DAY
    turn = await stores.turn(words, at=at - said_before * DAY, **more)
    await stores.projection.settle()
    new = Curation("batch", answer.replace("[t]", f"[t{turn}]"), turn, turn, model="offline")
    decided = await stores.judge.decided(await stores.verified(new))
    old = await without_old_files(
        replace(decided, created_at=at), stores.memory, stores.transcript, stores.folder.parent
    )
    await stores.log(old)
    await stores.projection.settle()


async def add(stores: Stores, line: str, *, days_ago: float = 61) -> None:
    """Let the curator add a line to files.md, backed by a turn of that day."""
    await curate(stores, f'FILES_MD_EDIT:\nADD Artifacts | [t] {line} | "{line}"', days_ago=days_ago, words=line)
    assert line in stores.files.read("files.md")


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("- artifacts/a.pdf: leaflet.", ["artifacts/a.pdf"]),
        ("- **`~/My files/a b.pdf`**: leaflet", ["~/My files/a b.pdf"]),
        ("- ~/a.docx and .pdf: letter, finished.", ["~/a.docx", "~/a.pdf"]),
        ("- ~/a.docx (from a.fodt): letter", ["~/a.docx"]),
        ("- /srv/x.csv, /srv/y.csv: lists", ["/srv/x.csv", "/srv/y.csv"]),
        ("- ~/bin/merge.py", ["~/bin/merge.py"]),
        ("- ~/a.docx, b.docx: letters", []),
        ("- pi.local:/srv/tide.db: readings", []),
        ("- The tax papers are at the accountant's.", []),
    ],
)
def test_entry_names_its_files(line: str, paths: list[str]) -> None:
    assert named_files(line) == paths


async def test_line_about_gone_file_leaves_after_sixty_days(stores: Stores) -> None:
    await add(stores, GONE)
    await curate(stores)
    assert GONE not in stores.files.read("files.md")
    said = [(report.kind, report.detail) for report in await stores.memory.reports_of(2, 2)]
    assert said == [("aged", f"files.md: not mentioned for 60 days, and gone: {GONE}")]
    assert GONE in (await stores.memory.versions("files.md"))[0].content


async def test_removal_is_same_after_rebuild(tmp_path: Path) -> None:
    """The file exists again, and a turn mentions it; the decision stands."""
    folder = tmp_path / "memory"
    async with open_stores(folder) as stores:
        await stores.projection.settle()
        await add(stores, GONE)
        await curate(stores)
        assert GONE not in stores.files.read("files.md")
        await stores.turn("What about fair.pdf?", at=time.time() - DAY)
        await stores.projection.settle()
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/fair.pdf").touch()
    before = dump(folder / "memory.db")
    assert await rebuilt(folder, without_files=True) == before


async def test_existing_file_stays(stores: Stores) -> None:
    artifacts = stores.folder.parent / "artifacts"
    artifacts.mkdir()
    (artifacts / "fair.pdf").touch()
    await add(stores, GONE)
    await curate(stores)
    assert GONE in stores.files.read("files.md")


async def test_existing_file_in_passing_folder_leaves(stores: Stores) -> None:
    folder = stores.folder.parent / "Downloads"
    folder.mkdir()
    (folder / "fair.pdf").touch()
    line = f"- {folder}/fair.pdf: leaflet for the fair."
    await add(stores, line)
    await curate(stores)
    assert line not in stores.files.read("files.md")


@pytest.mark.parametrize("is_call", [False, True])
async def test_file_mentioned_since_stays(stores: Stores, is_call: bool) -> None:
    await add(stores, GONE)
    if is_call:
        await curate(stores, days_ago=59, calls=[call("Read", "artifacts/fair.pdf")])
    else:
        await curate(stores, days_ago=59, words="Where is fair.pdf?")
    await curate(stores)
    assert GONE in stores.files.read("files.md")


async def test_younger_line_stays(stores: Stores) -> None:
    answer = f'FILES_MD_EDIT:\nADD Artifacts | [t] {GONE} | "{GONE}"'
    await curate(stores, answer, days_ago=59, said_before=2, words=GONE)
    await curate(stores)
    assert GONE in stores.files.read("files.md")


@pytest.mark.parametrize("before", ["", "<!-- pin -->\n"])
async def test_persons_line_stays(stores: Stores, before: str) -> None:
    content = f"# Files\n\n{before}{GONE}\n"
    at = time.time() - 61 * DAY
    row = Curation("edit", f'{{"name": "files.md", "content": {content!r}}}'.replace("'", '"'), created_at=at)
    await stores.transcript.curations.append_event(row)
    await stores.projection.settle()
    await curate(stores)
    assert GONE in stores.files.read("files.md")


async def test_projects_file_stays(stores: Stores) -> None:
    """It may be on another computer."""
    project = "/home/ana/web"
    answer = f'FILES_MD_EDIT:\nADD Project: {project} | [t] {GONE} | "{GONE}"'
    await curate(stores, answer, days_ago=61, words=GONE, project=project)
    assert GONE in stores.files.read("files.md")
    await curate(stores)
    assert GONE in stores.files.read("files.md")
