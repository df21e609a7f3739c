"""`follow --to`: delivery of turns to a remote bridge that is down, rate-limits or refuses some of them."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bridge.http.listening import bound
from sprite.errors import OperatorError
from sprite.imports.follow.delivery import RemoteDelivery, Spool, checked_url, token_from
from sprite.log.transcript import ImportedTurn, NewObservation
from tests.bridge_harness import run_bridge, running_bridge
from tests.harness import observations
from tests.inspection import eventually
from tests.ports import free_port
from tests.process.test_following import follower, once, said


def turn(key: str, text: str = "Hello", project: str | None = "/code") -> ImportedTurn:
    observation = NewObservation("a-session", text, [], "Hi.", "complete", project=project, source="claude-code")
    return ImportedTurn(key, 1_790_000_000.0, 1_790_000_001.0, observation)


class Door:
    """A bridge endpoint that returns the queued statuses first, then judges each body."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.calls: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.url = ""

    async def observe(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.calls.append(body)
        self.tokens.append(request.headers["Authorization"])
        if self.answers:
            status, headers = self.answers.pop(0)
            return web.json_response({"error": {"message": "not now"}}, status=status, headers=headers)
        keys = [turn["external_id"] for turn in body["turns"]]
        if "bad" in keys and len(keys) > 1:
            return web.json_response({"error": {"message": "one is bad"}}, status=413)
        if "bad" in keys:
            return web.json_response({"error": {"message": "too large"}}, status=400)
        new = [key for key in keys if key not in self.taken]
        self.taken += new
        return web.json_response({"stored": len(new), "known": len(keys) - len(new), "refused": []})


@asynccontextmanager
async def open_door() -> AsyncIterator[Door]:
    door = Door()
    application = web.Application(client_max_size=16 * 2**20)
    application.router.add_post("/v1/observations", door.observe)
    runner = web.AppRunner(application)
    await runner.setup()
    with bound("127.0.0.1", 0) as listener:
        await web.SockSite(runner, listener).start()
        door.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield door
        await runner.cleanup()


async def test_refused_turn_does_not_block_other_turns(tmp_path: Path) -> None:
    """Turns arrive in order, and each call holds the turns of one project."""
    async with open_door() as door, RemoteDelivery(door.url, lambda: "secret", Spool(tmp_path)) as remote:
        keys = ["1", "2", "bad", "4", "5"]
        await remote.deliver([*(turn(key) for key in keys), turn("6", project=None)])
        assert door.calls == []
        done = await remote.work()
        assert (done.stored, done.refused) == (5, [("bad", "too large")])
        assert door.taken == ["1", "2", "4", "5", "6"]
        assert {(call["source"], call.get("project")) for call in door.calls} == {
            ("claude-code", "/code"),
            ("claude-code", None),
        }
        assert set(door.tokens) == {"Bearer secret"}
        assert remote.waiting == 0
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "headers"), [(503, {"Retry-After": "0"}), (429, {"Retry-After": "0"})])
async def test_temporary_error_is_retried(status: int, headers: dict[str, str], tmp_path: Path) -> None:
    async with open_door() as door, RemoteDelivery(door.url, lambda: "secret", Spool(tmp_path)) as remote:
        door.answers = [(status, headers)]
        await remote.deliver([turn("1")])
        assert (await remote.work()).stored == 0
        assert (await remote.work()).stored == 1


async def test_rejected_token_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Turns stay in the spool until a restart with a valid token."""
    async with open_door() as door, RemoteDelivery(door.url, lambda: "secret", Spool(tmp_path)) as remote:
        door.answers = [(401, {}), (403, {})]
        for key in "123":
            await remote.deliver([turn(key)])
            await remote.work()
        assert remote.waiting == 3
        assert len(door.calls) == 1, "the delivery retried at once with a rejected token"
        assert sum("token" in record.getMessage() for record in caplog.records) == 1
        assert "secret" not in caplog.text
    async with open_door() as door, RemoteDelivery(door.url, lambda: "new", Spool(tmp_path)) as remote:
        # A restart with a valid token.
        assert (await remote.work()).stored == 3
        assert door.taken == ["1", "2", "3"]


async def test_spool_is_atomic_and_private_to_owner(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    async with RemoteDelivery("http://127.0.0.1:9", lambda: "secret", Spool(folder)) as remote:
        await remote.deliver([turn("1")])
        await remote.work()
    (kept,) = folder.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads(kept.read_bytes())["turns"][0]["external_id"] == "1"
    (folder / ".000000000002.json.xyz.part").write_bytes(b'{"half')
    assert len(Spool(folder)) == 1
    assert not (folder / ".000000000002.json.xyz.part").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://sprite.example.org", "without https"),
        ("https://me:secret@sprite.example.org", "--token-file"),
        ("sprite.example.org", "address of a bridge"),
        ("https://[", "address of a bridge"),
        ("ftp://a", "address of a bridge"),
        ("", "address of a bridge"),
    ],
)
def test_unsafe_bridge_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        checked_url(url)
    assert checked_url("http://localhost:8080/") == "http://localhost:8080"


@pytest.mark.parametrize("content", [b"", b"\n", b"two words\n", b"\xff\n", b"a" * 10 + b"\0"])
def test_unusable_token_file_names_command(content: bytes, tmp_path: Path) -> None:
    """The error names the command that creates a token."""
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(OperatorError, match="users token NAME --scope observe"):
        token_from(tmp_path / "token", None)()


async def test_sessions_reach_bridge_after_downtime(tmp_path: Path) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    logs.mkdir()
    workspace, away = data / "workspaces/ada", tmp_path / "nobody"
    entry = {
        "uuid": "q1",
        "sessionId": "a",
        "timestamp": "2026-01-01T10:00:00Z",
        "cwd": "/code",
        "promptSource": "typed",
    }
    asked = {**entry, "type": "user", "message": {"role": "user", "content": "Hello from afar"}}
    reply = {"role": "assistant", "content": "Hello.", "stop_reason": "end_turn"}
    answered = {**entry, "type": "assistant", "uuid": "a1", "message": reply}
    log = logs / "a.jsonl"
    log.write_text(f"{json.dumps(asked)}\n{json.dumps(answered)}\n")
    state = tmp_path / "state"
    code, added, _ = await run_bridge("users", "add", "ada", "--data", str(data))
    assert code == 0, added
    code, printed, complaint = await run_bridge("users", "token", "ada", "--scope", "observe", "--data", str(data))
    assert code == 0, complaint
    token = tmp_path / "token"
    token.write_text(printed.splitlines()[-1])
    port = free_port()
    to = ("--to", f"http://127.0.0.1:{port}", "--token-file", token)
    code, _, complaint = await once(away, logs, *to, XDG_STATE_HOME=str(state))
    assert code == 1
    assert "the rest waits on this disk" in complaint
    async with running_bridge(data, port=port), follower(away, logs, *to, XDG_STATE_HOME=str(state)) as running:
        await running.line()
        await eventually(lambda: said(workspace) == ["Hello from afar"], "the spooled turn does not arrive")
        with log.open("a") as file:
            file.write(f"{json.dumps(asked | {'uuid': 'q2'})}\n{json.dumps(answered | {'uuid': 'a2'})}\n")
        await eventually(lambda: said(workspace) == ["Hello from afar"] * 2, "the new turn does not arrive")
        # The bridge stores a turn before it answers; a stop in between leaves the turn in the spool.
        await eventually(lambda: list(state.rglob("spool/*")) == [], "the spool keeps delivered turns")
        assert await running.stop() == 0
    assert {turn["project"] for turn in observations(workspace)} == {"/code"}
    assert not away.exists(), "follow created an unneeded workspace"
