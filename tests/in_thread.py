"""Servers in the test process: each runs in the event loop of a separate thread, and logs to a separate file.

A server that blocks its loop therefore never blocks the test that measures it. Start a process instead
(tests/forking.py) only to test process behaviour: kills, signals, orphans, locks, umask, limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, MutableMapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

T = TypeVar("T")

#: Bounds every wait of a test; no wait takes this long unless something is broken.
PATIENCE = 120.0

#: Starts a server: it gets a callable to report its addresses, and the event that asks it to stop.
Main = Callable[[Callable[[T], None], asyncio.Event], Coroutine[Any, Any, None]]

_log: ContextVar[logging.Handler | None] = ContextVar("log", default=None)
_output: ContextVar[TextIO | None] = ContextVar("output", default=None)
_errors: ContextVar[TextIO | None] = ContextVar("errors", default=None)
_variables: ContextVar[dict[str, str] | None] = ContextVar("variables", default=None)


class _RoutedEnvironment(MutableMapping[str, str]):
    """os.environ, with separate variables for each in-thread server and command."""

    def __init__(self, process: MutableMapping[str, str]) -> None:
        self._process = process

    def _chosen(self) -> MutableMapping[str, str]:
        chosen = _variables.get()
        return self._process if chosen is None else chosen

    def __getitem__(self, name: str) -> str:
        return self._chosen()[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._chosen()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._chosen()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._chosen())

    def __len__(self) -> int:
        return len(self._chosen())

    def copy(self) -> dict[str, str]:
        """Like os.environ's."""
        return dict(self)


def route_environment() -> None:
    """Give each in-thread server and command a separate environment."""
    if not isinstance(os.environ, _RoutedEnvironment):
        os.environ = _RoutedEnvironment(os.environ)  # type: ignore[assignment]  # noqa: B003 - not to clear it


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables in the environment of this task, and of its children."""
    token = _variables.set(dict(variables))
    try:
        yield
    finally:
        _variables.reset(token)


class _Routed(logging.Handler):
    """Passes each record to the log of the server whose code wrote it."""

    def emit(self, record: logging.LogRecord) -> None:
        if (handler := _log.get()) is not None:
            # Handlers rewrite records in place; pytest keeps its own.
            handler.handle(logging.makeLogRecord(record.__dict__))


_ROUTED = _Routed()


def route_logs() -> None:
    """Let in-thread servers log at the programs' levels, each to a separate file."""
    logging.getLogger().addHandler(_ROUTED)
    for name in ("sprite", "bridge"):
        logging.getLogger(name).setLevel(logging.INFO)


def restore_logs() -> None:
    """Undo the logging set-up of programs that ran in this process: each would slow down every later line."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        handler.filters.clear()
        if handler is not _ROUTED and not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
            handler.close()
    root.addHandler(_ROUTED)
    sys.excepthook = sys.__excepthook__


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose worker threads use its server's log and variables."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        return super().run_in_executor(executor, copy_context().run, func, *arguments)

    def abort_connections(self) -> None:
        """Abort the connections that a server left open, as its process's end would."""
        for transport in list(self._transports.values()):  # type: ignore[attr-defined]
            transport.abort()


class InThread(Generic[T]):
    """A server in the event loop of a separate thread. `ready` has its report once it listens."""

    def __init__(self, name: str, main: Main[T], log: logging.Handler, variables: Mapping[str, str]) -> None:
        self._main = main
        self._variables = variables
        self._log = log
        self._loop: _Loop | None = None
        self._stop: asyncio.Event | None = None
        self.listening: Future[T] = Future()
        self.ended: Future[None] = Future()
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Whether the server has not ended."""
        return not self.ended.done()

    def ask_to_stop(self) -> None:
        """Set the server's stop event, as its signal handler would."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._stop.set)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Block the server's event loop while the block runs."""
        assert self._loop is not None
        goes_on = threading.Event()
        self._loop.call_soon_threadsafe(goes_on.wait)
        try:
            yield
        finally:
            goes_on.set()

    def cancel_task(self, name: str) -> None:
        """Cancel the server's tasks of this name from outside, unlike any product code."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(lambda: [t.cancel() for t in asyncio.all_tasks() if t.get_name() == name])

    async def stop(self) -> None:
        """Stop the server in order, and raise what it raised."""
        self.ask_to_stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(asyncio.wrap_future(self.ended))

    def _run(self) -> None:
        _log.set(self._log)
        _variables.set(dict(self._variables))
        try:
            with asyncio.Runner(loop_factory=_Loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - the waiter for the server gets it
            if not self.listening.done():
                self.listening.set_exception(error)
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)
        else:
            if not self.listening.done():
                self.listening.set_exception(RuntimeError("the server ended before it listened"))
            self.ended.set_result(None)
        finally:
            self._log.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        self._loop = loop
        self._stop = asyncio.Event()
        try:
            await self._main(self._listens, self._stop)
        finally:
            self._loop.abort_connections()
            await asyncio.sleep(0)

    def _listens(self, ready: T) -> None:
        self.listening.set_result(ready)


@asynccontextmanager
async def in_thread(
    name: str, main: Main[T], log: logging.Handler, variables: Mapping[str, str]
) -> AsyncIterator[tuple[InThread[T], T]]:
    """Run a server in a separate environment while the block runs; yield it and its report."""
    server = InThread(name, main, log, variables)
    server.start()
    try:
        async with asyncio.timeout(PATIENCE):
            ready = await asyncio.shield(asyncio.wrap_future(server.listening))
        yield server, ready
    finally:
        await server.stop()


class _RoutedStream(io.TextIOBase):
    """A standard stream that writes to the stream of the command whose code writes."""

    def __init__(self, chosen: ContextVar[TextIO | None], default: TextIO) -> None:
        self._chosen = chosen
        self._default = default

    def _stream(self) -> TextIO:
        return self._chosen.get() or self._default

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def flush(self) -> None:
        self._stream().flush()

    def isatty(self) -> bool:
        return self._stream().isatty()

    def fileno(self) -> int:
        return self._stream().fileno()

    @property
    def buffer(self) -> Any:
        return self._stream().buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"


async def call_main(
    main: Callable[[list[str]], int], arguments: list[str], variables: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run a command line's `main` in a thread, in a separate environment: exit status, stdout, stderr."""
    out, errors = _captured(), _captured()

    def run() -> int:
        _output.set(out)
        _errors.set(errors)
        with environment(variables):
            try:
                return main(arguments)
            except SystemExit as end:
                return end.code if isinstance(end.code, int) else 0 if end.code is None else 1

    async with asyncio.timeout(PATIENCE):
        code = await asyncio.to_thread(_with_streams, run)
    return code, _text_of(out), _text_of(errors)


def _captured() -> TextIO:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text_of(stream: TextIO) -> str:
    data: bytes = stream.buffer.getvalue()  # type: ignore[attr-defined]
    return data.decode()


def _with_streams(run: Callable[[], int]) -> int:
    kept = sys.stdout, sys.stderr
    if not isinstance(sys.stdout, _RoutedStream):
        sys.stdout = _RoutedStream(_output, sys.stdout)
        sys.stderr = _RoutedStream(_errors, sys.stderr)
    try:
        return run()
    finally:
        sys.stdout, sys.stderr = kept


def log_file(path: Path, formatter: logging.Formatter | None, *filters: logging.Filter) -> logging.Handler:
    """Append to a log file as a program appends to its stderr."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(formatter or logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for each in filters:
        handler.addFilter(each)
    return handler
