"""Make tests/fixtures/data-VERSION.tar.xz: a small data folder, by a conversation with the offline model.

Run `python -m tools.data_fixture` for the commit that is tagged. Later builds must open it, so it never changes then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from sprite import __version__

ROOT = Path(__file__).resolve().parent.parent
SAID = (
    "Hi, my name is Ada and I prefer tea. Make a table of apples 3, pears 5",
    "Remind me on 2099-03-01 at 9:00 to call Bo",
    "/flush",
    "/new",
    "What do you remember about me?",
)


def main() -> None:
    """Talk, and pack the data without the files of the running process and the replica."""
    with tempfile.TemporaryDirectory() as data:
        variables = {"PATH": os.environ["PATH"], "HOME": data, "TZ": "UTC"}
        talk = [sys.executable, "-m", "bridge", "chat", "--data", data]
        subprocess.run(talk, cwd=ROOT, env=variables, input="\n".join(SAID), text=True, check=True)
        with tarfile.open(ROOT / f"tests/fixtures/data-{__version__}.tar.xz", "w:xz") as packed:
            for path in sorted(Path(data).rglob("*")):
                name = str(path.relative_to(data))
                if path.is_file() and not {"run", "store", ".config"} & set(Path(name).parts):
                    packed.add(path, name)


if __name__ == "__main__":
    main()
