"""Keep secrets out of logs with a handler filter, which also covers other libraries' lines and tracebacks."""

from __future__ import annotations

import logging

from sprite.privacy.redaction import discreet

_FORMATTER = logging.Formatter()


class DiscreetFilter(logging.Filter):
    """Pass every record, with secrets and private passages removed from its message and its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record in place; always return True."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            # The arguments do not fit the format; logging would print them as they are.
            message = f"{record.msg} {record.args!r}"
        try:
            self._rewrite(record, message)
        except Exception as error:  # noqa: BLE001 - from here it would end the event loop, whose errors are logged
            # Without the rules (they are files) it is unknown what may be logged.
            record.msg, record.args = f"(a line that could not be checked for secrets: {type(error).__name__})", None
            record.exc_info = record.exc_text = record.stack_info = None
        return True

    def _rewrite(self, record: logging.LogRecord, message: str) -> None:
        record.msg, record.args = discreet(message), None
        if record.exc_info and not record.exc_text:
            # Every formatter prints what is cached here.
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = discreet(record.exc_text)
        if record.stack_info:
            record.stack_info = discreet(record.stack_info)
