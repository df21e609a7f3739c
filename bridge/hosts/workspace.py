"""Names of files below a sprite's workspace that its host needs. `sprite/config.py` defines them.

The bridge imports only the wire protocol and the prices from the sprite: a host sees a workspace from outside, on a
VM only through commands, and the sprite may be older than the bridge. A test keeps both lists equal.
"""

from __future__ import annotations

from sprite.protocol.paths import FILE_FOLDERS

SYSTEM = ".os"
#: The following names are below SYSTEM.
LOCK = "run/lock"
TOKEN = "run/token"  # noqa: S105 - a file's name
ADDRESS = "run/address"
MEMORY = "memory"
LOG = "memory/transcript.db"
#: Input history of the terminal client, beside the sprite's own files; forgetting must also clear it.
CHAT_HISTORY = "run/chat_history"
#: The person's folders whose files may be downloaded.
SHARED_FOLDERS = frozenset(FILE_FOLDERS)
