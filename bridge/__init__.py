"""The bridge: serves people and reaches their sprites, outside the VM that holds the agent."""

import sys

#: Debian 12's, and the oldest that the tests run on. The sprite has the same.
OLDEST_PYTHON = (3, 11, 2)

# Checked before any import of ours, and in a syntax that an old Python can read.
if sys.version_info < OLDEST_PYTHON:
    version = ".".join(map(str, sys.version_info[:3]))
    words = f"{sys.executable} is Python {version}, which is too old. Install Python 3.11.2 or newer."
    sys.stderr.write(f"bridge: {words}\n")
    sys.exit(2)
