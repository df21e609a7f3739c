"""What the bridge logs: one JSON object a line, on stderr or, where a person watches that, in a file.

Ids, names, states and durations; never content, tokens, addresses' queries, nor the words of an exception, which
may hold any of them: of an exception its type and the places it passed are written. The bridge's own keys are taken out
by value, wherever a line has one.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec

from bridge.token_bucket import TokenBucket
from sprite.common import own_secrets

#: What a record may carry beside its message: `log.info("...", extra={"mission_id": ...})`.
FIELDS = (
    "request_id",
    "method",
    "route",
    "status",
    "duration_ms",
    "person",
    "sprite",
    "mission_id",
    "model",
    "count",
)
#: Loggers of our own code: the bridge's, and of what it shares with the sprite.
_OURS = ("bridge", "sprite")
#: The file and the one before it: some weeks of a person's own bridge.
_FILE_BYTES = 2 * 1024 * 1024
#: A library may have something to say of every connection that a stranger makes.
_LIBRARY_LINES_PER_SECOND, _LIBRARY_LINES_AT_ONCE = 1.0, 50.0
_ROOT = Path(__file__).resolve().parents[2]


def set_up(file: Path) -> None:
    """Our own lines from INFO up, those of libraries from WARNING up.

    On a terminal nothing but warnings is shown, in readable lines, and the whole goes to the file.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    handlers[0].setFormatter(JsonLines())
    if sys.stderr.isatty():
        handlers[0].setFormatter(PlainLines())
        handlers[0].setLevel(logging.WARNING)
        handlers.append(_in_file(file))
    _use(handlers)


def set_up_for_an_editor() -> None:
    """Warnings on stderr, in readable lines: an editor shows them where it shows what its agents complain of."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines())
    handler.setLevel(logging.WARNING)
    _use([handler])


def set_up_silently(file: Path) -> None:
    """The same, for a program that owns the terminal: everything goes to the file."""
    _use([_in_file(file)])


def _in_file(file: Path) -> logging.Handler:
    """Opens the file with its first line: its folder is made by the bridge that comes to own it."""
    handler = RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(JsonLines())
    return handler


def _use(handlers: list[logging.Handler]) -> None:
    for handler in handlers:
        handler.addFilter(LibrariesSeldom())
    logging.basicConfig(handlers=handlers, level=logging.WARNING, force=True)
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    # Uncaught exceptions would be printed with their message.
    sys.excepthook = lambda *uncaught: logging.getLogger("bridge").critical("a fault of ours", exc_info=uncaught)


class LibrariesSeldom(logging.Filter):
    """Lets so many lines of libraries through; the next says as its `count` how many were left out before it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = TokenBucket(_LIBRARY_LINES_PER_SECOND, _LIBRARY_LINES_AT_ONCE)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """See the class."""
        if _is_ours(record):
            return True
        if self._lines.wait(1) > 0:
            self._left_out += 1
            return False
        self._lines.take(1)
        if self._left_out:
            record.count, self._left_out = self._left_out, 0
        return True


class JsonLines(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """See the module."""
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
    """The same for somebody who watches."""

    def format(self, record: logging.LogRecord) -> str:
        """See the module."""
        known = (f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        lines = [" ".join((at, record.levelname.lower(), _words(record), *known))]
        if record.exc_info:
            lines += _places(record)
        return own_secrets.without("\n  ".join(lines))


def _words(record: logging.LogRecord) -> str:
    # Of libraries only the fixed part of their message: its arguments may be a person's.
    return record.getMessage() if _is_ours(record) else str(record.msg)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _OURS


def _places(record: logging.LogRecord) -> list[str]:
    """The exception's type and the way it came, then the same for what caused it; no words of any."""
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
