"""The egress proxy on its Unix socket, against servers on loopback and hostile clients."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sprite.config import Egress
from sprite.protocol.messages import ReachedHost
from sprite.sandbox import egress, hosts
from sprite.sandbox.egress import EgressProxy
from sprite.sandbox.hosts import Answer, HostGate, HostRefusedError, Moment
from sprite.workspace.database import WorkspaceDB, open_workspace
from tests.harness import PATIENCE
from tests.looks import eventually

HOST = "site.example"
OTHER = "other.example"
PUBLIC = "93.184.216.34"
#: A server's part of the conversation.
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Person:
    """Answers questions about hosts, once a test lets it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.words: dict[str, Answer] = {}
        self.answers = asyncio.Event()
        self.answers.set()
        self.changed = asyncio.Condition()

    async def ask(self, host: str, _turn: str | None) -> Answer:
        self.asked.append(host)
        async with self.changed:
            self.changed.notify_all()
        await self.answers.wait()
        if host not in self.words:
            raise HostRefusedError("Nobody is connected.")
        return self.words[host]

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(lambda: len(self.asked) >= times)


class Resolved(EgressProxy):
    """A proxy whose names resolve to the addresses in `zone`, one answer after another, by default to loopback."""

    def __init__(self, path: Path, gate: HostGate, **options: Any) -> None:
        super().__init__(path, gate, **options)
        self.zone: dict[str, list[list[str]]] = {}
        self.looked_up: list[str] = []

    async def _look_up(self, host: str, _port: int) -> list[str]:
        self.looked_up.append(host)
        answers = self.zone.get(host, [["127.0.0.1"]])
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Stage:
    """A proxy, its tables and its person."""

    def __init__(self, path: Path, workspace: WorkspaceDB, mode: Egress, *, inside: bool) -> None:
        self.path = path / "egress.sock"
        self.tables = workspace.hosts
        self.person = Person()
        self.writers: list[asyncio.StreamWriter] = []
        self.moment = Moment("session", "turn")
        self.gate = HostGate(mode, self.tables, lambda: self.moment, self.person.ask)
        self.proxy = Resolved(self.path, self.gate, inside=inside)
        self.zone, self.looked_up = self.proxy.zone, self.proxy.looked_up

    async def say(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request. The stage closes the connection at its end."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        self.writers.append(writer)
        writer.write(request)
        return reader, writer

    async def answer(self, request: bytes) -> bytes:
        """Return the whole answer to a request."""
        reader, writer = await self.say(request)
        async with asyncio.timeout(PATIENCE):
            found = await reader.read(-1)
        writer.close()
        return found

    async def tunnel(self, host: str, port: int) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the status line of CONNECT, and the streams."""
        reader, writer = await self.say(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
        return head.split(b"\r\n")[0], reader, writer

    async def uses(self, wanted: Callable[[Sequence[ReachedHost]], bool] = bool) -> list[ReachedHost]:
        """Return the log once it is as wanted: the end of a connection is written after the client saw it."""
        async with asyncio.timeout(PATIENCE):
            while not wanted(found := await self.tables.uses()):  # noqa: ASYNC110 - only the database knows
                await asyncio.sleep(0.01)
        return found


@asynccontextmanager
async def stage(path: Path, mode: Egress = "open", *, inside: bool = True) -> AsyncIterator[Stage]:
    async with open_workspace(path / "workspace.db") as workspace:
        made = Stage(path, workspace, mode, inside=inside)
        await made.proxy.start()
        try:
            yield made
        finally:
            for writer in made.writers:
                writer.close()
            await made.proxy.stop()


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    made = await asyncio.start_server(run, "127.0.0.1", 0)
    async with made:
        yield made.sockets[0].getsockname()[1]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def page(seen: list[bytes], answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()

    return serve


def reason(answer: bytes) -> str:
    return answer.split(b"\r\n")[0].decode()


async def test_tunnel_carries_bytes_both_ways(tmp_path: Path) -> None:
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        made.person.words[f"{HOST}:{port}"] = "allow"
        status, reader, writer = await made.tunnel(HOST, port)
        assert status == b"HTTP/1.1 200 Connection established"
        writer.write(b"x" * 300_000)
        assert await reader.readexactly(300_000) == b"x" * 300_000
        assert made.proxy.open_to(HOST, port, "turn") == (1, 300_000, 300_000)
        writer.write_eof()
        assert await reader.read() == b""
        (use,) = await made.uses(lambda found: bool(found) and found[0].sent > 0)
        assert (use.host, use.port, use.decision, use.connections) == (HOST, port, "turn", 1)
        assert (use.sent, use.received) == (300_000, 300_000)
        assert made.proxy.open_to(HOST, port, "turn") == (0, 0, 0)


async def test_early_bytes_of_tunnel_arrive(tmp_path: Path) -> None:
    """A client may send its TLS hello before the answer to CONNECT, also while the person is asked."""
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        made.person.words[f"{HOST}:{port}"] = "allow"
        made.person.answers.clear()
        reader, writer = await made.say(f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: x\r\n\r\nearly".encode())
        await made.person.until_asked(1)
        writer.write(b" and late")
        await asyncio.sleep(0.05)
        made.person.answers.set()
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(14) == b"early and late"
        writer.close()


async def test_socket_is_private_and_removed(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    async with stage(deep) as made:
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert not made.path.exists()


async def test_plain_request_names_the_checked_host(tmp_path: Path) -> None:
    """The URL decides: another Host header, and headers about this connection only, do not reach the host."""
    seen: list[bytes] = []
    async with stage(tmp_path, "ask") as made, server(page(seen)) as port:
        made.person.words[f"{HOST}:{port}"] = "always"
        answer = await made.answer(
            f"GET http://{HOST}:{port}/a?b=c HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: Basic eDp5\r\n"
            "Connection: X-Own, Content-Length\r\nX-Own: 1\r\nUpgrade: h2c\r\nAccept: */*\r\n\r\n".encode()
        )
    assert answer.endswith(b"\r\n\r\nhello")
    (head,) = seen
    words = head.decode().lower().replace(":", " ").split()
    assert words[:5] == ["get", "/a?b=c", "http/1.1", "host", HOST]
    assert words[5] == str(port)
    assert not {"evil.example", "proxy-authorization", "x-own", "upgrade"} & {*words}


async def test_request_body_and_chunked_answer_pass(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        bodies.append(await reader.readexactly(6))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        # A host that ignores `Connection: close`.
        await reader.read()

    async with stage(tmp_path, "ask") as made, server(serve) as port:
        made.person.words[f"{HOST}:{port}"] = "allow"
        reader, writer = await made.say(
            f"PUT http://{HOST}:{port}/ HTTP/1.1\r\nHost: x\r\n".encode()
            + b"Content-Length: 6\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"upload")
        answer = await reader.read()
        writer.close()
    assert bodies == [b"upload"]
    assert b"3\r\nabc\r\n0\r\n\r\n" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n",
        b"GET http://user:word@site.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n",
        b"GET http://site.example@evil.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://evil.example\\@site.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://site.example#@evil.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://site.example:/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://site.example:0/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET https://site.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://site.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://2130706433/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT site.example HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT site.example:99999 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT user@site.example:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT 0177.0.0.1:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT site%2eexample:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT http://site.example:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT site.example:443 HTTP/1.1\r\n\r\n",
        b"POST http://site.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0",
        b"POST http://site.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        b"POST http://site.example/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET http://site.example/ HTTP/1.1\r\nHost: a\r\nX: 1\r\n GET: http://evil/\x00\r\n\r\n",
        b"GET http://site.example/ HTTP/1.1\r\nHost : a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_hostile_request_is_refused(tmp_path: Path, request_bytes: bytes) -> None:
    async with stage(tmp_path) as made:
        status = reason(await made.answer(request_bytes))
        assert status.split()[1] in {"400", "501"}, status
        assert made.looked_up == []
        assert await made.tables.uses() == []


async def test_huge_head_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as made:
        head = b"CONNECT site.example:443 HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (2 * egress.MAX_HEAD_BYTES)
        assert reason(await made.answer(head)).split()[1] == "431"


async def test_slow_client_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "HEAD_SECONDS", 0.2)
    async with stage(tmp_path) as made:
        assert reason(await made.answer(b"CONNECT site.ex")).split()[1] == "408"


async def test_silent_host_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "FIRST_BYTE_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with stage(tmp_path, "ask") as made, server(silent) as port:
        made.person.words[f"{HOST}:{port}"] = "allow"
        answer = await made.answer(f"GET http://{HOST}:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert reason(answer).split()[1] == "504"
        _, reader, writer = await made.tunnel(HOST, port)
        assert await reader.read() == b""
        writer.close()


async def test_stuck_resolver_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "DNS_SECONDS", 0.2)
    async with stage(tmp_path) as made:

        async def never(_host: str, _port: int) -> list[str]:
            await asyncio.Event().wait()
            return []

        monkeypatch.setattr(made.proxy, "_look_up", never)
        status, _, writer = await made.tunnel(HOST, 443)
        assert status.split()[1] == b"504"
        writer.close()


async def test_too_many_connections_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "MAX_CONNECTIONS", 2)
    async with stage(tmp_path) as made:
        for _ in range(2):
            await made.say(b"")
        assert reason(await made.answer(b"CONNECT site.example:443 HTTP/1.1\r\nHost: a\r\n\r\n")).split()[1] == "503"


@pytest.mark.parametrize(
    "target",
    [
        *("127.0.0.1:443", "[::1]:443", "[::ffff:127.0.0.1]:443", "[64:ff9b::7f00:1]:443", "localhost:443"),
        *("169.254.169.254:80", "[fd00:ec2::254]:80", "10.0.0.1:443", "bridge.local:443", "router:80", "224.0.0.1:80"),
    ],
)
async def test_inner_target_is_refused_without_question(tmp_path: Path, target: str) -> None:
    async with stage(tmp_path, "ask", inside=False) as made:
        answer = await made.answer(f"CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert reason(answer).startswith("HTTP/1.1 403 "), reason(answer)
        assert "private" in reason(answer)
        assert (made.person.asked, made.looked_up) == ([], [])
        assert [use.decision for use in await made.tables.uses()] == ["refused"]


@pytest.mark.parametrize("inner", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "192.168.0.1", "own"])
async def test_name_of_inner_address_is_refused(tmp_path: Path, inner: str) -> None:
    async with stage(tmp_path, inside=False) as made:
        made.zone[HOST] = [[_own_address() if inner == "own" else inner]]
        status, reader, writer = await made.tunnel(HOST, 443)
        assert status.startswith(b"HTTP/1.1 403 ")
        assert b"private or local" in await reader.read()
        writer.close()
        (use,) = await made.uses(lambda found: bool(found) and found[0].decision == "refused")
        assert use.host == HOST


def _own_address() -> str:
    """Return an address of this machine other than loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((PUBLIC, 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def test_rebound_name_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer would be a server on loopback. The proxy tries only the first, whose host is out of reach."""
    monkeypatch.setattr(egress, "CONNECT_SECONDS", 0.2)
    reached: list[bytes] = []
    async with stage(tmp_path, "ask", inside=False) as made, server(page(reached)) as port:
        await made.tables.add_rule(f"{HOST}:{port}", None)
        made.zone[HOST] = [["127.0.0.1", PUBLIC], ["127.0.0.1"]]
        status, _, _ = await made.tunnel(HOST, port)
        assert status.split()[1] in {b"502", b"504"}
        assert (made.looked_up, reached) == ([HOST], [])


async def test_model_endpoint_needs_no_question(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace, server(echo) as port:
        person = Person()
        gate = HostGate("bridge", workspace.hosts, lambda: Moment(None, None), person.ask)
        path = tmp_path / "egress.sock"
        proxy = Resolved(path, gate, always=("Model.example", port))
        await proxy.start()
        for target, status in ((f"model.example:{port}", b"200"), (f"model.example:{port - 1}", b"403")):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == status
            writer.close()
        await proxy.stop()
        assert person.asked == []


async def test_modes_decide_without_question(tmp_path: Path) -> None:
    expected: dict[Egress, dict[str, bytes]] = {
        "packages": {"pypi.org": b"502", HOST: b"403"},
        "bridge": {"pypi.org": b"403", HOST: b"403"},
        "open": {"pypi.org": b"502", HOST: b"502"},
    }
    for mode, wanted in expected.items():
        folder = tmp_path / mode
        folder.mkdir()
        async with stage(folder, mode) as made:
            # Nothing listens on port 443 here, so an allowed connection is one that fails.
            for host, status in wanted.items():
                found, _, writer = await made.tunnel(host, 443)
                assert found.split()[1] == status, (mode, host, found)
                writer.close()
            assert made.person.asked == []


async def test_many_connections_ask_once(tmp_path: Path) -> None:
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        made.person.answers.clear()
        made.person.words[f"{HOST}:{port}"] = "allow"
        waiting = [asyncio.create_task(made.tunnel(HOST, port)) for _ in range(20)]
        await made.person.until_asked(1)
        assert made.looked_up == [], "a name that nobody allowed must not reach a DNS server"
        made.person.answers.set()
        for status, _, writer in await asyncio.gather(*waiting):
            assert status.split()[1] == b"200"
            writer.close()
        assert made.person.asked == [f"{HOST}:{port}"]


@pytest.mark.parametrize(
    ("word", "same_turn", "next_turn", "next_session"),
    [("allow", 0, 1, 1), ("session", 0, 0, 1), ("always", 0, 0, 0), ("deny", 0, 1, 1)],
)
async def test_answer_holds_as_long_as_said(
    tmp_path: Path, word: Answer, same_turn: int, next_turn: int, next_session: int
) -> None:
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        made.person.words[f"{HOST}:{port}"] = word

        async def asked_again() -> int:
            before = len(made.person.asked)
            status, _, writer = await made.tunnel(HOST, port)
            writer.close()
            assert status.split()[1] == (b"403" if word == "deny" else b"200")
            return len(made.person.asked) - before

        assert await asked_again() == 1
        assert await asked_again() == same_turn
        made.moment = Moment("session", "another")
        assert await asked_again() == next_turn
        made.moment = Moment("next", "a third")
        assert await asked_again() == next_session


@pytest.mark.parametrize("word", ["session", "always"])
async def test_exposed_session_asks_about_host_again(tmp_path: Path, word: Answer) -> None:
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        made.person.words[f"{HOST}:{port}"] = word
        before = time.time()

        async def asked() -> int:
            status, _, writer = await made.tunnel(HOST, port)
            writer.close()
            assert status.split()[1] == b"200"
            return len(made.person.asked)

        assert [await asked(), await asked()] == [1, 1]
        made.moment = Moment("session", "turn", exposed=True)
        assert [await asked(), await asked()] == [2, 2]
        made.moment = Moment("session", "another")
        assert await asked() == 2
        await made.uses(lambda found: sum(use.connections for use in found) == 5)
        assert made.proxy.hosts_since(before) == [HOST]
        await eventually(lambda: not made.proxy.hosts_since(time.time() + 1), "a closed connection counts as open")


async def test_sprite_fetches_page_through_gate(tmp_path: Path) -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status = b"200 OK" if b"GET /page?a=1 " in head else b"404 Not Found"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 5\r\n\r\nhello" % status)
        await writer.drain()
        writer.close()

    async with stage(tmp_path, "ask") as made, server(page) as port:
        made.person.words[f"{HOST}:{port}"] = "allow"
        assert await made.proxy.fetch(f"http://{HOST}:{port}/page?a=1", 4) == b"hell"
        with pytest.raises(ValueError, match="status 404"):
            await made.proxy.fetch(f"http://{HOST}:{port}/other", 4)
        with pytest.raises(HostRefusedError):
            await made.proxy.fetch(f"http://{OTHER}:{port}/page", 4)
        assert made.proxy.hosts_since(0) == []


async def test_rule_covers_one_exact_host(tmp_path: Path) -> None:
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        await made.tables.add_rule(f"{HOST}:{port}", None)
        for host in (f"www.{HOST}", OTHER):
            status, _, writer = await made.tunnel(host, port)
            assert status.split()[1] == b"403"
            writer.close()
        status, _, writer = await made.tunnel(f"{HOST.upper()}.", port)
        assert status.split()[1] == b"200"
        writer.close()
        assert made.person.asked == [f"www.{HOST}:{port}", f"{OTHER}:{port}"]


async def test_refusal_is_a_sentence_for_the_program(tmp_path: Path) -> None:
    async with stage(tmp_path, "ask") as made:
        made.person.words[HOST] = "deny"
        answer = await made.answer(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert reason(answer) == f"HTTP/1.1 403 The person does not allow {HOST} in this turn."
        assert answer.endswith(f"\r\n\r\nThe person does not allow {HOST} in this turn.\n".encode())


async def test_open_questions_are_limited(tmp_path: Path) -> None:
    async with stage(tmp_path, "ask") as made:
        made.person.answers.clear()
        for number in range(hosts.MAX_QUESTIONS):
            await made.say(f"CONNECT h{number}.example:443 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await made.person.until_asked(hosts.MAX_QUESTIONS)
        status, _, _ = await made.tunnel(HOST, 443)
        assert status.split()[1] == b"403"


async def test_abandoned_question_is_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gave up tries again and finds the same question. Without one it is withdrawn."""
    monkeypatch.setattr(hosts, "GRACE_SECONDS", 0.2)
    async with stage(tmp_path, "ask") as made:
        made.person.answers.clear()
        for _ in range(2):
            _, writer = await made.say(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            await made.person.until_asked(1)
            writer.close()
        async with asyncio.timeout(PATIENCE):
            while made.gate._questions:  # noqa: ASYNC110 - it ends by a timer
                await asyncio.sleep(0.02)
        assert made.person.asked == [HOST]


async def test_revoked_rule_closes_open_connections(tmp_path: Path) -> None:
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        await made.tables.add_rule(f"{HOST}:{port}", None)
        await made.tables.add_rule(f"{OTHER}:{port}", None)
        _, reader, _ = await made.tunnel(HOST, port)
        _, other, still = await made.tunnel(OTHER, port)
        assert await made.proxy.revoke(f"{HOST}:{port}")
        assert await reader.read() == b""
        still.write(b"on")
        assert await other.readexactly(2) == b"on"
        status, _, _ = await made.tunnel(HOST, port)
        assert status.split()[1] == b"403"
        assert not await made.proxy.revoke(f"{HOST}:{port}")


async def test_log_is_bounded_for_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MAX_REFUSED_KEPT", 3)
    monkeypatch.setattr(hosts, "MAX_CONNECTIONS_KEPT", 2)
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        for number in range(6):
            place = hosts.Place.of(f"h{number}.example", 443)
            await workspace.hosts.began(place, "open" if number < 3 else "refused", "turn")
        await workspace.hosts.began(hosts.Place.of("h9.example", 443), "refused", "turn")
        found = {use.host: use.decision for use in await workspace.hosts.uses()}
    assert found == {
        **{f"h{number}.example": "open" for number in (1, 2)},
        **{f"h{number}.example": "refused" for number in (4, 5, 9)},
    }


def client_hello(name: str | None) -> bytes:
    """Return the first message of a TLS client."""
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def old_hello(name: str) -> bytes:
    """Return the first message of a client that knows TLS 1.0 only."""
    # As an unknown extension, the list of newer versions says nothing.
    body = re.sub(
        rb"\x00\x2b(?=\x00.[\x02-\x0a]\x03\x04)", b"\xfa\xfa", client_hello(name)[11:], count=1, flags=re.DOTALL
    )
    hello = b"\x03\x01" + body
    return b"\x16\x03\x01" + (len(hello) + 4).to_bytes(2, "big") + b"\x01" + len(hello).to_bytes(3, "big") + hello


def in_records(hello: bytes, size: int) -> bytes:
    """Return a message spread over records."""
    body = hello[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in parts)


async def test_tls_client_names_the_checked_host(tmp_path: Path) -> None:
    async with stage(tmp_path, "ask") as made, server(echo) as port:
        await made.tables.add_rule(f"{HOST}:{port}", None)
        for first in (
            client_hello(HOST.upper()),
            client_hello(None),
            in_records(client_hello(HOST), 200),
            old_hello(HOST),
            b"SSH-2.0-a",
        ):
            _, reader, writer = await made.tunnel(HOST, port)
            for piece in (first[:7], *(bytes([byte]) for byte in first[7:99]), first[99:]):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            assert await reader.readexactly(len(first)) == first
            writer.close()
        other = client_hello(OTHER)
        broken = (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", b"\x16\x03\x01\x00\x01\x02", in_records(other, 7))
        for first in (other, in_records(other, 200), *broken, b"\x16\x03\x01\xff\xff\x01" + b"\xff" * 20_000):
            _, reader, writer = await made.tunnel(HOST, port)
            writer.write(first)
            assert await reader.read() == b""
        uses = await made.uses(lambda uses: sum(use.connections for use in uses if use.decision == "refused") == 6)
        assert {use.decision: use.sent for use in uses}["refused"] == 0
