"""A real Postgres in a separate folder for the tests, and a fresh database for each user.

All workers of a run share one server (`shared_server`): the first starts a keeper (`python -m tests.postgres`), which
stops it when the last worker is gone, even after a crash. Tests that stop, pause or start a server use a separate one
(`own_server`).
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

from bridge.db.postgres import migrate
from bridge.db.tables import MIGRATIONS
from tests.fast_disk import FAST_DISK
from tests.forking import ROOT
from tests.in_thread import PATIENCE
from tests.ports import free_port

_MISSING = "no Postgres here (Debian: apt-get install postgresql)"
#: Authentication: `guarded` needs a password, other local users do not.
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
    """Return the folder of Postgres' programs, or None; Debian keeps them off the PATH."""
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = sorted(folders, key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0)
    return newest[-1].parent if newest else None


def require_postgres() -> Path:
    """Return the folder of the programs; without them skip the test, or fail with REQUIRE_POSTGRES=1."""
    folder = binaries()
    if folder is None or shutil.which("setpriv") is None:
        if os.environ.get("REQUIRE_POSTGRES") == "1":
            pytest.fail(f"REQUIRE_POSTGRES=1, and {_MISSING}")
        pytest.skip(_MISSING)
    return folder


@dataclass
class Server:
    """A server on a loopback port; its databases belong to the superuser `sprite`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    _spare: list[str] = field(default_factory=list)
    _unused: tuple[Any, ...] | None = None

    def url(self, database: str, user: str = "sprite") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it; return when it accepts connections."""
        log = (self.folder / "server.log").open("ab")
        command = [str(require_postgres() / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        with log:
            # If the starter is killed, the kernel ends the server.
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
        """Stop it as a restart does: connections are cut, committed rows are kept."""
        self.signal(signal.SIGINT)
        if self.process is not None:
            self.process.wait(PATIENCE)

    def signal(self, number: int) -> None:
        """Signal the server's main process, which its other processes follow."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def freeze(self) -> None:
        """Stop each of its processes, like a hanging machine: connections stay open without answers."""
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
        """Make a database; return its address."""
        name = f"test_{uuid.uuid4().hex}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def drop(self, url: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def lend(self) -> str:
        """Lend a database with the bridge's tables and no rows: making one takes seven times as long."""
        if self._spare:
            return self._spare.pop()
        url = self.create()
        with psycopg.connect(url) as connection:
            migrate(connection, MIGRATIONS)
        return url

    def take_back(self, url: str) -> None:
        """Empty a lent database for the next test; drop it if a test changed more than rows."""
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
        """Return an unused database's schema: tables, columns, constraints, functions and settings."""
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
    """Run a server for this test alone; it takes 1 s."""
    programs = require_postgres()
    # The server's user, which is not root, needs access here.
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
    """Return all rows of all tables of a database, as text."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        rows = [connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(*t))).fetchall() for t in tables]
    return repr(rows).encode()


def _as_somebody(*options: str) -> list[str]:
    """Return a command prefix that switches the user, because Postgres refuses to run as root."""
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *user, *options] if user or options else []


@contextmanager
def shared_server(shared: Path) -> Iterator[Server]:
    """Return the server of a run, whose workers share a folder: started by the first, stopped after the last."""
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
        # A Ctrl-C at the terminal is for the workers; the keeper ends when they have.
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
    """Run a server until its last user is gone."""
    made, ready = shared / "postgres.ready.new", shared / "postgres.ready"
    try:
        with own_server() as server, (shared / "postgres.users").open("a") as users:
            made.write_text(f"{server.folder} {server.port}")
            made.rename(ready)
            fcntl.flock(users, fcntl.LOCK_EX)
            # A worker that arrives after all others have gone starts another server.
            ready.unlink()
    except BaseException:
        # Workers do not wait for a server that failed to start.
        made.write_text("")
        made.rename(ready)
        raise


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
