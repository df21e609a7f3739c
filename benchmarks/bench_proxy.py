"""The model proxy against a direct connection, and (`--litellm`) against LiteLLM's proxy: request rate, first byte.

The stand-in upstream and the load are processes of their own, made of bare sockets, the same for each. The proxy is the
bridge's, with tokens, budgets, limits, the ledger, and the bridge's metrics and log around it, in its own process.
LiteLLM is installed into a temporary environment and never a dependency; without the flag its figures measured before
are shown beside.

Long, since it is upstream, load and table in one script that starts itself as each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from benchmarks.report import line, spread
from bridge.auth.login import Authenticator
from bridge.auth.people import People
from bridge.config import Settings
from bridge.db.open import open_database
from bridge.http.listening import bound, served
from bridge.proxy.accounts import Accounts
from bridge.proxy.budgets import Limits
from bridge.proxy.proxy import LlmProxy, RateLimits
from bridge.proxy.sprite_tokens import SpriteTokens
from bridge.proxy.upstream import Models, Upstream
from bridge.routes.middleware import SecurityMiddleware
from bridge.telemetry import logs
from bridge.telemetry.metrics import Metrics

MODEL = "claude-haiku-4-5"
CLIENTS = 50
STREAMS = 50
SECONDS = 3.0
ROUNDS = 3
PROBES = 200
EVENTS_PER_SECOND = 20
#: One asks, all upload; each may have two large bodies in hand, and all together six.
SPRITES = ("bench", "bench-2", "bench-3", "bench-4", "bench-5")
BODY_MIB = 30
#: LiteLLM measured with `--litellm` on 2026-11-20: ms of processor for each request, and what 50 streams add (ms). Both
#: proxies are one process that fills one core, so without it in the run their rates are compared by processor time.
LITELLM_BEFORE = (15.0, 18.7)
LITELLM_START_SECONDS = 180.0

USAGE = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
MESSAGE = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": "word " * 40}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }
).encode()


def event(name: str, **fields: object) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


START = event("message_start", message={**json.loads(MESSAGE), "content": [], "usage": USAGE})
BLOCK = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
DELTA = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "a few words more "})


SHORT = START + BLOCK + DELTA + event("message_delta", delta={}, usage={"output_tokens": 5}) + event("message_stop")


def request(token: str, *, stream: bool, host: str, max_tokens: int = 1000) -> bytes:
    """A whole request, as bytes. A stream of one token ends at once, any other goes on until it is cut."""
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "word " * 400}],
            "max_tokens": max_tokens,
            "stream": stream,
        }
    ).encode()
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nx-api-key: {token}\r\nAuthorization: Bearer {token}\r\n"
        "anthropic-version: 2023-06-01\r\nanthropic-beta: a-1,b-2\r\nUser-Agent: bench\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


# --- the stand-in upstream ---


class StandIn(asyncio.Protocol):
    """Answers as soon as a request is whole: one message, or a stream of events that goes on."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._ticker: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._ticker is not None:
            self._ticker.cancel()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            if len(self._buffer) < end + 4 + size:
                return
            body = bytes(self._buffer[end + 4 : end + 4 + size])
            del self._buffer[: end + 4 + size]
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        assert self._transport is not None
        if b'"stream": true' in body or b'"stream":true' in body:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            if b'"max_tokens": 1,' in body or b'"max_tokens":1,' in body:
                self._chunk(SHORT)
                self._transport.write(b"0\r\n\r\n")
            else:
                self._chunk(START + BLOCK)
                self._tick()
            return
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: req_1\r\ncontent-length: %d\r\n\r\n%b"
            % (len(MESSAGE), MESSAGE)
        )

    def _tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(1 / EVENTS_PER_SECOND, self._tick)
        self._chunk(DELTA)

    def _chunk(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


async def serve_upstream() -> None:
    """Runs until stdin ends; prints its address."""
    server = await asyncio.get_running_loop().create_server(StandIn, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


# --- the proxy ---


async def serve_proxy(upstream: str, database_url: str | None = None) -> None:
    """The proxy as the bridge runs it, until stdin ends; prints its address and tokens, then what the ledger says."""
    logs.set_up(Path(os.devnull))
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        settings = Settings(data=Path(folder), database_url=database_url)
        database = await stack.enter_async_context(open_database(settings.database))
        people = People(database)
        await people.prepare()
        tokens = SpriteTokens(database)
        accounts = await stack.enter_async_context(
            Accounts(database, Limits(daily_usd=1e6, monthly_usd=1e7), shared=database_url is not None)
        )
        rate_limits = RateLimits(per_minute=10**9, at_once=10**6)
        to = Upstream(upstream, api_key="sk-real")
        async with LlmProxy(to, tokens, Models(), accounts, rate_limits) as proxy:
            listener = stack.enter_context(bound(settings.host, 0))
            port = listener.getsockname()[1]
            authenticator = Authenticator(settings, people, await people.cookie_key(), port)
            edge = SecurityMiddleware(authenticator, Metrics(), is_secure=False)
            app = web.Application(middlewares=[edge.around])
            app.on_response_prepare.append(edge.add_headers)
            app.add_routes(proxy.routes())
            async with served(app, listener, asyncio.Event().set):
                print(f"http://127.0.0.1:{port}", *[await tokens.rotate(name) for name in SPRITES], flush=True)
                await asyncio.to_thread(sys.stdin.read)
        spent = await accounts.spend()
        print(f"{sum(one.calls for one in spent)} {sum(one.total for one in spent):.6f}", flush=True)


# --- the load ---


class Client(asyncio.Protocol):
    """Sends the next request as soon as the answer is whole, until told to stop."""

    def __init__(self, request_bytes: bytes) -> None:
        self.answered = 0
        self.is_running = True
        self._request = request_bytes
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        if not self._buffer.endswith(b"}"):
            return
        head, _, body = self._buffer.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < size:
            return
        assert head.startswith(b"HTTP/1.1 200"), head + body
        self._buffer = b""
        self.answered += 1
        if self.is_running and self._transport is not None:
            self._transport.write(self._request)

    def stop(self) -> None:
        """No more requests."""
        self.is_running = False
        if self._transport is not None:
            self._transport.close()


def cpu_seconds(pid: int) -> float:
    """Processor time a process has taken so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Target:
    """Something that answers: where, with which word, in which process."""

    url: str
    token: str
    pid: int


async def rate(target: Target, seconds: float) -> tuple[float, float]:
    """Requests a second with CLIENTS connections, and the milliseconds of processor that each took there."""
    url, token = target.url, target.token
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    whole = request(token, stream=False, host=f"{host}:{port}")
    clients = [(await loop.create_connection(lambda: Client(whole), host, int(port)))[1] for _ in range(CLIENTS)]
    await asyncio.sleep(0.3)
    before, began, cpu = sum(client.answered for client in clients), time.perf_counter(), cpu_seconds(target.pid)
    await asyncio.sleep(seconds)
    count = sum(client.answered for client in clients) - before
    took = time.perf_counter() - began
    used = cpu_seconds(target.pid) - cpu
    for client in clients:
        client.stop()
    return count / took, used / max(count, 1) * 1000


@asynccontextmanager
async def streams(target: Target, count: int) -> AsyncIterator[None]:
    """Number of streams that are read without delay."""
    url, token = target.url, target.token
    host, port = url.removeprefix("http://").split(":")
    whole = request(token, stream=True, host=f"{host}:{port}")

    async def drain(reader: asyncio.StreamReader) -> None:
        while await reader.read(1 << 16):
            pass

    opened = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    for reader, writer in opened:
        writer.write(whole)
        await reader.readuntil(b"content_block_delta")
    tasks = [asyncio.create_task(drain(reader)) for reader, _ in opened]
    yield
    for task in tasks:
        task.cancel()
    for _, writer in opened:
        writer.close()


async def first_bytes(target: Target, count: int) -> list[float]:
    """Milliseconds from a streamed request to its first event, one after another on one connection, as the CLI does."""
    host, port = target.url.removeprefix("http://").split(":")
    whole = request(target.token, stream=True, host=f"{host}:{port}", max_tokens=1)
    reader, writer = await asyncio.open_connection(host, int(port))
    samples = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(whole)
        await reader.readuntil(b"event: message_start")
        samples.append((time.perf_counter() - began) * 1000)
        await reader.readuntil(b"\r\n0\r\n\r\n")
        await asyncio.sleep(0.005)
    writer.close()
    return samples


def peak_mib(pid: int) -> float:
    """The most memory a process has had so far (Linux)."""
    (line_,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line_.split()[1]) / 1024


async def upload(target: Target, token: str) -> None:
    """A request of BODY_MIB, written as fast as it is taken."""
    host, port = target.url.removeprefix("http://").split(":")
    start = f'{{"model":"{MODEL}","max_tokens":5,"messages":["'.encode()
    size = len(start) + BODY_MIB * 2**20 + len(b'"]}')
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /v1/messages HTTP/1.1\r\nHost: {host}:{port}\r\nx-api-key: {token}\r\n".encode())
    writer.write(f"Content-Length: {size}\r\n\r\n".encode() + start)
    for _ in range(BODY_MIB * 16):
        writer.write(b"a" * 2**16)
        await writer.drain()
    writer.write(b'"]}')
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


# --- processes ---


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """This script in another role; yields it with the line it prints when it is ready."""
    command = [sys.executable, __file__, *arguments]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
        ) as one,
    ):
        assert one.stdin is not None
        assert one.stdout is not None
        try:
            yield one, one.stdout.readline().strip()
        finally:
            one.stdin.close()
            one.wait(timeout=20)


def environment() -> dict[str, str]:
    """For the processes: the checkout on the path."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}


@contextmanager
def litellm(folder: Path, upstream: str) -> Iterator[Target]:
    """LiteLLM's proxy, installed into `folder`, in front of the same upstream."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "litellm[proxy]"], check=True)
    config = folder / "config.yaml"
    config.write_text(
        f"model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: anthropic/{MODEL}\n"
        f"      api_base: {upstream}\n      api_key: sk-real\n"
        "general_settings:\n  master_key: sk-bench\nlitellm_settings:\n  telemetry: false\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(python.parent / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "litellm.log").open("wb") as log:
        one = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "LITELLM_LOG": "ERROR"})
    try:
        wait_for_port(port, one, LITELLM_START_SECONDS)
        yield Target(f"http://127.0.0.1:{port}", "sk-bench", one.pid)
    finally:
        one.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(timeout=15)
        if one.returncode is None:
            one.kill()
            one.wait()


def wait_for_port(port: int, one: subprocess.Popen[bytes], seconds: float) -> None:
    """Returns when something listens there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and one.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    sys.exit("LiteLLM did not start; see litellm.log in the folder given by --folder.")


# --- the figures ---


async def measure(upstream: Target, ours: Target, theirs: Target | None) -> None:
    """All figures; the runs alternate, so that noise affects all."""
    targets = {"direct": upstream, "proxy": ours, **({"LiteLLM": theirs} if theirs else {})}
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in targets}
    for _ in range(ROUNDS):
        for name, target in targets.items():
            runs[name].append(await rate(target, SECONDS))
    for name, run in runs.items():
        cpu = statistics.median(used for _, used in run)
        print(f"      {name}, {CLIENTS} clients: {_rates(run)} requests/s, {cpu:.3f} ms of processor each")
    assert all(rate for rate, _ in runs["proxy"]), "the proxy answered nothing"
    if theirs is not None:
        found, baseline = (statistics.median(rate for rate, _ in runs[name]) for name in ("proxy", "LiteLLM"))
        words = f"{found:,.0f} / {baseline:,.0f} requests/s"
    else:
        found, baseline = 1 / statistics.median(used for _, used in runs["proxy"]), 1 / LITELLM_BEFORE[0]
        words = f"{1 / found:.2f} ms of processor each, LiteLLM's before {LITELLM_BEFORE[0]:.0f}"
    line("request rate / LiteLLM's", f"{found / baseline:.1f} x  ({words})", ">= 20 x", ok=found >= 20 * baseline)
    samples: dict[str, list[float]] = {}
    for name, target in targets.items():
        idle = await first_bytes(target, PROBES)
        async with streams(target, STREAMS):
            samples[name] = await first_bytes(target, PROBES)
        print(f"      {name}, first byte: {spread(idle)} ms; with {STREAMS} streams open {spread(samples[name])} ms")
    added = statistics.median(samples["proxy"]) - statistics.median(samples["direct"])
    slow = statistics.median(samples["LiteLLM"]) - statistics.median(samples["direct"]) if theirs else LITELLM_BEFORE[1]
    line(
        f"first byte added with {STREAMS} streams open",
        f"{added:.2f} ms (LiteLLM {slow:.1f})",
        "<= 2 ms",
        ok=added <= 2,
    )


async def memory(ours: Target, tokens: list[str]) -> None:
    """Memory that the proxy takes for large bodies sent at the same time, two by each sprite."""
    before = peak_mib(ours.pid)
    await asyncio.gather(*(upload(ours, token) for token in tokens * 2))
    grown = peak_mib(ours.pid) - before
    name = f"memory for {len(tokens) * 2} bodies of {BODY_MIB} MiB at once"
    line(name, f"{grown:.0f} MiB more than before", "<= 300 MiB", ok=grown <= 300)


def _rates(found: list[tuple[float, float]]) -> str:
    rates = [rate for rate, _ in found]
    return f"{statistics.median(rates):,.0f} [{min(rates):,.0f} .. {max(rates):,.0f}]"


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", choices=["upstream", "proxy"], help="what the script starts itself as")
    parser.add_argument("address", nargs="?")
    parser.add_argument("database", nargs="?", help="a Postgres for the proxy's money (bench_money.py)")
    parser.add_argument("--litellm", action="store_true", help="install LiteLLM aside and measure it in the same run")
    parser.add_argument("--folder", type=Path, help="where LiteLLM's environment is kept; a temporary one by default")
    chosen = parser.parse_args()
    if chosen.role == "upstream":
        asyncio.run(serve_upstream())
        return
    if chosen.role == "proxy":
        asyncio.run(serve_proxy(chosen.address, chosen.database))
        return
    with contextlib.ExitStack() as stack:
        serving, address = stack.enter_context(process("upstream"))
        upstream = Target(address, "x", serving.pid)
        theirs = None
        if chosen.litellm:
            folder = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.mkdir(parents=True, exist_ok=True)
            theirs = stack.enter_context(litellm(folder, address))
        running, ready = stack.enter_context(process("proxy", address))
        url, token, *others = ready.split()
        ours = Target(url, token, running.pid)
        asyncio.run(measure(upstream, ours, theirs))
        asyncio.run(memory(ours, [token, *others]))
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.close()
        calls, usd = running.stdout.read().split()
        print(f"      in the ledger afterwards: {int(calls):,} calls, ${float(usd):,.2f}")


if __name__ == "__main__":
    main()
