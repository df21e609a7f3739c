"""Fixtures: a model on loopback, and an empty workspace; and what the tests of a folder may start."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import msgspec
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from bridge.offline.model import OfflineModel
from tests.curated_workspace import curate_workspace
from tests.emulator import Emulator
from tests.forking import close_parent
from tests.in_thread import route_environment, route_logs
from tests.postgres import Server, shared_server
from tests.session_logs import Recorded, record
from tests.vms import Disk, Tokens, deployed_disk

T = TypeVar("T")

#: The files that take longest begin first, so that nobody is alone with one at the end (see the Makefile).
LONGEST_FIRST = (
    "kill_anytime cluster rolling_restart any_bridge chat_gives_way page_chat bootstrap_interrupted page_memory "
    "page_canvas quarantine bootstrap "
    "bootstrap_failures own_turns deaths sessions chat_end_to_end curation_at_rest page_drift session_log forget "
    "crashes doors capture import page_by_itself page_actions page_writing page_promise page_app readme mcp "
    "first_word mcp_door mcp_oauth claude_code_plugin one_memory boundary acp rebuild following curation_failures "
    "bridge_operator privacy waking_vm archive_commands drift_waits events bridge_sprites hosts_local acceptance "
    "commands bridge_serve schedules hosts_sprites awake relay_cuts offline_model first_request kill_upkeep "
    "connection permissions second_page protocol bridge_discreet storage_failures stopped_agent "
    "fuzz_frames fuzz_messages fuzz_answers fuzz_logs"
).split()

#: Any worker takes any test of these files. Those of any other file stay together: they share fixtures.
SHARED_OUT = {"test_kill_anytime"}

# How long an example takes says how busy the machine is. What was green is green the next time: new inputs are for
# `make soak`.
hypothesis.settings.register_profile("sprite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("sprite")

#: What the tests of a folder may not start, as Python's audit events name it: pure/ is computation alone, stores/ may
#: open SQLite, and the Postgres of the run. process/ and page/ may start anything.
_PROCESSES = {"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind"}
NOT_STARTED = {"pure": {*_PROCESSES, "sqlite3.connect"}, "stores": _PROCESSES}
_started: list[str] = []


def _watch(event: str, _arguments: tuple[object, ...]) -> None:
    if event in NOT_STARTED["pure"]:
        _started.append(event)


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def starts_no_more_than_its_folder_says(request: pytest.FixtureRequest) -> Iterator[None]:
    _started.clear()
    yield
    assert NOT_STARTED.get(request.path.parent.name, set()).isdisjoint(_started), "this test belongs in process/"


def pytest_configure() -> None:
    route_environment()
    route_logs()
    # Whoever ends a run by `timeout` has what its tests started ended, too, as by Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders files; inside a file tests stay as they are written."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


class FilesWhole(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps each file on one worker. (xdist's own marks for that do nothing under pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if Path(file).stem in SHARED_OUT else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesWhole:
    return FilesWhole(config, log)


def pytest_unconfigure() -> None:
    close_parent()


@pytest.fixture
async def model() -> AsyncIterator[OfflineModel]:
    async with OfflineModel() as model:
        yield model


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Session logs that the real CLI wrote (15 s, once); nobody may change them."""
    return _made_once("recorded", tmp_path_factory, Recorded, lambda folder: asyncio.run(record(folder)))


@pytest.fixture(scope="session")
def curated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a curated memory (5 s, once); tests copy it before they change it."""
    return _made_once("curated", tmp_path_factory, Path, lambda folder: asyncio.run(_curated(folder / "workspace")))


async def _curated(workspace: Path) -> Path:
    await curate_workspace(workspace)
    return workspace


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real Postgres that all tests of the run share (1 s, once); without one they are skipped (tests/postgres.py)."""
    own = tmp_path_factory.getbasetemp()
    with shared_server(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """The address of a new and empty database."""
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def chosen_server(request: pytest.FixtureRequest) -> Server | None:
    """None for SQLite."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
def database_at(chosen_server: Server | None, tmp_path: Path) -> Iterator[Path | str]:
    """Where `open_database` finds a new and empty database: every test that asks for it runs on both."""
    if chosen_server is None:
        yield tmp_path / "bridge.db"
        return
    url = chosen_server.create()
    yield url
    chosen_server.drop(url)


@pytest.fixture
async def emulator(tmp_path: Path) -> AsyncIterator[Emulator]:
    """The Sprites API on loopback."""
    async with Emulator(tmp_path / "vms") as emulator:
        yield emulator


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """A VM that this checkout's code was deployed to (7 s, once); nobody may change it."""
    return _made_once("disk", tmp_path_factory, Disk, deployed_disk)


def _made_once(name: str, tmp_path_factory: pytest.TempPathFactory, kind: type[T], make: Callable[[Path], T]) -> T:
    """Has one worker make what all of them use: it tells the others, which wait, what it made."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    made = shared / f"{name}.json"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with ThreadPoolExecutor(1) as thread:
                # Tests have an event loop of their own in this thread.
                result = thread.submit(make, tmp_path_factory.mktemp(name)).result()
            made.write_bytes(msgspec.json.encode(result, enc_hook=str))
    return msgspec.json.decode(made.read_bytes(), type=kind, dec_hook=lambda path, text: path(text))
