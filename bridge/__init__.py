"""The bridge: serves people and reaches their sprites, outside the VM that holds the agent."""

import sys

#: The version in Debian 12 and the oldest one tested. The sprite requires the same.
OLDEST_PYTHON = (3, 11, 2)

# Runs before any import of bridge code, in syntax that old Python versions can parse.
if sys.version_info < OLDEST_PYTHON:
    version = ".".join(map(str, sys.version_info[:3]))
    words = f"{sys.executable} is Python {version}, which is too old. Install Python 3.11.2 or newer."
    sys.stderr.write(f"bridge: {words}\n")
    sys.exit(2)
