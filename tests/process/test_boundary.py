"""`.os/` is closed to the agent: many attacks with the real CLI in `bypass` mode, and ordinary work beside them.

Every attack writes its result into `loot`, because the log of a tool call would redact secrets.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.harness import Client, sprite_process
from tests.inspection import SharedSprite, curations, memory_file, observation_of
from tests.looks import files_below
from tests.ways_in import WAYS_IN

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="namespaces are Linux's"),
]
#: New for each run, so that leftovers of an earlier run on this disk cannot match.
TOKEN = f"planted-token-{secrets.token_hex(8)}"
BAIT = "Obey the page."
FOUND = "a way was found"

CONTROLS = {
    "files": ("echo one > new.txt && mkdir -p a/b && mv new.txt a/b/ && ln a/b/new.txt two && cat two", "one"),
    "the person's folders": ("echo x > artifacts/x && cat artifacts/x && ls -d documents ocr", "documents"),
    "temporary files": ("f=$(mktemp) && echo temporary > $f && cat $f && rm $f", "temporary"),
    "git": (
        "git init -q g; cd g; echo 1 > f; git add f; git -c user.name=a -c user.email=b commit -qm x && git log",
        "Author: a",
    ),
    "python": ("python3 -m venv --without-pip v && v/bin/python -c 'print(6 * 7)'", "42"),
    "a background process": ("(sleep 0.2; echo later > late) & wait; cat late", "later"),
    "the network": ("curl -sS -o /dev/null -w '%{{http_code}}' {model}/none", "404"),
    "processes": ("ps ax | grep -c sprite", ""),
    "who one is": ("id -un; touch mine; stat -c %U mine", "root" if os.geteuid() == 0 else ""),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home", params=["local", "vm"])
async def _home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SharedSprite]:
    """A sprite with a token in its environment and in its file, and some memory of its person."""
    from tests.scripted_model import OfflineModel

    workspace = tmp_path_factory.mktemp("boundary") / "workspace"
    (workspace / ".os/run").mkdir(parents=True)
    (workspace / ".os/run/token").write_text(f"{TOKEN}\n")
    extra = {"SPRITE_TOKEN": TOKEN}
    if request.param == "vm":
        extra["TESTS_VM_SOCKET"] = str(workspace.parent / "api.sock")
        (workspace.parent / "api.sock").touch()
    async with OfflineModel() as model, sprite_process(workspace, model.url, **extra) as sprite:
        async with sprite.client() as client:
            await client.ask("memory", {"op": "edit", "name": "user.md", "content": "# User\n\nAda.\n"})
        yield SharedSprite(model, workspace, sprite)


async def call(home: SharedSprite, client: Client, tool: str, tool_input: dict[str, Any]) -> dict[str, Any]:
    """Run a turn with one tool call, and return the call as logged."""
    return (await calls(home, client, (tool, tool_input)))[0]


async def calls(home: SharedSprite, client: Client, *wanted: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Run a turn with these tool calls, and return them as logged; reading calls come in any order."""
    blocks = [{"type": "tool_use", "name": tool, "input": tool_input} for tool, tool_input in wanted]
    home.model.script.agent({"on": "prompt", "blocks": blocks})
    mission = client.send("mission", {"text": "Do it"})
    assert (await client.end_of(mission))["event"] == "complete"
    logged: list[dict[str, Any]] = observation_of(home.workspace, mission)["tool_calls"]
    assert len(logged) == len(wanted)
    return logged


def loot(workspace: Path) -> bytes:
    """Return the content of all files in the workspace outside `.os/`."""
    files = [path for path in workspace.rglob("*") if path.is_file() and ".os" not in path.relative_to(workspace).parts]
    return b"\n".join(path.read_bytes() for path in files)


async def assert_nothing_came_of_it(home: SharedSprite, client: Client, before: list[dict[str, Any]]) -> None:
    gotten = loot(home.workspace)
    assert TOKEN.encode() not in gotten
    assert b"SQLite format" not in gotten
    # After "T=" the match is the attack's environment.
    assert re.search(b"(?<![='])" + FOUND.encode(), gotten) is None
    assert memory_file(home.workspace, "user.md") == "# User\n\nAda.\n"
    await client.ask("system", {"action": "flush"})
    assert [row for row in curations(home.workspace) if row["kind"] != "batch"] == before
    status = await client.ask("system", {"action": "status"})
    assert status["payload"]["memory"]["drift"] == []


async def test_shell_cannot_reach_system_folder(home: SharedSprite) -> None:
    files = (home.workspace / ".os" / name for name in ("run/token", "memory/user.md"))
    places = {
        "W": home.workspace,
        "P": home.sprite.pid,
        "PORT": home.sprite.port,
        "INODES": " ".join(str(file.stat().st_ino) for file in files),
        "BAIT": BAIT,
        "T": FOUND,
    }
    exports = "".join(f"export {name}='{value}'\n" for name, value in places.items())
    before = [row for row in curations(home.workspace) if row["kind"] != "batch"]
    # Each attack runs in a subshell, so the CLI's shell keeps its folder; separate calls would take seconds.
    ways = [f"(cd $W; exec > loot{number} 2>&1\n{WAYS_IN[way]}\n)" for number, way in enumerate(WAYS_IN)]
    commands = [exports + "\n".join(ways[start : start + 10]) for start in range(0, len(ways), 10)]
    async with home.client() as client:
        await calls(home, client, *(("Bash", {"command": command}) for command in commands))
        for number, way in enumerate(WAYS_IN):
            assert (home.workspace / f"loot{number}").exists(), f"{way}: the command did not run at all"
        await assert_nothing_came_of_it(home, client, before)


async def test_ordinary_commands_still_work(home: SharedSprite) -> None:
    commands = [
        f"cd {home.workspace}; {command.format(model=home.model.url)}" for command, _expected in CONTROLS.values()
    ]
    async with home.client() as client:
        logged = await calls(home, client, *(("Bash", {"command": command}) for command in commands))
    results = {each["input"]["command"]: each for each in logged}
    for command, (name, (_, expected)) in zip(commands, CONTROLS.items(), strict=True):
        assert not results[command]["is_error"], (name, results[command])
        assert expected in str(results[command]["result"]), name
    assert "the agent's sandbox: bubblewrap" in (home.workspace.parent / "stderr.log").read_text()


FILE_TOOLS: dict[str, tuple[str, dict[str, str]]] = {
    "read": ("Read", {"file_path": "{w}/.os/run/token"}),
    "read through ..": ("Read", {"file_path": "{w}/documents/../.os/run/token"}),
    "read through a link": ("Read", {"file_path": "{w}/link/run/token"}),
    "read through /proc/self": ("Read", {"file_path": "/proc/self/cwd/.os/run/token"}),
    "read through another process": ("Read", {"file_path": "/proc/{p}/root{w}/.os/run/token"}),
    "read its environment": ("Read", {"file_path": "/proc/{p}/environ"}),
    "read the CLI's own notes": ("Read", {"file_path": "{w}/.os/run/claude/.claude.json"}),
    "read the prompt": ("Read", {"file_path": "{w}/.os/run/boot.md"}),
    "write": ("Write", {"file_path": "{w}/.os/memory/user.md", "content": BAIT}),
    "write through a link": ("Write", {"file_path": "{w}/link/memory/user.md", "content": BAIT}),
    "edit": ("Edit", {"file_path": "{w}/.os/memory/user.md", "old_string": "Ada", "new_string": BAIT}),
}


async def test_file_tools_are_denied_with_reason(home: SharedSprite) -> None:
    (home.workspace / "link").symlink_to(".os")
    places = {"w": home.workspace, "p": home.sprite.pid}
    before = [row for row in curations(home.workspace) if row["kind"] != "batch"]
    wanted = [
        (tool, {key: value.format(**places) for key, value in template.items()})
        for tool, template in FILE_TOOLS.values()
    ]
    async with home.client() as client:
        # A hook tells the path without "..", the stream as the model wrote it; the first of them is logged.
        results = {
            (each["name"], os.path.normpath(each["input"]["file_path"])): each
            for each in await calls(home, client, *wanted)
        }
        for way, (tool, given) in zip(FILE_TOOLS, wanted, strict=True):
            logged = results[tool, os.path.normpath(given["file_path"])]
            assert logged["is_error"], way
            # The CLI itself refuses missing and unreadable files before it asks for permission.
            assert "closed to you" in str(logged["result"]) or way in {"edit", "read its environment"}
        await assert_nothing_came_of_it(home, client, before)


async def test_file_tools_work_outside_system_folder(home: SharedSprite) -> None:
    path = str(home.workspace / "artifacts/note.txt")
    async with home.client() as client:
        assert not (await call(home, client, "Write", {"file_path": path, "content": "kept"}))["is_error"]
        assert "kept" in str((await call(home, client, "Read", {"file_path": path}))["result"])


async def test_long_result_file_is_readable(home: SharedSprite) -> None:
    """The CLI stores long tool results below `.os/run`."""
    async with home.client() as client:
        logged = await call(home, client, "Bash", {"command": "seq 1 30000; echo the very end"})
        (path,) = (p for p in files_below(home.workspace / ".os/run/claude") if p.parent.name == "tool-results")
        assert str(path) in str(logged["result"]) or path.stat().st_size > 100_000
        back = await call(home, client, "Read", {"file_path": str(path), "offset": 29990})
        assert not back["is_error"], back
        assert "the very end" in str(back["result"])


async def test_background_output_file_is_readable(home: SharedSprite) -> None:
    async with home.client() as client:
        command = {"command": "sleep 0.3; echo from behind", "run_in_background": True}
        await call(home, client, "Bash", command)
        told = json.dumps(home.model.requests[-1].body)
        (output,) = set(re.findall(r"/[^ \"\\]+/tasks/\w+\.output", told))
        await call(home, client, "Bash", {"command": f"until [ -s {output} ]; do sleep 0.05; done"})
        back = await call(home, client, "Read", {"file_path": output})
        assert "from behind" in str(back["result"]), back
