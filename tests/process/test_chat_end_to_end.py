"""`python -m bridge chat` as people run it: real bridge, sprite, SDK and CLI on the offline model, over a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import ROOT

#: A first turn starts the CLI, and the end of a session curates: seconds each, more on a busy machine.
_PATIENCE_SECONDS = 180


def environment() -> dict[str, str]:
    """No key: the offline model answers. The sprite may act: what runs here is a throw-away workspace."""
    names = ("ANTHROPIC_", "SPRITE", "CLAUDE", "BRIDGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return kept | {"IS_SANDBOX": "1", "SPRITE_SPARE_SECONDS": "0"}


def chat(
    data: Path,
    *lines: str,
    options: Sequence[str] = ("--permissions", "bypass"),
    folder: Path = ROOT,
    **extra: str,
) -> str:
    """What a conversation of these lines, held in a folder, prints; it must end well, and in time."""
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "chat", "--data", data, *options],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(ROOT), **extra},
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # On a busy machine an agent takes a while to begin.
    said = [line for line in done.stderr.splitlines() if not line.startswith("bridge: waiting for the agent: ")]
    assert said == []
    assert "\x1b" not in done.stdout
    return done.stdout


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """A bridge that runs on the data already; yields its address."""
    command = [sys.executable, "-m", "bridge", "serve", "--port", "0", "--data", str(data), "--permissions", "bypass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment(), text=True) as bridge:
        try:
            assert bridge.stdout is not None
            yield bridge.stdout.readline().split()[-1].partition("/login")[0]
        finally:
            bridge.terminate()
            assert bridge.wait(_PATIENCE_SECONDS) == 0


@pytest.fixture(name="printed", scope="module")
def _printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A conversation about this and that."""
    return chat(
        tmp_path_factory.mktemp("talked") / "data",
        "hello there",
        "make a table card of apples 3, pears 5",
        "run `echo seen-by-a-person`",
        *("/memory", "/memory user.md", "/status"),
    )


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_a_message_gets_a_reply_and_the_stand_in_says_what_it_is(printed: str) -> None:
    banner, _, rest = printed.partition("hello there")
    assert "offline stand-in" in banner
    assert rest.partition("make a table")[0].strip()


def test_a_card_is_drawn_as_a_table(printed: str) -> None:
    after = printed.partition("▸ create_card")[2]
    cells = [line.strip("│ ").split() for line in after.splitlines() if line.startswith("│")]
    assert ["apples", "3"] in cells
    assert ["pears", "5"] in cells


def test_a_tool_runs_and_is_seen(printed: str) -> None:
    assert "▸ Bash  echo seen-by-a-person" in printed
    assert "✓ seen-by-a-person" in printed


def test_memory_shows_its_files(printed: str) -> None:
    for name in ("soul.md", "os.md", "tools.md", "files.md", "user.md", "context.md"):
        assert name in printed


def test_stacks_and_files_reach_the_sprite_and_forgetting_shows_what_it_would_take(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("from a person")
    printed = chat(
        data,
        "my name is Wilhelmina",
        f"/upload {file}",
        "/stacks new Plans",
        "/stacks",
        "/drift",
        "/forget Wilhelmina",
        "/edit user.md",
        "/files documents",
        "/get documents/notes.txt",
        "/get documents/none.txt",
        "/rm documents/notes.txt",
        folder=tmp_path,
    )
    # The first stands there already, and is not written over.
    assert (tmp_path / "notes (2).txt").read_text() == "from a person"
    assert "There is no file documents/none.txt" in printed
    assert "/rm needs a person" in printed
    assert "uploaded to documents/notes.txt" in printed
    assert (data / "workspaces/local/documents/notes.txt").read_text() == "from a person"
    assert any(line.split()[-3:] == ["Plans", "0", "cards"] for line in printed.splitlines())
    assert "nothing waits for your word" in printed
    assert "taken out for good: 1 turn" in printed
    assert "/forget needs a person" in printed
    assert "/edit needs a person" in printed
    assert "Wilhelmina" in chat(data, "what is my name?").partition("what is my name?")[2]


def test_a_second_run_remembers_the_first(data: Path) -> None:
    chat(data, "my name is Wilhelmina")
    printed = chat(data, "what is my name?", "/search Wilhelmina")
    answer = printed.partition("what is my name?")[2].partition("/search")[0]
    assert "Wilhelmina" in answer
    assert "Nothing found" not in printed


def test_a_bridge_that_runs_is_joined_and_left_running(data: Path) -> None:
    with serving(data):
        assert "the bridge that runs on" in chat(data, "my name is Wilhelmina")
        printed = chat(data, "what is my name?")
        assert "Wilhelmina" in printed.partition("what is my name?")[2]
        assert "stopping the sprite" not in printed


def test_a_bridge_elsewhere_is_talked_to_with_a_persons_token(data: Path) -> None:
    adding = [sys.executable, "-m", "bridge", "users", "add", "ada", "--data", str(data)]
    added = subprocess.run(adding, capture_output=True, cwd=ROOT, env=environment(), text=True, check=True).stdout
    token = next(line.split()[1] for line in added.splitlines() if line.split()[:1] == ["token"])
    with serving(data) as url:
        made = "run `echo a,b > artifacts/report.csv`"
        here = data.parent / "here"
        here.mkdir()
        spoken = (made, "hello there", "/get artifacts/report.csv", "/get .os/run/token")
        printed = chat(data, *spoken, options=("--url", url), folder=here, BRIDGE_TOKEN=token)
        assert [(path.name, path.read_text()) for path in here.iterdir()] == [("report.csv", "a,b\n")]
        assert "can be downloaded" in printed
        assert f"connected to {url}" in printed
        assert "Hello!" in printed
        command = [sys.executable, "-m", "bridge", "chat", "--url", url, "--token", "wrong"]
        done = subprocess.run(
            command, input="hi\n", capture_output=True, cwd=ROOT, env=environment(), text=True, check=False
        )
        assert done.returncode == 1
        assert "does not know this token" in done.stdout
