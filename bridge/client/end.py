"""The end of a client program."""

import asyncio
import signal
from typing import Self

_SIGNALLED = 128


class End:
    """A program's exit status, set by one of the signals or by `come`: `with End(SIGTERM) as end:`."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._signals = signals

    def __enter__(self) -> Self:
        for number in self._signals:
            asyncio.get_running_loop().add_signal_handler(number, self.come, _SIGNALLED + number)
        return self

    def __exit__(self, *_error: object) -> None:
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)

    def come(self, status: int) -> None:
        """Set the exit status. Only the first call counts."""
        if not self.status.done():
            self.status.set_result(status)
