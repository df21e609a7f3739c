"""The sprite: an agent on its own computer, and its memory."""

import sys

__version__ = "0.1.0"
#: Debian 12's version, and the oldest that the tests run on. The bridge requires the same.
OLDEST_PYTHON = (3, 11, 2)

# Checked before our own imports, in syntax that an old Python can parse.
if sys.version_info < OLDEST_PYTHON:
    version = ".".join(map(str, sys.version_info[:3]))
    words = f"{sys.executable} is Python {version}, which is too old. Install Python 3.11.2 or newer."
    sys.stderr.write(f"sprite: {words}\n")
    sys.exit(2)
