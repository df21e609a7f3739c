"""Shell scripts that install a sprite on a VM. Each may be interrupted, and may run twice.

On the VM, below /workspace/.os:
  releases/R/           a release, R = digest of its files and a random suffix
  venvs/E/              a virtual environment, E = digest of the requirements; `.complete` once it is
  src, .venv            links to the ones in use, so that a swap is one rename
  run/token, model.env  mode 0600
  restore.zip           archive of the workspace to restore
  before-TIME/          the earlier content of a restored workspace
  VERSION               written last; missing while an update is in progress
  next-R.tar.gz         a release that is being sent

Scripts with `{names}` are filled by `str.format`. A script is part of a URL, so none contains a secret.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from bridge.providers import provider as workspace
from bridge.providers.provider import LOCK, MEMORY, TOKEN, printable

if TYPE_CHECKING:
    from typing_extensions import Buffer


#: The sprite's port on every VM.
PORT = 8765
SERVICE = "sprite"
WORKSPACE = "/workspace"
SYSTEM = f"{WORKSPACE}/{workspace.SYSTEM}"
#: Below SYSTEM: the credentials for the model, and the version of the code.
MODEL_ENV = "run/model.env"
VERSION = "VERSION"

#: The service reads the credentials from a file: anyone with the API's token can read a service's definition.
START = (
    f"set -a; . {SYSTEM}/{MODEL_ENV}; exec {SYSTEM}/.venv/bin/python -m sprite serve "
    f"--workspace {WORKSPACE} --host 0.0.0.0 --port {PORT}"
)
COMMAND = ("/bin/sh", "-c", START)

LOOK = f"""
cd {SYSTEM} 2>/dev/null || exit 0
tar -czf - --exclude=__pycache__ $(ls -d {VERSION} {TOKEN} {MODEL_ENV} src/. 2>/dev/null) 2>/dev/null || :
"""

#: A script whose bridge is gone runs on for a while; its children keep the lock with it.
ALONE = f"""
set -eu
exec 9> {SYSTEM}/deploy.lock
if ! flock -w 45 9; then echo "Another deploy is under way on this VM." >&2; exit 1; fi
"""

#: Files written through the API may belong to another user than the one who runs commands.
OWN = f"""
set -eu
[ "$(id -u)" = 0 ] && become= || become="sudo -n"
[ -O {WORKSPACE} ] || $become chown "$(id -un)" {WORKSPACE}
[ -z "$(find {SYSTEM} ! -user "$(id -un)" -print -quit)" ] || $become chown -R "$(id -un)" {SYSTEM}
{ALONE}
cd {SYSTEM}
"""

#: Prints the release in use at its end. Removes unused releases, but not if a newer deploy has sent its code: a
#: script of a dead bridge may get the lock after those of the next one. Files that a leftover self-check still writes
#: are removed by the next deploy.
UNPACK = """
if [ "$(ls -t next-*.tar.gz | head -n 1)" != next-{release}.tar.gz ]; then
  echo "Another deploy has begun on this VM." >&2
  exit 1
fi
mkdir -p memory run releases venvs
chmod 700 . memory run
for old in releases/* venvs/*; do
  case "$old" in "$(readlink src)" | "$(readlink .venv)" | venvs/{environment}) ;; *) rm -rf "$old" || : ;; esac
done
mkdir releases/{release}
tar -xzf next-{release}.tar.gz -C releases/{release}
echo "$(readlink src) $(readlink .venv)"
"""

INSTALL = f"""
{ALONE}
cd {SYSTEM}
[ ! -e venvs/{{environment}}/.complete ] || exit 0
rm -rf venvs/{{environment}}
python3 -m venv venvs/{{environment}}
venvs/{{environment}}/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off \\
  -r releases/{{release}}/requirements.txt -c releases/{{release}}/constraints.txt 2>&1
touch venvs/{{environment}}/.complete
"""

#: From here on the VM counts as being updated: VERSION is missing, however the update is interrupted.
DOCTOR = f"""
cd {SYSTEM}/releases/{{release}}
{SYSTEM}/venvs/{{environment}}/bin/python -m sprite doctor --workspace {WORKSPACE} --without-model 2>&1 || exit
cd {SYSTEM}/releases/{{release}} && rm -f {SYSTEM}/{VERSION}
"""

#: The lock file identifies a sprite that was started without a service. Shipped memory files replace only unmodified
#: ones.
SWAP = f"""
[ -d {{release}} ]
pid=$(cat {LOCK} 2>/dev/null || :)
if [ -n "$pid" ] && tr '\\0' ' ' 2>/dev/null < "/proc/$pid/cmdline" | grep -q -- '-m sprite serve'; then
  kill "$pid" 2>/dev/null || :
  for _ in $(seq 650); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
fi
chmod 600 {TOKEN} {MODEL_ENV}
for name in soul.md os.md; do
  if [ ! -e {MEMORY}/$name ] || cmp -s {MEMORY}/$name src/sprite/memory/templates/$name; then
    cp {{release}}/sprite/memory/templates/$name {MEMORY}/$name.new && mv {MEMORY}/$name.new {MEMORY}/$name
  fi
done
rm -f next-*.tar.gz
[ -L src ] || rm -rf src
[ -L .venv ] || rm -rf .venv
ln -sfn {{release}} src.new && mv -T src.new src
ln -sfn {{environment}} .venv.new && mv -T .venv.new .venv
"""

#: Write the whole workspace as one archive to stdout, also while the sprite runs.
EXPORT = f"cd {SYSTEM}/src && exec {SYSTEM}/.venv/bin/python -m sprite export - --workspace {WORKSPACE}"

#: Upload path of the archive to restore.
ARCHIVE = f"{SYSTEM}/restore.zip"
_IMPORT = f"cd {SYSTEM}/src && {SYSTEM}/.venv/bin/python -m sprite import {ARCHIVE} --workspace"

#: Check the archive (complete, readable, not too large) by a dry run into an unused folder.
LOOK_THROUGH = f"set -eu; rm -rf {SYSTEM}/restore.look; {_IMPORT} {SYSTEM}/restore.look --dry-run 2>&1"

#: Moves everything but the code aside and deletes the tokens of sprite and model. Prints whether there was a memory.
PUT_ASIDE = f"""
mkdir -p {{aside}}/.os/run
rm -f {TOKEN} {MODEL_ENV}
[ ! -e run/claude ] || mv run/claude {{aside}}/.os/run/
for name in memory workspace.db workspace.db-wal workspace.db-shm follow import import.new; do
  [ ! -e $name ] || mv $name {{aside}}/.os/
done
find {WORKSPACE} -mindepth 1 -maxdepth 1 ! -name .os -exec mv -t {{aside}}/ {{{{}}}} +
[ ! -e {{aside}}/.os/memory/transcript.db ] || echo kept
"""

#: If it was interrupted after its last step, running it again completes it.
IMPORT = f"set -eu; {_IMPORT} {WORKSPACE} 2>&1; rm -f {ARCHIVE}"


_MAX_BYTES = 64 * 1024 * 1024
_MAX_KEPT_CHARS = 8000
_LAST_LINES = 12


class Output(io.BytesIO):
    """Buffer for a command's output, bounded, that reports each line. The SDK only writes to it."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        super().__init__()
        self.is_too_much = False
        self._tell = tell
        self._line = b""

    def write(self, data: Buffer, /) -> int:
        """Append some bytes."""
        piece = bytes(data)
        if self.tell() + len(piece) > _MAX_BYTES:
            self.is_too_much = True
            # The SDK treats this as a broken connection and closes it.
            raise ValueError("too much")
        if self._tell is not None:
            *lines, self._line = (self._line + piece).split(b"\n")
            for line in lines:
                self._tell(printable(line.decode(errors="replace")).strip())
        return super().write(piece)


def last_lines(said: str) -> str:
    """Return the last lines of a program's output, for users."""
    lines = [printable(line).rstrip() for line in said[-_MAX_KEPT_CHARS:].splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:]) or "(nothing)"
