"""Keys and the bridge's data are hidden from the agent: many ways to them, through a real bridge and the real CLI.

Every attack writes what it gets into `loot`: what is logged of a tool call would have its secrets redacted.
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

import pytest
import pytest_asyncio

from bridge.offline.model import OfflineModel
from tests.bridge_harness import BridgeProcess, PageClient, bridge_process
from tests.command_line import command, command_within
from tests.harness import Client, running_sprite, sprite_process
from tests.inspection import eventually

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="namespaces are Linux's"),
]
#: A value of each run: nothing that an earlier run left on this disk counts.
PLANTED = f"planted{secrets.token_hex(8)}"
FOUND = "a way was found"
#: Below the home directory.
KEYS = (
    *(".ssh/id_ed25519", ".aws/credentials", ".gnupg/private-keys-v1.d/a.key", ".config/gh/hosts.yml"),
    *(".config/gcloud/credentials.db", ".kube/config", ".docker/config.json", ".netrc", ".npmrc", ".pypirc"),
    *(".git-credentials", ".claude/.credentials.json", ".bash_history", ".mozilla/firefox/logins.json"),
)
#: A user namespace in which no other can be made: what a container's rules do to a sprite.
WITHOUT_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
    "sh",
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
## what comes later
cat $DATA/later.key $DATA/workspaces/later/.os/later.key
"""
WAYS: dict[str, str] = {
    name: command for name, _, command in (way.partition("\n") for way in _WAYS.strip("\n# ").split("\n## "))
}


@dataclass(frozen=True, slots=True)
class House:
    """A bridge with a home directory full of keys and a second person's data, and the local person's page."""

    bridge: BridgeProcess
    home: Path
    model: OfflineModel
    page: PageClient

    @property
    def workspace(self) -> Path:
        return self.bridge.workspace

    async def bash(self, command: str) -> None:
        """One turn that runs a command, in a folder `here` of its own."""
        shutil.rmtree(self.workspace / "here", ignore_errors=True)
        (self.workspace / "here").mkdir()
        self.model.script.agent({"tool": "Bash", "input": {"command": command}})
        assert (await self.page.mission("Do it"))["event"] == "complete"

    def exports(self) -> str:
        """The places of the house, for a shell."""
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
    """Plants a key in each of the places where a home directory has some."""
    for name in KEYS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{PLANTED}\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="house")
async def _house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("house")
    furnish(folder / "home")
    (folder / "data/workspaces/ada/.os/memory").mkdir(parents=True)
    (folder / "data/workspaces/ada/.os/memory/user.md").write_text(f"{PLANTED}\n")
    async with (
        OfflineModel() as model,
        bridge_process(
            folder / "data", ANTHROPIC_API_KEY="sk-ant-planted-real-key", ANTHROPIC_BASE_URL=model.url
        ) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.link("ready")
        # It is made when the store is first used.
        await eventually((folder / "data/store.key").exists, "the store has its key")
        yield House(bridge, folder / "home", model, page)


def stolen(workspace: Path) -> list[str]:
    """Every secret of the house that a file of the workspace shows."""
    keys = [PLANTED.encode(), b"SQLite format", *(file.read_bytes()[:24] for file in workspace.glob("../../*.key"))]
    files = [path for path in workspace.rglob("*") if path.is_file() and ".os" not in path.relative_to(workspace).parts]
    found = [f"{key[:12]!r} in {file}" for file in files for key in keys if key in file.read_bytes()]
    # After "T=" and in a traced command it is the attack itself.
    way = re.compile(rb"(?<![='\"])" + FOUND.encode())
    return found + [str(file) for file in files if way.search(file.read_bytes())]


@pytest.mark.parametrize("way", WAYS)
async def test_agent_finds_no_key_and_no_bridge(house: House, way: str) -> None:
    if way == "what comes later":
        await house.bash("true")
        for name in ("later.key", "workspaces/later/.os/later.key"):
            (house.bridge.data / name).parent.mkdir(parents=True, exist_ok=True)
            (house.bridge.data / name).write_text(f"{PLANTED} and more of it\n")
    loot = house.workspace / "here/loot"
    await house.bash(f"{house.exports()}cd {house.workspace}/here; exec > loot 2>&1\n{WAYS[way]}")
    assert loot.exists(), "the command did not run at all"
    assert stolen(house.workspace) == []
    # Nothing was moved or changed outside.
    assert all((house.home / key).read_text() == f"{PLANTED}\n" for key in KEYS)
    assert (house.bridge.data / "workspaces/ada/.os/memory/user.md").exists()


async def test_ordinary_work_goes_on_in_a_hidden_folder(house: House) -> None:
    """The workspace lies inside the data folder; toolchains of the home directory and its other folders stay."""
    (house.home / ".cargo/bin").mkdir(parents=True, exist_ok=True)
    (house.home / ".cargo/bin/tool").write_text("#!/bin/sh\necho a tool\n")
    (house.home / ".cargo/bin/tool").chmod(0o755)
    work = "mkdir -p artifacts && echo one > artifacts/x && git init -q g && cd g && ls ../artifacts"
    home = f"{house.home}/.cargo/bin/tool; echo mine > {house.home}/mine; cat {house.home}/mine; pwd"
    await house.bash(f"cd {house.workspace}/here; ({work}; {home}) > loot 2>&1")
    shown = (house.workspace / "here/loot").read_text()
    assert shown.split("\n")[:3] == ["x", "a tool", "mine"], shown
    assert (house.workspace / "here/artifacts/x").read_text() == "one\n"
    assert (house.home / "mine").read_text() == "mine\n"


@pytest.mark.parametrize(
    "path", ["{home}/.ssh/id_ed25519", "{data}/store.key", "{data}/workspaces/ada/.os/memory/user.md"]
)
async def test_file_tools_refuse_keys(house: House, path: str) -> None:
    target = path.format(home=house.home, data=house.bridge.data)
    before = len(house.model.requests)
    house.model.script.agent({"tool": "Read", "input": {"file_path": target}})
    house.model.script.agent({"tool": "Write", "input": {"file_path": f"{target}.new", "content": "x"}, "on": "result"})
    assert (await house.page.mission("Read it"))["event"] == "complete"
    assert not Path(f"{target}.new").exists()
    assert PLANTED not in str([request.body for request in house.model.requests[before:]])


# --- a sprite by itself ---


@pytest_asyncio.fixture(loop_scope="module", name="model")
async def _model() -> AsyncIterator[OfflineModel]:
    async with OfflineModel() as model:
        yield model


async def run(client: Client, model: OfflineModel, shell: str) -> int:
    """A turn with one command, whose questions are denied; how many there were."""
    model.script.agent({"tool": "Bash", "input": {"command": shell}})
    mission, asked = client.send("mission", {"text": "Do it"}), 0
    while True:
        message = await client.until(
            lambda m: (
                m["type"] == "permission_request"
                or (m["type"] == "agent_event" and m["payload"]["event"] in {"complete", "error", "interrupted"})
            )
        )
        if message["type"] == "agent_event":
            assert message["payload"]["mission_id"] == mission
            return asked
        asked += 1
        answer = {"request_id": message["payload"]["request_id"], "decision": "deny"}
        await client.ask("permission", answer)


def readers(files: list[Path]) -> list[str]:
    """Commands that the CLI takes for harmless, and that print whatever file they are given."""
    return [line for file in files for line in (f"diff --to-file={file} plain", f"wc --files0-from={file}")]


async def test_read_only_commands_in_ask_mode_show_no_key(tmp_path: Path, model: OfflineModel) -> None:
    """A sprite alone hides the keys of its home, and the data folder of the bridge that is usual there."""
    furnish(tmp_path / "home")
    data = tmp_path / "bridges"
    (data / "run").mkdir(parents=True)
    (data / "store.key").write_text(PLANTED)
    files = [data / "store.key", *(tmp_path / "home" / name for name in KEYS[:2])]
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "plain").write_text("plain\n")
    async with (
        running_sprite(workspace, model.url, permissions="ask", SPRITE_DATA=str(data)) as sprite,
        sprite.client() as client,
    ):
        for line in readers(files):
            assert await run(client, model, line) == 0, line
        assert PLANTED not in str([request.body for request in model.requests])
        # Nor where it is told about them.
        await run(client, model, "env")
        assert str(data) not in str([request.body for request in model.requests[-2:]]).split("diff --to-file")[0]


async def test_workspace_that_is_the_home_directory_hides_its_keys(tmp_path: Path, model: OfflineModel) -> None:
    home = tmp_path / "home"
    furnish(home)
    shell = f"cd {home}; cat {' '.join(KEYS)} > loot 2>&1; echo done >> loot"
    async with running_sprite(home, model.url, HOME=str(home)) as sprite, sprite.client() as client:
        await run(client, model, shell)
    shown = (home / "loot").read_text()
    assert "done" in shown
    assert PLANTED not in shown


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare")
async def test_without_namespaces_every_command_is_asked_about(tmp_path: Path, model: OfflineModel) -> None:
    furnish(tmp_path / "home")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "plain").write_text("plain\n")
    key = tmp_path / "home/.ssh/id_ed25519"
    async with (
        sprite_process(workspace, model.url, permissions="ask", within=WITHOUT_NAMESPACES) as sprite,
        sprite.client() as client,
    ):
        for line in (*readers([key]), "ls", f"cat {key}", "pwd && echo hello"):
            assert await run(client, model, line) == 1, line
        model.script.agent({"tool": "Read", "input": {"file_path": str(key)}})
        await client.mission("Read it")
        assert PLANTED not in str([request.body for request in model.requests])
        # What a person allowed for the session is asked about once.
        model.script.agent({"tool": "Bash", "input": {"command": "ls -d ."}})
        mission = client.send("mission", {"text": "Do it"})
        question = (await client.until(lambda m: m["type"] == "permission_request"))["payload"]
        await client.ask("permission", {"request_id": question["request_id"], "decision": "always"})
        await client.end_of(mission)
        assert await run(client, model, "ls -d .") == 0
    for name in ("status", "doctor"):
        shown = await _command_without_namespaces(workspace, name, model)
        assert re.search(r"sandbox +none: the agent can read what you can", shown), shown


async def _command_without_namespaces(workspace: Path, name: str, model: OfflineModel) -> str:
    _, out, err = await command_within(
        WITHOUT_NAMESPACES, workspace, name, ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="offline"
    )
    return out + err


async def test_status_and_doctor_name_the_sandbox(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url):
        pass
    for name in ("status", "doctor"):
        _, out, _ = await command(workspace, name, model_url=model.url)
        assert re.search(r"sandbox +namespaces: \.os, the bridge's data and the keys in your home", out), out
