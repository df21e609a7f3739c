"""Fixtures (a model on loopback, an empty workspace), and limits on the operations of each folder's tests."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import msgspec
import pytest

from sprite.common import own_secrets
from tests.forking import close_parent
from tests.hidden_settings import read_hidden_settings
from tests.in_thread import restore_logs, route_environment, route_logs
from tests.inherited import drop_inherited

# Tests of pure functions must not wait for the programs and their SDKs: each fixture imports its own dependencies.
if TYPE_CHECKING:
    from tests.emulator import Emulator
    from tests.postgres import Server
    from tests.scripted_model import OfflineModel
    from tests.session_logs import Recorded
    from tests.vms import Disk, Tokens

T = TypeVar("T")

#: The slowest files run first, so that no worker is left alone with one at the end. The other folders follow in this
#: order; `--dist loadfile` keeps each file on one worker.
LONGEST_FIRST = (
    "kill_anytime cluster rolling_restart any_bridge chat_gives_way page_memory page_canvas page_chat page_lists "
    "bootstrap bootstrap_interrupted page_promise quarantine own_turns deaths sessions curation_at_rest crashes"
).split()
FOLDERS = {"process": 0, "page": 1, "fuzz": 2, "stores": 3, "pure": 4}

# An example's duration depends on the load of the machine. The inputs are the same in each run: `make soak` sets
# SOAK_EXAMPLES for other and more inputs.
_EXAMPLES = os.environ.get("SOAK_EXAMPLES")
hypothesis.settings.register_profile(
    "sprite",
    deadline=None,
    derandomize=_EXAMPLES is None,
    max_examples=int(_EXAMPLES or 12),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("sprite")

#: Forbidden operations per folder, as names of Python's audit events: pure/ only computes; stores/ may open SQLite, and
#: the Postgres of the run. process/ and page/ are unrestricted.
_PROCESSES = {"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind"}
NOT_STARTED = {"pure": {*_PROCESSES, "sqlite3.connect"}, "stores": _PROCESSES}
#: A global of its own: Python calls `_watch` very often.
_WATCHED = frozenset(NOT_STARTED["pure"])
_started: list[str] = []


def _watch(event: str, _arguments: tuple[object, ...]) -> None:
    if event in _WATCHED:
        _started.append(event)


sys.addaudithook(_watch)


@pytest.fixture(scope="module", autouse=True)
def no_state_of_other_files() -> Iterator[None]:
    """Clear the redaction list that all in-thread servers share, since every log line is searched for its entries.

    Also undo the logging set-up of programs that a file ran in this process.
    """
    yield
    own_secrets.clear()
    restore_logs()


@pytest.fixture(autouse=True)
def starts_no_more_than_its_folder_says(request: pytest.FixtureRequest) -> Iterator[None]:
    _started.clear()
    yield
    assert NOT_STARTED.get(request.path.parent.name, set()).isdisjoint(_started), "this test belongs in process/"


def pytest_configure() -> None:
    drop_inherited()
    read_hidden_settings()
    # Modules and collected tests live until the end: exclude them from garbage collection.
    gc.set_threshold(10_000, 20, 20)
    gc.disable()
    route_environment()
    route_logs()
    # A run ended by `timeout` also ends the processes of its tests, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Order files; inside a file the tests keep their order. Mark the tests that use Postgres."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if "postgres" in (*item.fixturenames, parameters.get("chosen_server")):
            item.add_marker("postgres")
    places = {f"test_{name}": place for place, name in enumerate(LONGEST_FIRST)}
    last = len(places)
    items.sort(key=lambda item: (places.get(item.path.stem, last), FOLDERS.get(item.path.parent.name, 0)))


def pytest_unconfigure() -> None:
    close_parent()
    # pytest collects garbage five times from here on, to report unclosed resources: one pass is enough.
    gc.collect()
    gc.freeze()


@pytest.fixture
async def model() -> AsyncIterator[OfflineModel]:
    from tests.scripted_model import OfflineModel

    async with OfflineModel() as model:
        yield model


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return session logs written by the real CLI (7 s, once); tests must not change them."""
    from tests.session_logs import Recorded, record

    return _made_once("recorded", tmp_path_factory, Recorded, lambda folder: asyncio.run(record(folder)))


@pytest.fixture(scope="session")
def curated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with a curated memory (5 s, once); tests copy it before they open it."""
    return _made_once("curated", tmp_path_factory, Path, lambda folder: asyncio.run(_curated(folder / "workspace")))


async def _curated(workspace: Path) -> Path:
    from tests.curated_workspace import curate_workspace
    from tests.looks import eventually

    await curate_workspace(workspace)
    # Other workers copy it from here on.
    await eventually(lambda: not any(workspace.rglob("*-shm")), "a database is still open")
    return workspace


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one real Postgres for all tests (1 s); without one they are skipped (tests/postgres.py)."""
    from tests.postgres import shared_server

    own = tmp_path_factory.getbasetemp()
    with shared_server(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """Return the address of a database that has the bridge's tables without rows."""
    url = postgres.lend()
    yield url
    postgres.take_back(url)


@pytest.fixture
def bare_postgres_url(postgres: Server) -> Iterator[str]:
    """Return the address of a new database without tables."""
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def chosen_server(request: pytest.FixtureRequest) -> Server | None:
    """None means SQLite."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
def database_at(chosen_server: Server | None, tmp_path: Path) -> Iterator[Path | str]:
    """Return the location of a database without rows; every test that uses it runs on SQLite and Postgres."""
    if chosen_server is None:
        from tests.new_databases import put_bridge

        put_bridge(tmp_path / "bridge.db")
        yield tmp_path / "bridge.db"
        return
    url = chosen_server.lend()
    yield url
    chosen_server.take_back(url)


@pytest.fixture
async def emulator(tmp_path: Path) -> AsyncIterator[Emulator]:
    """Run the Sprites API on loopback."""
    from tests.emulator import Emulator

    async with Emulator(tmp_path / "vms") as emulator:
        yield emulator


@pytest.fixture
def tokens() -> Tokens:
    from tests.vms import Tokens

    return Tokens()


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """Return a VM with this checkout deployed (7 s, once); tests must not change it."""
    from tests.vms import Disk, deployed_disk

    return _made_once("disk", tmp_path_factory, Disk, deployed_disk)


def _made_once(name: str, tmp_path_factory: pytest.TempPathFactory, kind: type[T], make: Callable[[Path], T]) -> T:
    """Let one worker make a resource for all: it publishes the result, and the others wait for it."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    made = shared / f"{name}.json"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with ThreadPoolExecutor(1) as thread:
                # Tests have their own event loop in this thread.
                result = thread.submit(make, tmp_path_factory.mktemp(name)).result()
            made.write_bytes(msgspec.json.encode(result, enc_hook=str))
    return msgspec.json.decode(made.read_bytes(), type=kind, dec_hook=lambda path, text: path(text))
