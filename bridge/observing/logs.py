"""What the bridge writes to stderr: one JSON object a line, or a readable line where a person watches.

Ids, names, states and durations; never content, tokens, addresses' queries, nor the words of an exception, which
may hold any of them: of an exception its type and the places it passed are written.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

import msgspec

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
_ROOT = Path(__file__).resolve().parents[2]


def set_up() -> None:
    """Our own lines from INFO up (to a terminal: WARNING), those of libraries from WARNING up."""
    handler = logging.StreamHandler(sys.stderr)
    watched = sys.stderr.isatty()
    handler.setFormatter(PlainLines() if watched else JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("bridge").setLevel(logging.WARNING if watched else logging.INFO)
    # Uncaught exceptions would be printed with their message.
    sys.excepthook = lambda *uncaught: logging.getLogger("bridge").critical("a fault of ours", exc_info=uncaught)


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
        return msgspec.json.encode(line, enc_hook=str).decode()


class PlainLines(logging.Formatter):
    """The same for somebody who watches."""

    def format(self, record: logging.LogRecord) -> str:
        """See the module."""
        known = (f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        lines = [" ".join((at, record.levelname.lower(), _words(record), *known))]
        if record.exc_info:
            lines += _places(record)
        return "\n  ".join(lines)


def _words(record: logging.LogRecord) -> str:
    # Of libraries only the fixed part of their message: its arguments may be a person's.
    return record.getMessage() if record.name.startswith("bridge") else str(record.msg)


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
