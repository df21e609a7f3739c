"""The SessionStart hook as Claude Code runs it: it prints the project's memory, or nothing after any failure."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.claude_code import PLUGIN, REMOTE_PLUGIN, ClaudeCode, boot_file
from tests.harness import PATIENCE

BOOT = '<sprite_memory project="/code" >\nAda prefers tea.\n</sprite_memory>\n'
#: Expected for every failure: Claude Code would show a nonzero status as an error.
NOTHING = (0, "", "")

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository in which a session starts."""
    folder = tmp_path / "code"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (folder / "src").mkdir()
    return folder


@pytest.fixture
def person(tmp_path: Path) -> ClaudeCode:
    """Return a person with a sprite on this machine."""
    person = ClaudeCode(tmp_path / "home")
    person.note(tmp_path / "workspace")
    return person


@pytest.fixture
def boot(project: Path, tmp_path: Path) -> Path:
    """Write the boot file of the project."""
    path = boot_file(tmp_path / "workspace", project)
    path.write_text(BOOT)
    return path


async def begin(person: ClaudeCode, folder: Path, part: int = 1, plugin: Path = PLUGIN) -> tuple[int, str, str]:
    """Return status, stdout and stderr of one part of the hook."""
    process = await asyncio.create_subprocess_exec(
        "sh",
        str(plugin / "scripts/session-start"),
        str(part),
        cwd=folder,
        env=person.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


# --- local memory ---


async def test_hook_prints_boot_file_of_project(person: ClaudeCode, project: Path, boot: Path) -> None:
    """A long file is printed in parts."""
    assert await begin(person, project) == (0, BOOT, "")
    assert await begin(person, project / "src") == (0, BOOT, "")
    assert await begin(person, project, 2) == NOTHING
    boot.write_text(BOOT.replace("tea.", "tea.\n" * 3000))
    parts = [(await begin(person, project, part))[1] for part in (1, 2, 3)]
    assert [part.splitlines()[1] for part in parts if part] == ["(Part 1 of 2)", "(Part 2 of 2)"]


async def test_hook_in_worktree_prints_repository_memory(
    person: ClaudeCode, tmp_path: Path, project: Path, boot: Path
) -> None:
    async def git(*arguments: str) -> None:
        everything = ("-c", "user.name=a", "-c", "user.email=a@b", *arguments)
        await asyncio.to_thread(subprocess.run, ["git", *everything], cwd=project, check=True, capture_output=True)

    assert boot.exists()
    await git("init")
    await git("commit", "--allow-empty", "-m", "first")
    await git("worktree", "add", str(tmp_path / "tree"))
    assert await begin(person, tmp_path / "tree") == (0, BOOT, "")


async def test_hook_in_new_project_prints_personal_memory(person: ClaudeCode, tmp_path: Path, project: Path) -> None:
    boot_file(tmp_path / "workspace", None).write_text(BOOT)
    assert await begin(person, project) == (0, BOOT, "")


async def test_hook_without_sprite_or_memory_prints_nothing(tmp_path: Path, person: ClaudeCode, project: Path) -> None:
    assert await begin(ClaudeCode(tmp_path / "nobody"), project) == NOTHING
    assert await begin(person, project) == NOTHING
    (tmp_path / "workspace").mkdir()
    assert await begin(person, project) == NOTHING


def _link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _linked_folder(path: Path, secret: Path) -> None:
    elsewhere = secret.parent / "elsewhere"
    path.parent.rename(elsewhere)
    (elsewhere / path.name).write_text(secret.read_text())
    path.parent.symlink_to(elsewhere)


def _huge(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**30)


def _binary(path: Path, _: Path) -> None:
    path.write_bytes(b"<sprite_memory >\n\xff\xfe\x00\n</sprite_memory>\n")


def _other_words(path: Path, _: Path) -> None:
    path.write_text("words")


def _pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


def _socket(path: Path, _: Path) -> None:
    # Socket paths must be short.
    here = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s")
    os.chdir(here)
    (path.parent / "s").rename(path)


@pytest.mark.parametrize("hostile", [_link, _linked_folder, _huge, _binary, _other_words, _pipe, _folder, _socket])
async def test_hook_ignores_hostile_boot_file(
    person: ClaudeCode, project: Path, boot: Path, tmp_path: Path, hostile: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "secret").write_text(BOOT)
    boot.unlink()
    hostile(boot, tmp_path / "secret")
    assert await begin(person, project) == NOTHING


@pytest.mark.parametrize("note", [b"\xff\0=\n", b"workspace=\n", b"workspace=/nowhere\npython=/bin/false\n", None])
async def test_hook_ignores_invalid_settings_note(
    person: ClaudeCode, project: Path, boot: Path, note: bytes | None
) -> None:
    path = person.home / ".config/sprite/claude-code"
    path.unlink()
    if note is None:
        path.mkdir()
    else:
        path.write_bytes(note)
    assert boot.exists()
    assert await begin(person, project) == NOTHING


async def test_hook_replaces_missing_python(person: ClaudeCode, project: Path, boot: Path) -> None:
    note = person.home / ".config/sprite/claude-code"
    note.write_text(f"workspace={boot.parents[3]}\npython=/nowhere/python\ncode=/nowhere\n")
    assert await begin(person, project) == (0, BOOT, "")


# --- memory behind a remote bridge ---


@asynccontextmanager
async def elsewhere(answer: Answer) -> AsyncIterator[str]:
    """Run a server with `/v1/memory/boot`. Yield its address."""
    application = web.Application()
    application.router.add_get("/v1/memory/boot", answer)
    application.router.add_get("/elsewhere", answer)
    # A hanging handler is cancelled when the hook disconnects.
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


def remote(tmp_path: Path, url: str, token: str) -> ClaudeCode:
    options = {"CLAUDE_PLUGIN_OPTION_BRIDGE_URL": url, "CLAUDE_PLUGIN_OPTION_TOKEN": token}
    return ClaudeCode(tmp_path / "home", extra=options)


async def test_hook_sends_project_and_token_to_bridge(tmp_path: Path, project: Path) -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.query["project"], request.headers["Authorization"]))
        return web.Response(text=BOOT)

    async with elsewhere(answer) as url:
        assert await begin(remote(tmp_path, f"{url}/", "planted-token"), project / "src", 1, REMOTE_PLUGIN) == (
            0,
            BOOT,
            "",
        )
    assert asked == [(str(project), "Bearer planted-token")]


async def test_hook_ignores_failing_bridge(tmp_path: Path, project: Path) -> None:
    followed: list[str] = []

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(PATIENCE)
        return web.Response()

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403, text="no")

    async def redirect(request: web.Request) -> web.Response:
        followed.append(request.path)
        raise web.HTTPFound("/elsewhere")

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"memory " * 10_000)

    async def binary(_: web.Request) -> web.Response:
        return web.Response(body=b"\xff\xfe")

    for answer in (hang, refuse, redirect, endless, binary):
        async with elsewhere(answer) as url:
            assert await begin(remote(tmp_path, url, "t"), project, 1, REMOTE_PLUGIN) == NOTHING, answer
    assert followed == ["/v1/memory/boot"], "the hook followed a redirect"


async def test_hook_sends_token_over_http_to_loopback_only(tmp_path: Path, project: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.host)
        return web.Response(text=BOOT)

    async with elsewhere(answer) as url:
        place = url.removeprefix("http://127.0.0.1")
        # This address is not in the loopback range, but reaches this machine.
        other = f"0.0.0.0{place}"  # noqa: S104
        # tests/pure/test_memory_parts.py has more cases.
        for plain in (f"http://{other}", f"http://127.0.0.1:1@{other}"):
            assert await begin(remote(tmp_path, plain, "t"), project, 1, REMOTE_PLUGIN) == NOTHING, plain
        assert asked == []
        # The token does not go through a proxy either.
        person = remote(tmp_path, f"http://localhost{place}", "t")
        person.extra = {**person.extra, "http_proxy": "http://127.0.0.1:9"}
        assert (await begin(person, project, 1, REMOTE_PLUGIN))[1] == BOOT
    assert len(asked) == 1


async def test_hook_with_unusable_address_prints_nothing(tmp_path: Path, project: Path) -> None:
    for url, token in (
        ("http://127.0.0.1:9", "t"),
        ("file:///etc/passwd", "t"),
        ("http://127.0.0.1:9", "t\r\nX-Other: 1"),
    ):
        assert await begin(remote(tmp_path, url, token), project, 1, REMOTE_PLUGIN) == NOTHING, url
    assert await begin(ClaudeCode(tmp_path / "home"), project, 1, REMOTE_PLUGIN) == NOTHING
