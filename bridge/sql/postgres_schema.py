"""Check that a Postgres database is the bridge's, and migrate it to the newest version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.errors import InsufficientPrivilege

from bridge.errors import OperatorError
from bridge.sql.postgres_values import migration

#: "Spbr": bridges that start at once migrate one after the other.
_LOCK = 0x53706272
_OLDEST_SERVER = 13
#: Timeout for the migrations of this bridge, and for waiting for those of another one.
MIGRATION_SECONDS = 600
_NAME = "The database of BRIDGE_DATABASE_URL"

#: Functions of the bridge's SQL. The first is the time of the statement, even in a long transaction.
_OURS = """
CREATE TABLE bridge_version (version BIGINT NOT NULL);
INSERT INTO bridge_version VALUES (0);
CREATE FUNCTION db_now() RETURNS DOUBLE PRECISION LANGUAGE sql STABLE
    AS $$ SELECT extract(epoch FROM statement_timestamp())::DOUBLE PRECISION $$;
CREATE FUNCTION db_notify(channel TEXT, body TEXT) RETURNS VOID LANGUAGE sql AS $$ SELECT pg_notify(channel, body) $$;
"""
_TABLES = """
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = current_schema() AND relkind IN ('r', 'p')
    AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
ORDER BY relname
"""
_UNREADABLE = (
    "BRIDGE_DATABASE_URL cannot be read: it is like postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with % and two "
    "hexadecimal digits for each character of a password that an address cannot have."
)
_PASSWORD = re.compile(r"[?&]password=([^&]*)")
#: Advice for messages of the server; the first match is used.
_HINTS = (
    ("for connection option", _UNREADABLE),
    ("failed to resolve host", f"Is the host's name right? Or {_UNREADABLE}"),
    ("password authentication failed", "Check the user and the password."),
    ("no password supplied", "Give a password: postgresql://USER:PASSWORD@HOST/DATABASE."),
    ("no pg_hba.conf entry", "Let this machine in, in the server's pg_hba.conf."),
    ("the database system is ", "The server is being started or stopped: try again in a moment."),
    ("role ", "Make the user: createuser --pwprompt NAME."),
    ("database ", "Make the database: createdb --owner=USER NAME."),
    ("too many clients", "Raise the server's max_connections."),
)


def migrate(connection: psycopg.Connection[Any], migrations: Sequence[str]) -> None:
    """Migrate the database to the newest version in one transaction. Raise OperatorError if it is not the bridge's."""
    _refuse_unfit(connection)
    with connection.transaction():
        connection.execute(f"SET LOCAL statement_timeout = '{MIGRATION_SECONDS}s'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        tables = [row[0] for row in connection.execute(_TABLES)]
        if "bridge_version" not in tables:
            if tables:
                raise OperatorError(
                    f"{_NAME} holds tables that are not the bridge's ({tables[0]}). It was left untouched: make one "
                    "for the bridge alone."
                )
            connection.execute(_OURS)
        _raise_version(connection, migrations)


def _raise_version(connection: psycopg.Connection[Any], migrations: Sequence[str]) -> None:
    version: int = connection.execute("SELECT max(version) FROM bridge_version").fetchall()[0][0]
    if version > len(migrations):
        raise OperatorError(
            f"{_NAME} was written by another version of the bridge "
            f"(schema {version}, this one knows {len(migrations)}). Use that version; the database was left untouched."
        )
    for script in migrations[version:]:
        connection.execute(migration(script))
    if version < len(migrations):
        connection.execute("UPDATE bridge_version SET version = %s", (len(migrations),))


def _refuse_unfit(connection: psycopg.Connection[Any]) -> None:
    info = connection.info
    if info.server_version < _OLDEST_SERVER * 10_000:
        raise OperatorError(
            f"{_NAME} is Postgres {info.server_version // 10_000}; it has to be {_OLDEST_SERVER} or newer."
        )
    if (encoding := info.parameter_status("server_encoding")) != "UTF8":
        raise OperatorError(f"{_NAME} keeps text as {encoding}: make one with `createdb --encoding=UTF8 -T template0`.")


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn Postgres errors at the start into advice for operators, without the password in the URL."""
    try:
        yield
    except psycopg.ProgrammingError as error:
        if isinstance(error, InsufficientPrivilege):
            raise OperatorError(
                f"{_NAME} does not let this user make tables ({error.diag.message_primary}). Make the user its owner: "
                "ALTER DATABASE name OWNER TO user."
            ) from error
        if error.sqlstate is None:
            # The library's message about an unreadable URL can contain the password.
            raise OperatorError(f"{_NAME} cannot be used. {_UNREADABLE}") from None
        raise OperatorError(f"{_NAME} cannot be used ({error.diag.message_primary}).") from error
    except psycopg.Error as error:
        words = _words(error)
        said = "" if any(part in words for part in _password_parts(url)) else f" ({words})"
        raise OperatorError(f"{_NAME} cannot be used{said}. {advice(error)}") from (error if said else None)


def advice(error: psycopg.Error) -> str:
    """Return advice for a failed connection; it contains none of the server's text."""
    words = _words(error)
    return next((hint for said, hint in _HINTS if said in words), "Is the server running, and can it be reached?")


def _words(error: psycopg.Error) -> str:
    return " ".join(str(error.diag.message_primary or error).split())


def _password_parts(url: str) -> set[str]:
    """Return parts of an unescaped password that may be misread as a host or port."""
    password = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    return {part for part in re.split("[@/?#:&=]", f"{password}@{''.join(_PASSWORD.findall(url))}") if part}
