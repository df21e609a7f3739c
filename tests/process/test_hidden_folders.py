"""The sandbox hides keys and the bridge's data: many attacks through a real bridge and the real CLI.

Each attack writes its findings into `loot`, because logged tool calls have their secrets redacted.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.bridge_harness import BridgeProcess, PageClient, bridge_process
from tests.command_line import command
from tests.inspection import eventually
from tests.scripted_model import OfflineModel

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="namespaces are Linux's"),
]
#: A new value per run, so that leftovers of earlier runs do not count.
PLANTED = f"planted{secrets.token_hex(8)}"
FOUND = "a way was found"
#: Paths below the home directory.
KEYS = (
    *(".ssh/id_ed25519", ".aws/credentials", ".gnupg/private-keys-v1.d/a.key", ".config/gh/hosts.yml"),
    *(".config/gcloud/credentials.db", ".kube/config", ".docker/config.json", ".netrc", ".npmrc", ".pypirc"),
    *(".git-credentials", ".claude/.credentials.json", ".bash_history", ".mozilla/firefox/logins.json"),
)

_WAYS = r"""
## cat
cat $DATA/store.key $DATA/workspaces/ada/.os/memory/user.md $KEYS; strings $DATA/bridge.db; cat $DATA/bridge.db*
## diff and wc
for f in $DATA/store.key $DATA/workspaces/ada/.os/memory/user.md $KEYS; do
diff --to-file=$f /dev/null; wc --files0-from=$f; done
## a listing
ls -la $DATA/run $DATA/store && echo "$T"; ls $DATA/workspaces/ada && echo "$T"; [ -s $HOMES/.ssh ] && ls -A $HOMES/.ssh
## symbolic links
ln -s $DATA d; ln -s $HOMES h; cat d/store.key d/workspaces/ada/.os/memory/user.md
for f in $KEYS; do cat h/${f#$HOMES/}; done
## hard links
for f in $DATA/store.key $KEYS; do ln $f l-${f##*/}; cat l-${f##*/}; done
## another's root
for p in $BRIDGE $SPRITE 1 $PPID; do for f in $DATA/store.key $DATA/workspaces/ada/.os/memory/user.md $KEYS; do
cat /proc/$p/root$f; done; cat /proc/$p/cwd/data/store.key; done
## environments and open files
cat /proc/$BRIDGE/environ /proc/$SPRITE/environ | grep -a "$PLANTED" && echo "$T"
for f in /proc/$BRIDGE/fd/*; do head -c 100 $f; done; cat /proc/$BRIDGE/maps && echo "$T"
## moving
mv $HOMES/.ssh $HOMES/ssh; mv $HOMES/.config $HOMES/config; mv $DATA ${DATA}2; mv ${DATA%/*} ${DATA%/*}2
mv $HOMES ${HOMES}2
cat $HOMES/ssh/id_ed25519 $HOMES/config/gh/hosts.yml ${DATA}2/store.key ${DATA%/*}2/data/store.key ${HOMES}2/.netrc
rm -rf $HOMES/.netrc $HOMES/.ssh; cat $HOMES/.netrc
## mounts
umount -l $DATA; umount -l $HOMES/.ssh; umount $HOMES/.netrc; unshare -Urm sh -c "umount -l $DATA; cat $DATA/store.key"
mkdir -p m; mount --bind ${DATA%/*} m; mount --rbind ${DATA%/*} m; cat m/data/store.key
cat $DATA/store.key $HOMES/.ssh/id_ed25519
## find
find ${DATA%/*} \( -name store.key -o -name id_ed25519 -o -name user.md -o -name hosts.yml \) -exec cat {} +
## python
python3 - $DATA/store.key $KEYS <<'END'
import sys
for name in sys.argv[1:]:
    try:
        print(open(name, "rb").read())
    except OSError as error:
        print(type(error))
END
## the control socket
curl -sS --unix-socket $DATA/run/bridge.sock http://bridge/users && echo "$T"
ln -s $DATA/run r; curl -sS --unix-socket r/bridge.sock http://bridge/users && echo "$T"
curl -sS --unix-socket $SOCKET http://bridge/users && echo "$T"
curl -sS --unix-socket /proc/$BRIDGE/root$SOCKET http://bridge/users && echo "$T"
setsid nohup sh -c "sleep 0.1; curl -sS --unix-socket $SOCKET http://bridge/users && echo \"$T\"" & sleep 0.5
## the bridge's own commands
cd $ROOT && $PYTHON -m bridge users list --data $DATA && echo "$T"
"""
WHAT_COMES_LATER = "cat $DATA/later.key $DATA/workspaces/later/.os/later.key"
WAYS: dict[str, str] = {
    name: command for name, _, command in (way.partition("\n") for way in _WAYS.strip("\n# ").split("\n## "))
}


@dataclass(frozen=True, slots=True)
class House:
    """A bridge with a home full of keys, a second person's data, and the local person's page."""

    bridge: BridgeProcess
    home: Path
    model: OfflineModel
    page: PageClient

    @property
    def workspace(self) -> Path:
        return self.bridge.workspace

    async def calls(self, *wanted: tuple[str, dict[str, Any]]) -> int:
        """Run one turn with these tool calls, allow every request, and return the number of requests."""
        blocks = [{"type": "tool_use", "name": tool, "input": tool_input} for tool, tool_input in wanted]
        self.model.script.agent({"on": "prompt", "blocks": blocks})
        mission, asked = await self.page.send("mission", {"text": "Do it"}), 0
        while True:
            message = await self.page.until(
                lambda m: m["type"] == "permission_request" or m["payload"].get("event") in {"complete", "error"}
            )
            if message["type"] == "agent_event":
                assert (message["payload"]["mission_id"], message["payload"]["event"]) == (mission, "complete")
                return asked
            asked += 1
            # The acknowledgement may arrive after the next permission request.
            await self.page.send("permission", {"request_id": message["payload"]["request_id"], "decision": "allow"})

    async def bash(self, *commands: str) -> None:
        """Run the commands in one Bash call, each in its own folder and shell, and keep their output."""
        folders = [self.workspace / f"here{number}" for number in range(len(commands))]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        lines = [f"(cd {place}; exec > loot 2>&1\n{line}\n)" for place, line in zip(folders, commands, strict=True)]
        await self.calls(("Bash", {"command": "\n".join([f"({self.exports()}", *lines, ")"])}))
        for folder, line in zip(folders, commands, strict=True):
            assert (folder / "loot").exists(), f"the command did not run: {line}"

    def exports(self) -> str:
        """Return shell exports for the paths of the house."""
        control = self.bridge.data / "run/bridge.sock"
        places = {
            "DATA": self.bridge.data,
            "HOMES": self.home,
            "KEYS": " ".join(str(self.home / key) for key in KEYS),
            "BRIDGE": self.bridge.process.pid,
            "SPRITE": (self.workspace / ".os/run/lock").read_text().split()[0],
            "SOCKET": control.readlink() if control.is_symlink() else control,
            "ROOT": Path(__file__).resolve().parents[2],
            "PYTHON": sys.executable,
            "PLANTED": "planted.*key",
            "T": FOUND,
        }
        return "".join(f"export {name}='{value}'\n" for name, value in places.items())


def furnish(home: Path) -> None:
    """Plant a key at each path of `KEYS` below the home directory."""
    for name in KEYS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{PLANTED}\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="house")
async def _house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("house")
    furnish(folder / "home")
    (folder / "home/.cargo/bin").mkdir(parents=True)
    (folder / "home/.cargo/bin/tool").write_text("#!/bin/sh\necho a tool\n")
    (folder / "home/.cargo/bin/tool").chmod(0o755)
    (folder / "data/workspaces/ada/.os/memory").mkdir(parents=True)
    (folder / "data/workspaces/ada/.os/memory/user.md").write_text(f"{PLANTED}\n")
    async with (
        OfflineModel() as model,
        bridge_process(
            folder / "data",
            "--permissions",
            "ask",
            forks_sprites=True,
            SPRITE_SANDBOX="on",
            ANTHROPIC_API_KEY="sk-ant-planted-real-key",
            ANTHROPIC_BASE_URL=model.url,
        ) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.link("ready")
        # The first use of the replica creates its key.
        await eventually((folder / "data/store.key").exists, "store.key does not appear")
        yield House(bridge, folder / "home", model, page)


def stolen(workspace: Path) -> list[str]:
    """Return every secret of the house that a workspace file contains."""
    keys = [PLANTED.encode(), b"SQLite format", *(file.read_bytes()[:24] for file in workspace.glob("../../*.key"))]
    files = [path for path in workspace.rglob("*") if path.is_file() and ".os" not in path.relative_to(workspace).parts]
    found = [f"{key[:12]!r} in {file}" for file in files for key in keys if key in file.read_bytes()]
    # After a quote or "=", the text is the attack's own source.
    way = re.compile(rb"(?<![='\"])" + FOUND.encode())
    return found + [str(file) for file in files if way.search(file.read_bytes())]


async def test_agent_finds_no_key_or_bridge_data(house: House) -> None:
    await house.bash(*WAYS.values())
    assert stolen(house.workspace) == []
    for name in ("later.key", "workspaces/later/.os/later.key"):
        (house.bridge.data / name).parent.mkdir(parents=True, exist_ok=True)
        (house.bridge.data / name).write_text(f"{PLANTED} and more of it\n")
    await house.bash(WHAT_COMES_LATER)
    assert stolen(house.workspace) == []
    # The files outside the workspace are unchanged.
    assert all((house.home / key).read_text() == f"{PLANTED}\n" for key in KEYS)
    assert (house.bridge.data / "workspaces/ada/.os/memory/user.md").exists()


async def test_sandboxed_agent_can_work_normally(house: House) -> None:
    """The workspace is inside the hidden data folder; toolchains stay usable, and the home is private."""
    work = "mkdir -p artifacts && echo one > artifacts/x && git init -q g && cd g && ls ../artifacts"
    home = f"{house.home}/.cargo/bin/tool; echo mine > {house.home}/mine; cat {house.home}/mine; pwd"
    await house.bash(f"{work}; {home}")
    shown = (house.workspace / "here0/loot").read_text()
    assert shown.split("\n")[:3] == ["x", "a tool", "mine"], shown
    assert (house.workspace / "here0/artifacts/x").read_text() == "one\n"
    assert not (house.home / "mine").exists()


async def test_file_tools_refuse_keys(house: House) -> None:
    targets = [
        house.home / ".ssh/id_ed25519",
        house.bridge.data / "store.key",
        house.bridge.data / "workspaces/ada/.os/memory/user.md",
    ]
    before = len(house.model.requests)
    await house.calls(
        *(("Read", {"file_path": str(target)}) for target in targets),
        *(("Write", {"file_path": f"{target}.new", "content": "x"}) for target in targets),
    )
    assert not any(Path(f"{target}.new").exists() for target in targets)
    assert str(house.model.requests[-1].body).count("'is_error': True") >= len(targets) * 2
    assert PLANTED not in str([request.body for request in house.model.requests[before:]])


async def test_unasked_read_commands_show_no_key(house: House) -> None:
    """The CLI runs these harmless-looking commands unasked, and they print any file."""
    (house.workspace / "plain").write_text("plain\n")
    files = [house.bridge.data / "store.key", *(house.home / name for name in KEYS[:2])]
    readers = [line for file in files for line in (f"diff --to-file={file} plain", f"wc --files0-from={file}")]
    before = len(house.model.requests)
    assert await house.calls(*(("Bash", {"command": line}) for line in readers)) == 0
    assert str(house.model.requests[-1].body).count("'tool_result'") >= len(readers)
    shown = str([request.body for request in house.model.requests[before:]])
    assert PLANTED not in shown
    assert files[0].read_text().strip() not in shown


async def test_agent_environment_hides_bridge_path(house: House) -> None:
    shown_to = house.workspace / "environment"
    await house.calls(("Bash", {"command": f"env > {shown_to}; echo done >> {shown_to}"}))
    shown = shown_to.read_text().replace(str(house.workspace), "")
    assert "done" in shown
    assert str(house.bridge.data) not in shown


async def test_doctor_names_sandbox(house: House) -> None:
    _, out, _ = await command(house.workspace, "doctor", "--without-model")
    assert re.search(r"sandbox +bubblewrap: the agent writes only in the workspace", out), out
