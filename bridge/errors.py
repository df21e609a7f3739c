"""Errors by blame; the docstring is the default message, the argument the sentence a person reads."""

#: Exit statuses of a command: a bug in the bridge, invalid usage, and Ctrl-C.
FAULT = 1
BAD_USAGE = 2
INTERRUPTED = 130


class BridgeError(Exception):
    """An error that the bridge can explain to people."""

    def __str__(self) -> str:
        return " ".join(map(str, self.args)) or (self.__doc__ or "")


class OperatorError(BridgeError):
    """The bridge was started in a way that cannot work; the message says what to change. Exit status 2."""
