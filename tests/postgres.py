"""A real Postgres, made for the tests in a folder of its own, and a fresh database for whoever wants one.

All workers of a run share one server (`shared_server`): who comes first starts a keeper (`python -m tests.postgres`),
which ends it when the last worker is gone, however that one went. Tests that stop, pause or start a server have one of
their own (`own_server`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from bridge.db.open import MIGRATIONS
from bridge.db.postgres import migrate
from tests.fast_disk import FAST_DISK
from tests.forking import ROOT
from tests.in_thread import PATIENCE
from tests.ports import free_port

_MISSING = "no Postgres here (Debian: apt-get install postgresql)"
#: Who may come in how: `guarded` needs a password, everybody else on this machine none.
_HBA = """
local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_SETTINGS = """
fsync = off
full_page_writes = off
synchronous_commit = off
shared_buffers = 32MB
max_connections = 400
jit = off
autovacuum = off
"""

_END_OTHERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
#: Deleting a few rows is much faster than truncating; the order of foreign keys does not matter to a replica.
_EMPTY = """
DO $$
DECLARE each RECORD;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR each IN SELECT oid::regclass AS name, pg_table_size(oid) AS size FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'bridge_version'
    LOOP
        IF each.size > 1000000 THEN EXECUTE format('TRUNCATE %s CASCADE', each.name);
        ELSIF each.size > 0 THEN EXECUTE format('DELETE FROM %s', each.name);
        END IF;
    END LOOP;
    PERFORM setval(seqrelid::regclass, seqstart, false) FROM pg_sequence;
END $$
"""
_SHAPE = """
SELECT
    (SELECT array_agg(version) FROM bridge_version),
    (SELECT array_agg(format('%s %s %s %s', c.relname, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod))
        ORDER BY c.relname, a.attnum)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND NOT a.attisdropped),
    (SELECT array_agg(conname ORDER BY conname) FROM pg_constraint WHERE connamespace = 'public'::regnamespace),
    (SELECT array_agg(tgname ORDER BY tgname) FROM pg_trigger WHERE NOT tgisinternal),
    (SELECT array_agg(proname || prosrc ORDER BY proname) FROM pg_proc WHERE pronamespace = 'public'::regnamespace),
    (SELECT array_agg(setconfig) FROM pg_db_role_setting
        JOIN pg_database d ON d.oid = setdatabase WHERE d.datname = current_database())
"""


def binaries() -> Path | None:
    """Where Postgres' programs are; Debian puts them beside the PATH."""
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = sorted(folders, key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0)
    return newest[-1].parent if newest else None


def require_postgres() -> Path:
    """Where the programs are; without them the test is skipped, or fails with REQUIRE_POSTGRES=1."""
    folder = binaries()
    if folder is None or shutil.which("setpriv") is None:
        if os.environ.get("REQUIRE_POSTGRES") == "1":
            pytest.fail(f"REQUIRE_POSTGRES=1, and {_MISSING}")
        pytest.skip(_MISSING)
    return folder


@dataclass
class Server:
    """A server on a port of loopback's; databases on it belong to the user `sprite`, who is its superuser."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    _spare: list[str] = field(default_factory=list)
    _unused: tuple[Any, ...] | None = None

    def url(self, database: str, user: str = "sprite") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Returns when it lets people in."""
        log = (self.folder / "server.log").open("ab")
        command = [str(require_postgres() / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        with log:
            # Should whoever started it be killed, the kernel ends it.
            self.process = subprocess.Popen(
                [*_as_somebody("--pdeathsig", "INT"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        while not self.is_up():
            said = (self.folder / "server.log").read_text()[-2000:]
            assert self.process.poll() is None, f"Postgres has ended: {said}"
            assert time.monotonic() < deadline, f"Postgres does not begin: {said}"
            time.sleep(0.05)

    def is_up(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Ends it as a restart does: connections are cut, what was committed is kept."""
        self.signal(signal.SIGINT)
        if self.process is not None:
            self.process.wait(PATIENCE)

    def signal(self, number: int) -> None:
        """To the server: its head, which its other processes follow."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def freeze(self) -> None:
        """Stops each of its processes, as a machine that hangs: connections stay, nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        from tests.inspection import children  # it imports the programs

        assert self.process is not None
        head = self.process.pid
        self.signal(number)
        for child in children(head):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    def create(self) -> str:
        """A new database; its address."""
        name = f"test_{uuid.uuid4().hex}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def drop(self, url: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def lend(self) -> str:
        """A database with the bridge's tables and no rows, to be given back: making one takes seven times as long."""
        if self._spare:
            return self._spare.pop()
        url = self.create()
        with psycopg.connect(url) as connection:
            migrate(connection, MIGRATIONS)
        return url

    def take_back(self, url: str) -> None:
        """Empty a database that was lent, for the next test; drop it where a test changed more than rows."""
        try:
            with psycopg.connect(url, autocommit=True, options="-c statement_timeout=10s") as connection:
                connection.execute(_END_OTHERS)
                connection.execute(_EMPTY)
                shape = connection.execute(_SHAPE).fetchone()
        except psycopg.Error:
            shape = None
        if shape is not None and shape == self._shape():
            self._spare.append(url)
        else:
            self.drop(url)

    def _shape(self) -> tuple[Any, ...] | None:
        """What `take_back` compares: tables, columns, constraints, functions and settings of an unused database."""
        if self._unused is None:
            url = self.create()
            with psycopg.connect(url) as connection:
                migrate(connection, MIGRATIONS)
                self._unused = connection.execute(_SHAPE).fetchone()
            self.drop(url)
        return self._unused

    def run(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def own_server() -> Iterator[Server]:
    """A server that nobody else uses, ended at the end; 1 s."""
    programs = require_postgres()
    # Somebody else than root has to come in here.
    folder = Path(tempfile.mkdtemp(prefix="sprite-postgres-", dir=FAST_DISK))
    server = Server(folder, free_port())
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        made = subprocess.run(
            [
                *(*_as_somebody(), str(programs / "initdb"), "--no-sync", "--auth=trust", "--username=sprite"),
                *("--encoding=UTF8", "--locale=C", "-D", str(folder / "data")),
            ],
            check=False,
            capture_output=True,
        )
        assert made.returncode == 0, made.stderr.decode()
        (folder / "data/pg_hba.conf").write_text(_HBA)
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write(f"{_SETTINGS}unix_socket_directories = '{folder}'\nlisten_addresses = '127.0.0.1'\n")
        server.start()
        yield server
    finally:
        if server.process is not None:
            if server.process.poll() is None:
                server.thaw()
            server.signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def dumped(url: str) -> bytes:
    """All rows of all tables of a database, as text."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        rows = [connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(*t))).fetchall() for t in tables]
    return repr(rows).encode()


def _as_somebody(*options: str) -> list[str]:
    """Postgres refuses to run as root."""
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *user, *options] if user or options else []


@contextmanager
def shared_server(shared: Path) -> Iterator[Server]:
    """The server of a run, whose workers share a folder: started by the first, ended after the last."""
    require_postgres()
    users = (shared / "postgres.users").open("a")
    with users, (shared / "postgres.lock").open("w") as lock:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = shared / "postgres.ready"
        if not ready.exists():
            _start_keeper(shared, ready)
        fcntl.flock(lock, fcntl.LOCK_UN)
        said = ready.read_text().split()
        assert said, f"Postgres did not begin: {(shared / 'postgres.log').read_text()[-3000:]}"
        yield Server(Path(said[0]), int(said[1]))


def _start_keeper(shared: Path, ready: Path) -> None:
    with (shared / "postgres.log").open("wb") as log:
        # A Ctrl-C at the terminal is the workers'; the keeper ends when they have.
        subprocess.run(
            ["setsid", "--fork", sys.executable, "-m", "tests.postgres", str(shared)],
            check=True,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    deadline = time.monotonic() + PATIENCE
    while not ready.exists():
        assert time.monotonic() < deadline, f"Postgres does not begin: {(shared / 'postgres.log').read_text()[-3000:]}"
        time.sleep(0.05)


def _keep(shared: Path) -> None:
    """Has a server until nobody uses it any more."""
    made, ready = shared / "postgres.ready.new", shared / "postgres.ready"
    try:
        with own_server() as server, (shared / "postgres.users").open("a") as users:
            made.write_text(f"{server.folder} {server.port}")
            made.rename(ready)
            fcntl.flock(users, fcntl.LOCK_EX)
            # Who comes when all others have gone begins another one.
            ready.unlink()
    except BaseException:
        # Workers do not wait for one that could not begin.
        made.write_text("")
        made.rename(ready)
        raise


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
