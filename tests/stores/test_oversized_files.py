"""Memory files made too large or replaced by non-files: prompts stay small and no text is lost."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sprite.boot.prompt import BootPrompt
from sprite.memory.files import (
    BOOT_ORDER,
    BYTE_LIMIT,
    CURATED,
    DEPLOYED,
    LARGEST_FILE_BYTES,
    LINE_LIMITS,
    PROMPT_BUDGET_TOKENS,
    set_aside,
    template,
)
from sprite.memory.projection import Projection
from sprite.search.view import MemoryView
from tests.memory_stores import Stores, open_stores

#: Six full files, and room for the text beside them.
MOST_BOOT_CHARS = 6 * BYTE_LIMIT + 8_000
MINE = "- Kept by hand.\n"


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.projection.edit("user.md", MINE)
        yield opened


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def projection(stores: Stores, told: list[str]) -> Projection:
    return Projection(stores.transcript, stores.memory, stores.files, told.append)


def boot(stores: Stores) -> BootPrompt:
    return BootPrompt(stores.files, stores.memory, stores.transcript)


async def curator_tokens(stores: Stores) -> int:
    return (await stores.prompt(await stores.turn("What now?"))).tokens


@pytest.mark.parametrize("name", BOOT_ORDER)
async def test_megabyte_file_is_quarantined_and_prompts_stay_small(
    name: str, stores: Stores, projection: Projection, told: list[str]
) -> None:
    before = await boot(stores).text()
    for sign in ("a", "b"):
        content = f"- {sign * 70}\n" * 15_000
        stores.path(name).write_text(content)
        assert len(await boot(stores).text()) < MOST_BOOT_CHARS, "also before the first look at the file"
        await projection.settle()
        assert await boot(stores).text() == before
    kept = {path.read_text()[2] for path in stores.folder.glob(f"{name}.too-large*")}
    assert kept == {"a", "b"}, "the second file does not overwrite the first"
    assert stores.path(name).read_text() == (MINE if name == "user.md" else template(name))
    assert [words.startswith(f"{name} has 1095000 bytes, and a memory file at most") for words in told] == [True] * 2
    assert len(set_aside(stores.folder)) == 2


@pytest.mark.parametrize(
    "content",
    [
        "- a line of a hand's\n" * 2_000,
        "x" * (LARGEST_FILE_BYTES - 1),
        "漢" * BYTE_LIMIT,
        "\n" * 20_000,
    ],
    ids=["many lines", "one line", "Chinese", "empty lines"],
)
async def test_edit_over_limits_stays_but_prompts_truncate(
    content: str, stores: Stores, projection: Projection, told: list[str]
) -> None:
    for name in BOOT_ORDER:
        stores.path(name).write_text(content)
    await projection.settle()
    assert {stores.path(name).read_text() for name in BOOT_ORDER} == {content}
    prompt = await boot(stores).text()
    assert len(prompt.encode()) < MOST_BOOT_CHARS
    assert prompt.count("what is over that is on disk and not shown here]") == len(BOOT_ORDER)
    assert all(any(words.startswith(f"{name} would have") for words in told) for name in CURATED)
    attention = (await MemoryView(stores.transcript, stores.memory, stores.files).health(
        daily_cap_usd=None, last_error=None)).attention  # fmt: skip
    assert all(any(words.startswith(f"{name} has") for words in attention) for name in BOOT_ORDER)
    assert await curator_tokens(stores) <= PROMPT_BUDGET_TOKENS
    news = boot(stores)
    await news.text()
    for name in CURATED:
        stores.path(name).write_text(f"{content}- more\n"[: LARGEST_FILE_BYTES // 4])
    await projection.settle()
    assert len((news.news() or "").encode()) < 4 * BYTE_LIMIT + 2_000


async def test_curator_preserves_unseen_part_of_oversized_file(stores: Stores, projection: Projection) -> None:
    content = "".join(f"- Line {number} of the person's.\n" for number in range(1, 301))
    stores.path("user.md").write_text(content)
    await projection.settle()
    shown = "".join(content.splitlines(keepends=True)[: LINE_LIMITS["user.md"]])
    await stores.learn("USER_MD_UPDATE:\n" + shown, "Hello")
    assert stores.path("user.md").read_text() == content


def folder(path: Path) -> None:
    path.mkdir()
    (path / "kept").write_text("kept")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def to_a_folder(path: Path) -> None:
    path.symlink_to(path.parent)


@pytest.mark.parametrize("make", [folder, pipe, endless, to_a_folder], ids=lambda make: make.__name__)
async def test_nonfile_is_quarantined_and_restored_from_memory(
    make: Callable[[Path], None], stores: Stores, projection: Projection, told: list[str]
) -> None:
    for name in BOOT_ORDER:
        stores.path(name).unlink()
        make(stores.path(name))
    await boot(stores).text()
    for name in DEPLOYED:
        stores.files.on_disk(name)
    await projection.settle()
    expected = {name: MINE if name == "user.md" else template(name) for name in BOOT_ORDER}
    assert {name: stores.path(name).read_text() for name in BOOT_ORDER} == expected
    assert len(told) == len(set_aside(stores.folder)) == len(BOOT_ORDER)
    assert all("was not a file: it was moved to" in words for words in told)


async def test_deployed_nonfile_is_reset_at_start(stores: Stores) -> None:
    for name in DEPLOYED:
        stores.path(name).unlink()
        stores.path(name).mkdir()
    stores.files.ensure()
    assert [stores.path(name).read_text() for name in DEPLOYED] == [template(name) for name in DEPLOYED]


async def test_endless_actions_do_not_fill_boot_prompt(stores: Stores) -> None:
    answer = "".join(f'ACTION [t] Call number {n} {"about it " * 20}. | "Call {n}"\n' for n in range(120))
    await stores.learn(answer, " ".join(f"Call {n}" for n in range(120)))
    prompt = await boot(stores).text()
    assert len(prompt) < MOST_BOOT_CHARS
    assert "more: list_actions." in prompt
