"""Where a sprite keeps what its host needs, below its workspace. Its own home for these names is `sprite/config.py`.

The bridge imports nothing of the sprite's but the wire and the prices: a host sees a workspace from outside, on a VM
only through commands, and on a sprite that may be older than the bridge. A test holds the two to each other.
"""

from __future__ import annotations

from sprite.protocol.paths import FILE_FOLDERS

SYSTEM = ".os"
#: All that follows is below SYSTEM.
LOCK = "run/lock"
TOKEN = "run/token"  # noqa: S105 - a file's name
ADDRESS = "run/address"
MEMORY = "memory"
LOG = "memory/transcript.db"
#: What was typed in the terminal client, beside the sprite's own files: what it forgets is forgotten there, too.
CHAT_HISTORY = "run/chat_history"
#: The person's folders whose files may be downloaded.
SHARED_FOLDERS = frozenset(FILE_FOLDERS)
