"""Drop the inherited state that would change the behaviour of programs under test.

Runners ignore signals (nohup, CI), close stdin, set a umask, proxies, a locale or a time zone, or have Sprite settings
in their environment. Tests of one of these set it themselves.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import time
from pathlib import Path

_PREFIXES = ("ANTHROPIC_", "BRIDGE_", "CLAUDE", "LC_", "PG", "SPRITE", "XDG_")
_NAMES = {
    "ALL_PROXY",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LINES",
    "NO_COLOR",
    "NO_PROXY",
}

#: The tests use no TLS: each HTTP client reads this one certificate in 1 ms, and the system's certificates in 40.
AUTHORITY = Path(__file__).parent / "fixtures/authority.pem"


def drop_inherited() -> None:
    """Give this process and its children default signals, umask 022, an open stdin and a plain environment."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    try:
        os.fstat(0)
    except OSError:
        # It gets the lowest free number.
        os.open(os.devnull, os.O_RDONLY)
    for name in tuple(os.environ):
        if name.startswith(_PREFIXES) or name.upper() in _NAMES:
            del os.environ[name]
    os.environ |= {"LANG": "C.UTF-8", "TERM": "xterm", "TZ": "UTC", "SSL_CERT_FILE": str(AUTHORITY)}
    time.tzset()
    if not Path(os.environ.get("HOME", "")).is_absolute():
        with contextlib.suppress(KeyError):
            os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
