"""Costs of the sandbox: at the start of a session, per command, and in questions for a person.

Forty tasks as a developer gives them run in `ask` mode, each in its own turn. A question about a host is allowed. Every
other question is denied, so that a task which needs one fails.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.report import line, spread
from sprite.config import Settings
from sprite.sandbox.sandbox import bundled_cli, find_boundary, sandboxed
from tests.harness import sprite_process
from tests.inspection import observation_of
from tests.scripted_model import OfflineModel

STARTS, COMMANDS, ROUNDS = 40, 300, 7
MOST_START_MS, MOST_COMMAND_MS = 100.0, 2.0

#: Each prints "done" at its end if it worked.
TASKS = {
    "write a file": "echo one > notes.md && grep -q one notes.md",
    "make folders": "mkdir -p src/app tests && touch src/app/__init__.py",
    "rename files": "mkdir -p mv && touch mv/a && mv mv/a mv/b && ls mv/b",
    "remove files": "mkdir -p gone && touch gone/a && rm -r gone && [ ! -e gone ]",
    "find and replace": "printf 'old\\n' > re.txt && sed -i s/old/new/ re.txt && grep -q new re.txt",
    "search the code": "grep -rn one . --include=*.md | head -1",
    "reach a new host": "curl -sSf --noproxy '' -x $HTTP_PROXY http://localhost:PORT/ | grep -q hello",
    "temporary file": "f=$(mktemp) && echo x > $f && cat $f && rm $f",
    "make an archive": "tar czf notes.tgz notes.md && tar tzf notes.tgz",
    "git init": "git init -q repo && cd repo && git status --short",
    "git commit": "cd repo && echo 1 > f && git add f && git -c user.name=a -c user.email=a@b.c commit -qm one",
    "git branch": "cd repo && git branch two && git branch | grep -q two",
    "git switch": "cd repo && git switch -q two && git switch -q -",
    "git merge": "cd repo && git merge -q two",
    "git stash": "cd repo && echo 2 > f && git -c user.name=a -c user.email=a@b.c stash -q && git -c user.name=a "
    "-c user.email=a@b.c stash pop -q && git checkout -q f",
    "git log": "cd repo && git log --oneline | grep -q one",
    "git diff": "cd repo && echo 3 > f && git diff | grep -q '+3'",
    "git tag": "cd repo && git tag v1 && git tag | grep -q v1",
    "git clone": "rm -rf clone && git clone -q repo clone && ls clone/f",
    "git worktree": "cd repo && git worktree add -q ../tree two && ls ../tree/f",
    "git blame": "cd repo && git blame f | head -1",
    "git archive": "cd repo && git archive HEAD -o ../repo.tar",
    "commit in an existing repository": "cd old && echo 1 > g && git add g && git -c user.name=a -c user.email=a@b.c "
    "commit -qm g && git branch new",
    "npm init": "mkdir -p js && cd js && npm init -y > /dev/null && ls package.json",
    "npm script": "cd js && npm pkg set scripts.hi='echo hi' && npm run -s hi | grep -q hi",
    "npm install of a folder": "mkdir -p lib && cd lib && npm init -y > /dev/null && cd ../js && "
    "npm install --no-audit --no-fund --offline ../lib && ls node_modules/lib/package.json",
    "node": 'node -e \'require("fs").writeFileSync("n.txt", "1")\' && cat n.txt',
    "python": "python3 -c \"open('p.txt', 'w').write('1')\" && cat p.txt",
    "virtual environment": "python3 -m venv --without-pip env && env/bin/python -c 'print(1)'",
    "python tests": "printf 'import unittest as u\\nclass T(u.TestCase):\\n    def test(self): pass\\n' > test_x.py && "
    "python3 -m unittest -q test_x",
    "pip": "python3 -m pip --version",
    "make": "printf 'all:\\n\\techo built > built\\n' > Makefile && make -s && cat built",
    "compile C": "printf 'int main(void) { return 0; }\\n' > m.c && cc m.c -o m && ./m",
    "sqlite": "python3 -c \"import sqlite3; c = sqlite3.connect('d.db'); c.execute('create table t (x)'); c.commit()\"",
    "start a server": "(python3 -m http.server 8000 > /dev/null 2>&1 & echo $! > pid); for i in 1 2 3 4 5 6 7 8 9; do "
    "curl -s http://127.0.0.1:8000/notes.md && break; sleep 0.2; done; kill $(cat pid)",
    "background work": "(sleep 0.1; echo late > late.txt) & wait; cat late.txt",
    "processes": "ps -e > /dev/null 2>&1 || ls /proc > /dev/null",
    "read the system": "cat /etc/os-release && uname -a && df .",
    "change modes": "printf '#!/bin/sh\\necho x\\n' > run.sh && chmod +x run.sh && ./run.sh",
    "write in the home directory": "mkdir -p ~/.config/tool && echo 1 > ~/.config/tool/rc && cat ~/.config/tool/rc",
}


def measure_starts(settings: Settings) -> None:
    """Compare starts of the CLI without and with the sandbox, alternating, so that noise affects both."""
    boundary, cli = find_boundary(settings), bundled_cli()
    assert boundary.engine is not None, boundary.words
    assert cli is not None
    bare: list[float] = []
    inside: list[float] = []
    for _ in range(STARTS):
        bare.append(_elapsed([str(cli), "--version"], settings.workspace))
        # The command is built at each start.
        started = time.perf_counter()
        command = sandboxed(settings, boundary.engine, {cli: "bin/claude"})
        building = (time.perf_counter() - started) * 1000
        program = str(settings.run / "bin/claude")
        inside.append(building + _elapsed([*command, program, "--version"], settings.workspace))
    added = statistics.median(inside) - statistics.median(bare)
    value = f"{added:.1f} ms ({spread(inside)} - {spread(bare)}), least {min(inside) - min(bare):.1f}"
    line("added to a session's start", value, f"<= {MOST_START_MS:g} ms", ok=added <= MOST_START_MS)

    script = f"for i in $(seq {COMMANDS}); do /bin/true; done"
    bare, inside = [], []
    for _ in range(ROUNDS):
        for wrapped, times in (([], bare), (sandboxed(settings, boundary.engine, {}), inside)):
            nothing = _elapsed([*wrapped, "/bin/bash", "-c", "true"], settings.workspace)
            times.append((_elapsed([*wrapped, "/bin/bash", "-c", script], settings.workspace) - nothing) / COMMANDS)
    added = statistics.median(inside) - statistics.median(bare)
    value = f"{added:.2f} ms ({spread(inside)} - {spread(bare)})"
    line("added to a command", value, f"<= {MOST_COMMAND_MS:g} ms", ok=added <= MOST_COMMAND_MS)


def _elapsed(command: list[str], folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return (time.perf_counter() - started) * 1000


async def count_questions(workspace: Path) -> None:
    """Run the tasks, and report their questions and failures."""
    questions: list[int] = []
    impossible: list[str] = []
    async with (
        OfflineModel() as model,
        sprite_process(workspace, model.url, permissions="ask", SPRITE_TESTS_EGRESS_INSIDE="1") as sprite,
        sprite.client() as client,
        await asyncio.start_server(_answer, "127.0.0.1", 0) as server,
    ):
        port = str(server.sockets[0].getsockname()[1])
        for name, command in TASKS.items():
            bash = {"command": f"(cd {workspace} && {command.replace('PORT', port)}) && echo done"}
            model.script.agent({"on": "prompt", "blocks": [{"type": "tool_use", "name": "Bash", "input": bash}]})
            mission, asked = client.send("mission", {"text": "Do it"}), 0
            while True:
                message = await client.until(
                    lambda m: m["type"] == "permission_request" or m["payload"].get("event") in {"complete", "error"}
                )
                if message["type"] == "agent_event":
                    break
                asked += 1
                decision = "allow" if message["payload"]["tool"] == "network" else "deny"
                answer = {"request_id": message["payload"]["request_id"], "decision": decision}
                await client.ask("permission", answer)
            questions.append(asked)
            calls = observation_of(workspace, mission)["tool_calls"]
            if not calls or calls[0]["is_error"] or "done" not in str(calls[0]["result"]):
                impossible.append(name)
                print(f"      {name}: {calls[0]['result'] if calls else message}")
    median, most = statistics.median(questions), max(questions)
    line(f"questions of {len(TASKS)} tasks", f"median {median:g}, most {most}", "median 0, most 2", ok=most <= 2)
    line("impossible tasks", ", ".join(impossible) or "none", "none", ok=not impossible)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    writer.close()


def main() -> None:
    """Measure in a new workspace."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder).resolve() / "measured")
        for path in (settings.memory, settings.run):
            path.mkdir(parents=True)
        measure_starts(settings)
        worked = Path(folder).resolve() / "tasks/workspace"
        worked.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(worked / "old")], check=True)  # noqa: S607 - whichever git there is
        asyncio.run(count_questions(worked))


if __name__ == "__main__":
    main()
