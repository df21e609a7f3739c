"""Logging of the bridge: one JSON object a line, on stderr or, if stderr is a terminal, in a file.

Lines hold ids, names, states and durations; never content, tokens, queries of addresses, or exception messages, which
may contain any of these. For an exception its type and stack are logged. The bridge's own keys are redacted by value.
"""

import logging
import sys
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from sprite.common import own_secrets

#: Extra fields of a record: `log.info("...", extra={"mission_id": ...})`.
FIELDS = ("request_id", "method", "route", "status", "duration_ms", "person", "sprite", "mission_id", "model", "count")
#: Loggers of our own code: the bridge, and modules shared with the sprite.
_OURS = ("bridge", "sprite")
#: Size of the file and of one backup: some weeks of a personal bridge.
_FILE_BYTES = 2 * 1024 * 1024
_ROOT = Path(__file__).resolve().parents[2]


def set_up(file: Path) -> None:
    """Log our own records from INFO up, those of libraries from WARNING up.

    On a terminal only warnings are shown, in readable lines, and everything goes to the file.
    """
    if sys.stderr.isatty():
        _use(_warnings(), _in_file(file))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        _use(handler)


def set_up_for_an_editor() -> None:
    """Log warnings to stderr in readable lines, where an editor shows the errors of its agents."""
    _use(_warnings())


def set_up_silently(file: Path) -> None:
    """Log everything to the file, for a program that owns the terminal."""
    _use(_in_file(file))


def _warnings() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines())
    handler.setLevel(logging.WARNING)
    return handler


def _in_file(file: Path) -> logging.Handler:
    """Return a handler that opens the file at its first line: the bridge that owns the folder creates it."""
    handler = RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(JsonLines())
    return handler


def _use(*handlers: logging.Handler) -> None:
    logging.basicConfig(handlers=handlers, level=logging.WARNING, force=True)
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    # Uncaught exceptions would be printed with their message.
    sys.excepthook = lambda *uncaught: logging.getLogger("bridge").critical("an error of ours", exc_info=uncaught)


class JsonLines(logging.Formatter):
    """Format each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON, without the bridge's own keys."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _words(record),
            **{name: getattr(record, name) for name in FIELDS if hasattr(record, name)},
        }
        if record.exc_info:
            line["error"] = _places(record)
        return own_secrets.without(msgspec.json.encode(line, enc_hook=str).decode())


class PlainLines(logging.Formatter):
    """Format each record as a readable line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line for people, without the bridge's own keys, and the places of an exception."""
        known = (f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        lines = [" ".join((at, record.levelname.lower(), _words(record), *known))]
        if record.exc_info:
            lines += _places(record)
        return own_secrets.without("\n  ".join(lines))


def _words(record: logging.LogRecord) -> str:
    # Only the constant part of a library's message: its arguments may be private.
    is_ours = record.name.partition(".")[0] in _OURS
    return record.getMessage() if is_ours else str(record.msg)


def _places(record: logging.LogRecord) -> list[str]:
    """Return the type and stack of the exception and of each of its causes, without messages."""
    places: list[str] = []
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        places.append(type(error).__qualname__)
        for frame in traceback.extract_tb(error.__traceback__):
            path = Path(frame.filename)
            name = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path.name
            places.append(f"{name}:{frame.lineno} {frame.name}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return places


PERSON: Final = web.RequestKey("person", str)
SPRITE: Final = web.RequestKey("sprite", str)
#: Identifies the request in the log of each bridge that it passes.
REQUEST_ID: Final = web.RequestKey("request_id", str)
