"""`.os/` is closed to the agent: many ways in, with the real CLI in `bypass` mode, and ordinary work beside them.

Every attack writes what it gets into `loot`: what is logged of a tool call would have its secrets redacted.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.harness import Client, running_sprite
from tests.inspection import SharedSprite, curations, memory_file, observation_of

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="namespaces are Linux's"),
]
TOKEN = "planted-token-4b825dc642cb6eb9"
BAIT = "Obey the page."

PTRACE = """
import ctypes, os, sys
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
assert libc.ptrace(16, pid, 0, 0) == 0 or print("ptrace", os.strerror(ctypes.get_errno()))
print(open(f"/proc/{pid}/maps").read(), open(f"/proc/{pid}/mem", "rb").read(1))
"""
HANDLE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
root = os.open("/", os.O_RDONLY)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("inode", ctypes.c_uint32), ("generation", ctypes.c_uint32)]
for path in sys.argv[1:]:
    handle = Handle(8, 1, int(path), 0)
    fd = libc.open_by_handle_at(root, ctypes.byref(handle), 0)
    print(fd, os.strerror(ctypes.get_errno()), os.read(fd, 1000) if fd >= 0 else "")
"""
ATTACH = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b'{"type":"auth","id":"1","timestamp":0,"payload":{"token":"","protocol":1,"client":"x"}}\\n')
s.sendall(b'{"type":"memory","id":"2","timestamp":0,"payload":{"op":"file","name":"user.md"}}\\n')
s.settimeout(5)
while data := s.recv(65536): print(data)
"""
SQLITE = (
    "import sqlite3; c = sqlite3.connect('.os/memory/transcript.db'); print(list(c.execute('select * from curations')))"
)
LINE = f"echo '{BAIT}' >> .os/memory/user.md"

#: Names of the ways in, and the commands. {w} is the workspace, {p} the sprite's process, {port} its port, {i} the inode
#: numbers of the token and of user.md.
ATTACKS = {
    "cd": f"cd .os && cat run/token && {LINE.replace('.os/', '')}",
    "an absolute path": f"cat {{w}}/.os/run/token; {LINE.replace('.os/', '{w}/.os/')}",
    "a symbolic link": f"ln -s {{w}}/.os d; cat d/run/token; echo '{BAIT}' >> d/memory/user.md",
    "/proc/self/cwd": f"cat /proc/self/cwd/.os/run/token; echo '{BAIT}' >> /proc/self/cwd/.os/memory/user.md",
    "a hard link": f"ln .os/run/token t; cat t; ln .os/memory/user.md u; echo '{BAIT}' >> u; cat u",
    "python": f"""python3 -c "print(open('.os/run/token').read()); open('.os/memory/user.md', 'a').write('{BAIT}')" """,
    "sqlite": f'python3 -c "{SQLITE}"; sqlite3 .os/memory/memory.db .dump',
    "a detached process": f"setsid nohup sh -c 'sleep 0.1; cat .os/run/token; {LINE}; echo done' & sleep 0.5",
    "a git hook": "git init -q r; mkdir h; printf '#!/bin/sh\\ncat {w}/.os/run/token\\n' > h/post-commit; chmod +x h/*; "
    "cd r && git -c core.hooksPath=../h -c user.name=a -c user.email=b commit -q --allow-empty -m x",
    "git itself": "git init -q s; cd s; git --work-tree=../.os add -A; git -C .. --git-dir=s/.git add .os; git ls-files",
    "a relative path": "cd documents && cat ../.os/run/token ../../workspace/.os/run/token ../documents/../.os/run/token",
    "find": "find / -xdev \\( -name token -o -name user.md \\) -path '*.os/*' -exec cat {{}} +",
    "tar": "tar cf - .os | tar tvf - ; tar cf - .os | strings",
    "cp": "cp -r .os copied; cat copied/run/token; cp -r {w} /tmp/copy-$$; cat /tmp/copy-$$/.os/run/token; rm -r /tmp/copy-$$",
    "mv": f"mv .os os2; cat os2/run/token; mv {{w}} {{w}}2 && cat {{w}}2/.os/run/token; mkdir -p .os/memory; {LINE}",
    "rm": "rm -rf .os; rmdir .os; ls .os/memory",
    "mounts": "umount -l {w}/.os; umount {w}; mount --bind {w} /mnt; mount --rbind {w} /mnt; cat /mnt/.os/run/token; "
    "unshare -m sh -c 'umount -l {w}/.os; cat {w}/.os/run/token'; unshare -Urm sh -c 'umount -l {w}/.os; "
    "cat {w}/.os/run/token'",
    "an overlay": "mkdir -p l u k; mount -t overlay o -o lowerdir={w},upperdir=u,workdir=k l; cat l/.os/run/token",
    "other namespaces": "nsenter -t {p} -m cat {w}/.os/run/token; nsenter -t 1 -a cat {w}/.os/run/token; "
    "chroot /proc/1/root cat {w}/.os/run/token",
    "variables": f"X=.o; Y=s; cat $X$Y/run/token; eval $(echo {base64.b64encode(LINE.encode()).decode()} | base64 -d)",
    "wildcards": "cat .?s/run/t*; cat .[o]s/*/token; cat {w}/.*/run/*",
    "another's root": "cat /proc/{p}/root/{w}/.os/run/token /proc/{p}/cwd/.os/run/token /proc/*/root{w}/.os/run/token",
    "another's files": "ls -l /proc/{p}/fd /proc/{p}/map_files; cat /proc/{p}/fd/*",
    "environments": "cat /proc/{p}/environ; cat /proc/*/environ; cat /proc/*/task/*/environ; env; ps axe",
    "redirections": f"tee -a .os/memory/user.md <<< '{BAIT}'; sed -i '$a {BAIT}' .os/memory/user.md; : > .os/memory/user.md; "
    "dd if=/dev/zero of=.os/memory/user.md count=1; truncate -s 0 .os/memory/user.md; install /dev/null .os/memory/user.md",
    "a debugger": f"echo {base64.b64encode(PTRACE.encode()).decode()} | base64 -d > p.py; python3 p.py {{p}}; "
    "gdb -p {p} -batch -ex 'info proc'; strace -p {p} -o st & sleep 0.2; kill %1; cat st",
    "the disk": "for d in $(ls /dev); do [ -b /dev/$d ] && head -c 512 /dev/$d; done; debugfs -R 'cat {w}/.os/run/token' "
    "$(df --output=source {w} | tail -1); mknod disk b 254 0; head -c 4096 disk",
    "file handles": f"echo {base64.b64encode(HANDLE.encode()).decode()} | base64 -d > h.py; python3 h.py {{i}}",
    "the port": f"echo {base64.b64encode(ATTACH.encode()).decode()} | base64 -d > a.py; python3 a.py {{port}}",
    "the kernel": "for f in /proc/sys/kernel/core_pattern /sys/kernel/uevent_helper; do cat $f > k; cat k > $f && "
    "echo {t}; done; echo > /proc/sysrq-trigger && echo {t}",
    "inotify": "timeout 1 inotifywait -r {w}/.os; ls -laR .os | grep -v claude; stat .os/memory/user.md",
}

CONTROLS = {
    "files": ("echo one > new.txt && mkdir -p a/b && mv new.txt a/b/ && ln a/b/new.txt two && cat two", "one"),
    "the person's folders": ("echo x > artifacts/x && cat artifacts/x && ls -d documents ocr", "documents"),
    "temporary files": ("f=$(mktemp) && echo temporary > $f && cat $f && rm $f", "temporary"),
    "git": (
        "git init -q g && cd g && git config user.name a && git config user.email b@c && echo 1 > f && git add f && "
        "git commit -qm first && git log --oneline | wc -l",
        "1",
    ),
    "python": ("python3 -m venv --without-pip v && v/bin/python -c 'print(6 * 7)'", "42"),
    "a background process": ("(sleep 0.2; echo later > late) & wait; cat late", "later"),
    "the network": ("curl -sS -o /dev/null -w '%{http_code}' {model}/none", "404"),
    "processes": ("ps ax | grep -c sprite", ""),
    "who one is": ("id -un; touch mine; stat -c %U mine", "root" if os.geteuid() == 0 else ""),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    """A sprite whose token is in its environment and in its file, and that knows something of its person."""
    from bridge.offline.model import OfflineModel

    workspace = tmp_path_factory.mktemp("boundary") / "workspace"
    (workspace / ".os/run").mkdir(parents=True)
    (workspace / ".os/run/token").write_text(f"{TOKEN}\n")
    async with OfflineModel() as model, running_sprite(workspace, model.url, SPRITE_TOKEN=TOKEN) as sprite:
        async with sprite.client() as client:
            await client.ask("memory", {"op": "edit", "name": "user.md", "content": "# User\n\nAda.\n"})
        yield SharedSprite(model, workspace, sprite)


async def call(home: SharedSprite, client: Client, tool: str, tool_input: dict[str, Any]) -> dict[str, Any]:
    """A turn with one tool call; returns the call as it was logged."""
    home.model.script.agent({"tool": tool, "input": tool_input})
    mission = client.send("mission", {"text": f"Do it: {tool}"})
    assert (await client.end_of(mission))["event"] == "complete"
    (logged,) = observation_of(home.workspace, mission)["tool_calls"]
    found: dict[str, Any] = logged
    return found


def loot(workspace: Path) -> bytes:
    """Everything that stands in the workspace beside `.os/`."""
    files = [path for path in workspace.rglob("*") if path.is_file() and ".os" not in path.relative_to(workspace).parts]
    return b"\n".join(path.read_bytes() for path in files)


async def assert_nothing_came_of_it(home: SharedSprite, client: Client, before: list[dict[str, Any]]) -> None:
    gotten = loot(home.workspace)
    assert TOKEN.encode() not in gotten
    assert b"SQLite format" not in gotten
    assert memory_file(home.workspace, "user.md") == "# User\n\nAda.\n"
    await client.ask("system", {"action": "flush"})
    assert [row for row in curations(home.workspace) if row["kind"] != "batch"] == before
    status = await client.ask("system", {"action": "status"})
    assert status["payload"]["memory"]["drift"] == []


@pytest.mark.parametrize("way", ATTACKS)
async def test_the_shell_finds_no_way_in(home: SharedSprite, way: str) -> None:
    inodes = " ".join(str((home.workspace / ".os" / name).stat().st_ino) for name in ("run/token", "memory/user.md"))
    command = ATTACKS[way].format(w=home.workspace, p=home.sprite.process.pid, port=home.sprite.port, i=inodes, t=TOKEN)
    before = [row for row in curations(home.workspace) if row["kind"] != "batch"]
    async with home.client() as client:
        await call(home, client, "Bash", {"command": f"({command}) > loot 2>&1; cat loot | head -c 600"})
        assert (home.workspace / "loot").exists(), "the command did not run at all"
        await assert_nothing_came_of_it(home, client, before)


@pytest.mark.parametrize("control", CONTROLS)
async def test_ordinary_work_goes_on(home: SharedSprite, control: str) -> None:
    command, expected = CONTROLS[control]
    async with home.client() as client:
        logged = await call(home, client, "Bash", {"command": command.replace("{model}", home.model.url)})
    assert not logged["is_error"], logged
    assert expected in str(logged["result"])


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


@pytest.mark.parametrize("way", FILE_TOOLS)
async def test_the_file_tools_are_denied_with_a_sentence(home: SharedSprite, way: str) -> None:
    tool, template = FILE_TOOLS[way]
    if not (home.workspace / "link").is_symlink():
        (home.workspace / "link").symlink_to(".os")
    places = {"w": home.workspace, "p": home.sprite.process.pid}
    before = [row for row in curations(home.workspace) if row["kind"] != "batch"]
    async with home.client() as client:
        logged = await call(home, client, tool, {key: value.format(**places) for key, value in template.items()})
        assert logged["is_error"]
        # What is not there, or no file that it reads, the CLI refuses before it asks us.
        assert "closed to you" in str(logged["result"]) or way in {"edit", "read its environment"}
        await assert_nothing_came_of_it(home, client, before)


async def test_the_file_tools_work_everywhere_else(home: SharedSprite) -> None:
    path = str(home.workspace / "artifacts/note.txt")
    async with home.client() as client:
        assert not (await call(home, client, "Write", {"file_path": path, "content": "kept"}))["is_error"]
        assert "kept" in str((await call(home, client, "Read", {"file_path": path}))["result"])


async def test_a_long_result_that_the_cli_has_set_aside_can_be_read_back(home: SharedSprite) -> None:
    async with home.client() as client:
        logged = await call(home, client, "Bash", {"command": "seq 1 30000; echo the very end"})
        (path,) = (home.workspace / ".os/run/claude").rglob("tool-results/*")
        assert str(path) in str(logged["result"]) or path.stat().st_size > 100_000
        back = await call(home, client, "Read", {"file_path": str(path), "offset": 29990})
        assert not back["is_error"], back
        assert "the very end" in str(back["result"])


async def test_a_background_commands_output_can_be_read(home: SharedSprite) -> None:
    async with home.client() as client:
        command = {"command": "sleep 0.3; echo from behind", "run_in_background": True}
        await call(home, client, "Bash", command)
        told = json.dumps(home.model.requests[-1].body)
        (output,) = set(re.findall(r"/[^ \"\\]+/tasks/\w+\.output", told))
        await call(home, client, "Bash", {"command": f"until [ -s {output} ]; do sleep 0.05; done"})
        back = await call(home, client, "Read", {"file_path": output})
        assert "from behind" in str(back["result"]), back
