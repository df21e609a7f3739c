"""Log lines without secrets: a filter for handlers, so that other libraries' lines and tracebacks pass it as well."""

from __future__ import annotations

import logging

from sprite.privacy.redaction import discreet

_FORMATTER = logging.Formatter()


class DiscreetFilter(logging.Filter):
    """Lets every record through, its words and its traceback made discreet."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrites the record in place; always True."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            # Arguments that do not fit their format: logging itself would print them as they are.
            message = f"{record.msg} {record.args!r}"
        record.msg, record.args = discreet(message), None
        if record.exc_info and not record.exc_text:
            # What is cached here is what every formatter prints.
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = discreet(record.exc_text)
        if record.stack_info:
            record.stack_info = discreet(record.stack_info)
        return True
