"""New files of the agent's commands that programs outside would run later: renamed until a person allows them."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sprite.undo.held import Held
from tests.undo_stage import Stage, opened, tree


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A workspace with a sandbox, in which `kept/.envrc` is read-only."""
    kept = tmp_path / "kept/.envrc"
    kept.parent.mkdir()
    kept.touch()
    async with opened(tmp_path, permissions="ask") as stage:
        (tmp_path / ".os/run/agent").write_text(shlex.join(["bwrap", "--ro-bind", str(kept), str(kept), "--"]))
        yield stage


class Person:
    """Answers each question, and keeps what was asked and what stays renamed."""

    def __init__(self, stage: Stage, *, allows: bool) -> None:
        self._allows = allows
        self.asked: list[Held] = []
        self.left: list[str] = []
        stage.tracker.ask_about, stage.tracker.on_left = self._ask, self._leave

    async def _ask(self, held: Held) -> bool:
        self.asked.append(held)
        return self._allows

    async def _leave(self, path: str) -> None:
        self.left.append(path)


async def bash(stage: Stage, script: str, *, pause: float = 0) -> None:
    """Run a script as the agent's command, in a turn of its own, which ends after a pause."""
    await stage.tracker.tool_began("t", "Bash", {"command": script})
    await asyncio.to_thread(subprocess.run, ["bash", "-ec", script], cwd=stage.folder, check=True, capture_output=True)
    stage.tracker.tool_ended("t")
    await asyncio.sleep(pause)
    await stage.turn(f"turn {time.time_ns()}", is_live=False)
    stage.tracker.ask()
    while stage.tracker._tasks:
        await asyncio.wait(list(stage.tracker._tasks))


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("echo x > .envrc", ".envrc"),
        ("mkdir -p a/.vscode; echo x > a/.vscode/tasks.json", "a/.vscode"),
        ("echo sub > .gitignore; mkdir sub; echo x > sub/.mcp.json", "sub/.mcp.json"),
        ("git init -q r; echo x > r/.git/hooks/pre-commit", "r/.git/hooks"),
        ("git init -q r; ln -s /bin/sh r/.git/hooks/pre-commit", "r/.git/hooks"),
        ("git init -q r; git -C r config core.fsmonitor ./x", "r/.git/config"),
        ("git init -q r; printf '[core] pager=./x\\n' >> r/.git/config", "r/.git/config"),
        ("git init -q r; printf '[include]\\n\\tpath = ../x\\n' >> r/.git/config", "r/.git/config"),
        ("git init -q r; git -C r config core.worktree /", "r/.git/config"),
        ("git init -q r; echo ../../evil > r/.git/commondir", "r/.git/commondir"),
        ("mkdir -p node_modules/evil; echo 'gitdir: node_modules/evil' > .git", ".git"),
        ("ln -s documents .husky", ".husky"),
    ],
)
async def test_new_file_that_runs_later_is_renamed(stage: Stage, script: str, path: str) -> None:
    person = Person(stage, allows=False)
    await bash(stage, script)
    assert ([held.path for held in person.asked], person.left) == ([path], [f"{path}.held"])
    assert not os.path.lexists(stage.folder / path)
    assert os.path.lexists(stage.folder / f"{path}.held")
    await bash(stage, "true")
    assert len(person.asked) == 1


async def test_new_hook_stands_before_samples(stage: Stage) -> None:
    person = Person(stage, allows=False)
    await bash(stage, "mkdir -p r; git init -q r; echo x > r/.git/hooks/a.sample; echo y > r/.git/hooks/update")
    assert person.asked[0].text.startswith("update:\ny\n")
    assert "a.sample:\nx\n" in person.asked[0].text


@pytest.mark.parametrize("script", ["echo x > .envrc", "git init -q r; echo x > r/.git/hooks/pre-commit"])
async def test_undo_removes_held_files(stage: Stage, script: str) -> None:
    before = tree(stage.folder)
    Person(stage, allows=False)
    # Beyond the tolerance of file times.
    await bash(stage, script, pause=0.12)
    assert list(stage.folder.rglob("*.held"))
    result = await stage.undo()
    assert (result.yours, result.conflicts, result.unkept) == ([], [], [])
    assert tree(stage.folder) == before


async def test_ordinary_work_with_git_is_not_renamed(stage: Stage) -> None:
    person = Person(stage, allows=False)
    name = "-c user.name=a -c user.email=a@b.c"
    script = f"""
git init -q r; cd r; git config user.name a; git {name} commit -q --allow-empty -m x; git branch two
git remote add origin https://example.org/r.git; git worktree add -q ../tree two; cd ..; git clone -q r clone
git init -q big; cd big; git -c protocol.file.allow=always submodule --quiet add ../r sub; git {name} commit -qm x
"""
    await bash(stage, script)
    assert (person.asked, list(stage.folder.rglob("*.held"))) == ([], [])


async def test_persons_files_keep_their_names(stage: Stage) -> None:
    person = Person(stage, allows=False)
    (stage.folder / ".envrc").write_text("mine")
    time.sleep(0.12)  # noqa: ASYNC251 - beyond the tolerance of file times
    await bash(stage, "true")
    # The agent cannot have written it: it is read-only inside.
    await bash(stage, "echo person > kept/.envrc")
    await stage.tracker.tool_began("w", "Write", {"file_path": str(stage.folder / ".npmrc")})
    (stage.folder / ".npmrc").write_text("the person was asked")
    stage.tracker.tool_ended("w")
    await stage.turn("m2", is_live=False)
    stage.tracker.ask()
    assert person.asked == []


async def test_allowed_file_gets_its_name_until_changed(stage: Stage) -> None:
    person = Person(stage, allows=True)
    envrc = stage.folder / ".envrc"
    await bash(stage, "echo one > .envrc")
    assert ([held.text for held in person.asked], envrc.read_text()) == (["one\n"], "one\n")
    await bash(stage, "true")
    assert len(person.asked) == 1
    await bash(stage, "echo two >> .envrc")
    assert [held.text for held in person.asked] == ["one\n", "one\ntwo\n"]


async def test_file_changed_after_question_stays_renamed(stage: Stage) -> None:
    person = Person(stage, allows=True)

    async def ask(held: Held) -> bool:
        (stage.folder / held.now).write_text("other")
        return True

    stage.tracker.ask_about = ask
    await bash(stage, "echo one > .envrc")
    assert person.left == [".envrc.held"]
    assert not (stage.folder / ".envrc").exists()
