"""Run the attempts of `escapes.py` in a disposable machine: namespaces of their own, where no file is kept.

`python3 -m tests.escape_stage control|sandbox SPACES` is the machine's first program; `machine()` starts it. It builds
a house with secrets, listeners and processes, runs each attempt without or in the agent's sandbox, and prints as JSON
which attempts left evidence outside.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.escapes import ATTEMPTS, Attempt

SECRET = "planted-secret-7f3a"
SPACES = ("mnt", "pid", "net", "ipc", "uts", "user")
HOUSE, VISIBLE, MARKER = Path("/tmp/house"), Path("/opt/visible"), Path("/opt/machine")
#: Rights of root in the machine. It cannot mount: its read-only folders are those of the real machine.
_RIGHTS = (
    "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETFCAP SETGID SETUID NET_ADMIN NET_RAW SYS_CHROOT SYS_PTRACE SYS_NICE"
).split()
_ETC = ("/etc/cron.d", "/etc/profile.d", "/etc/ld.so.conf.d")
_LOOPBACK_NAMES = ("192.0.2.77", "169.254.169.254")
_LATE_SECONDS = 3.0


def spaces() -> dict[str, str]:
    """Return this process's namespaces."""
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in SPACES}


def as_nobody() -> list[str]:
    """Return the command that gives up root's rights; nothing for an ordinary user."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def machine(bwrap: str, *, as_root: bool, kept: Path) -> list[str]:
    """Return the command that starts a program in a disposable machine. Of the homes it sees `kept` alone.

    Its root is an ordinary user of the real machine: what an attempt breaks here, it cannot break there.
    """
    command = [*as_nobody(), bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
    command += ["--dev", "/dev", "--proc", "/proc", "--cap-drop", "ALL"]
    for folder in ("/tmp", "/var/tmp", "/opt", "/home", "/root", "/run", *_ETC):
        command += ["--tmpfs", folder] if Path(folder).is_dir() else []
    command += ["--ro-bind", str(kept), str(kept), "--dir", str(MARKER), "--dir", str(VISIBLE)]
    if as_root:
        command += ["--uid", "0", "--gid", "0", *(part for right in _RIGHTS for part in ("--cap-add", f"CAP_{right}"))]
    return command


class Stage:
    """The house, with everything that an attempt may reach."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self.attempts = attempts
        self.heard = bytearray()
        self.victims: dict[str, subprocess.Popen[bytes]] = {}
        self.home, self.outside, self.data = HOUSE / "home", HOUSE / "outside", HOUSE / "data"
        self.workspace = self.data / "workspaces/ada"
        self.variables: dict[str, object] = {}

    def build(self) -> None:
        """Create files, listeners and processes."""
        for path in (
            *(self.home / name for name in (".ssh/id_ed25519", ".aws/credentials", ".bash_history")),
            *(self.home / name for name in (".mozilla/cookies.sqlite", ".cache/huggingface/token")),
            *(self.outside / "secret", self.data / "store.key", self.data / "workspaces/bob/.os/memory/user.md"),
            *(self.workspace / ".os" / name for name in ("memory/user.md", "run/token", "run/boot.md", "run/agent")),
        ):
            _write(path, f"{SECRET}\n")
        for name in (".cargo/bin", ".cargo/registry", ".local/bin", ".local/lib", ".cache/pip", "go/pkg/mod"):
            (self.home / name).mkdir(parents=True)
        for name in (".bashrc", ".profile", ".gitconfig", ".npm/_cacache/index"):
            _write(self.home / name, "# none\n")
        for folder in (self.workspace / "out", self.workspace / "attempts", self.workspace / "documents"):
            folder.mkdir()
        self._repositories()
        for name in (".envrc", "deep/.envrc", ".mcp.json", ".vscode/tasks.json", ".idea/x", ".npmrc", ".bashrc"):
            _write(self.workspace / name, "# none\n")
        for name in (".husky/pre-push", ".claude/settings.json", ".profile", "tree/.git", "tree/.envrc"):
            _write(self.workspace / name, "# none\n")
        self._listen()
        self._system_v()
        for attempt in self.attempts:
            _write(VISIBLE / f"t-{attempt.slug}", "original\n")
            self._victim(attempt)

    def _repositories(self) -> None:
        names = [".", "r1", "r2", "r3", "r4", "r7", "deep/er/r5", "deep2/r6"]
        for name in names:
            _git("init", "-q", str(self.workspace / name))
        _git("init", "-q", "--bare", str(self.workspace / "bare.git"))
        shutil.rmtree(self.workspace / "r7/.git/hooks")
        shutil.copytree(self.workspace / "r1/.git", self.workspace / ".git/modules/sub")

    def _listen(self) -> None:
        (self.data / "run").mkdir(exist_ok=True)
        tcp = socket.create_server(("", 0))
        tcp6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("", 0))
        folders = (self.outside / "s", VISIBLE / "s", self.data / "run/bridge.sock", self.home / ".ssh/agent")
        for address in (*map(str, folders), "\0escape"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(address)
            listener.listen()
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind("\0escaped")
        os.mkfifo(self.outside / "fifo")
        for listener in (tcp, tcp6):
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        fifo = os.open(self.outside / "fifo", os.O_RDWR)
        for read in (lambda: udp.recv(4096), lambda: datagrams.recv(4096), lambda: os.read(fifo, 4096)):
            threading.Thread(target=self._hear, args=(read,), daemon=True).start()
        self.variables |= {"L": tcp.getsockname()[1], "X": tcp6.getsockname()[1], "Y": udp.getsockname()[1]}

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            connection.settimeout(1)
            with suppress(OSError), connection:
                # Some clients send their request in two parts.
                request = connection.recv(4096)
                request += b"" if b".m" in request else connection.recv(4096)
                self.heard += request
                connection.sendall(f"{SECRET}\n".encode())

    def _hear(self, read: Any) -> None:
        while True:
            self.heard += read()

    def _system_v(self) -> None:
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        shared = libc.shmget(0, 4096, 0o1600)
        ctypes.memmove(libc.shmat(shared, None, 0), SECRET.encode(), len(SECRET))
        queue = libc.msgget(0, 0o1600)
        message = (1).to_bytes(8, "little") + SECRET.encode()
        libc.msgsnd(queue, message, len(SECRET), 0)
        self.variables |= {"SHM": shared, "MSG": queue}
        # A new session keyring, so that no key outlives the stage; then a key in it, as a login leaves one.
        libc.syscall(250, 1, None)
        assert libc.syscall(248, b"user", b"sprite-escape", SECRET.encode(), len(SECRET), -3) > 0

    def _victim(self, attempt: Attempt) -> None:
        """Start a process of an attempt's own, with secrets in its memory, environment, arguments and open files."""
        secret = os.open(self.outside / "secret", os.O_RDONLY)
        target = os.open(self.outside / f"opened-{attempt.slug}", os.O_CREAT | os.O_WRONLY)
        script = f"exec 9<&{secret} 8>&{target}; exec sleep 300"
        self.victims[attempt.slug] = subprocess.Popen(
            ["bash", "-c", script],
            env={"PATH": os.environ["PATH"], "HIDDEN": SECRET},
            cwd=self.outside,
            pass_fds=(secret, target),
            start_new_session=True,
        )
        os.close(secret)
        os.close(target)

    def run(self, mode: str) -> dict[str, Any]:
        """Run the attempts, and return the evidence."""
        crier = subprocess.Popen(["bash", "-c", "sleep 300 & wait", SECRET])
        lines = []
        for attempt in self.attempts:
            slug = attempt.slug
            variables = {
                **self.variables,
                "W": self.workspace,
                "H": self.home,
                "O": self.outside,
                "R": VISIBLE,
                "D": self.data,
                "N": f"{slug}.n",
                "M": f"mark-{slug}.m",
                "V": self.victims[slug].pid,
                "A": "escape",
                "T": VISIBLE / f"t-{slug}",
                "U": VISIBLE / f"u-{slug}",
                "F": self.outside / f"opened-{slug}",
                "I": _LOOPBACK_NAMES[0],
            }
            exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
            guard = f"set -u\n[ -d {MARKER} ] || exit 9\n"
            (self.workspace / f"attempts/{slug}.sh").write_text(f"{guard}{exports}cd $W\n{attempt.script}\n")
            lines.append(f"timeout -k 1 6 bash attempts/{slug}.sh > out/{slug} 2>&1 < /dev/null")
        runner = self.workspace / "attempts/run"
        limits = "ulimit -u; cat /proc/self/oom_score_adj; df --output=size -B1 /tmp | tail -1"
        runner.write_text("\n".join([f"cd {self.workspace}", f"( {limits} ) > out/limits", *lines, ""]))
        before = {slug: self._state(slug) for slug in self.victims}
        typed = self._in_terminal([*(self._sandbox() if mode == "sandbox" else []), "/bin/bash", str(runner)])
        time.sleep(_LATE_SECONDS)
        outside = self._marks()
        found = []
        for attempt in self.attempts:
            slug = attempt.slug
            mark = f"mark-{slug}.m"
            printed = self.workspace / "out" / slug
            evidence = (
                printed.exists() and SECRET.encode() in printed.read_bytes(),
                mark in outside or f"{slug}.n" in outside,
                mark.encode() in bytes(self.heard) or mark.encode() in typed,
                self._state(slug) != before[slug],
            )
            if any(evidence):
                found.append(attempt.name)
        ran = [each.name for each in self.attempts if (self.workspace / "out" / each.slug).exists()]
        crier.kill()
        return {"through": found, "ran": ran, "limits": (self.workspace / "out/limits").read_text().split()}

    def _in_terminal(self, command: list[str]) -> bytes:
        """Run a command with a terminal that is not its input or output, and return what the terminal received."""
        # The other end stays open here: without one, reading the terminal fails.
        terminal, other_end = os.openpty()
        child = os.fork()
        if child == 0:
            os.login_tty(other_end)
            with (HOUSE / "output").open("wb") as output, Path(os.devnull).open("rb") as nothing:
                os.dup2(nothing.fileno(), 0)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            os.execvp(command[0], command)
        received = bytearray()

        def read() -> None:
            with suppress(OSError):
                while data := os.read(terminal, 4096):
                    received.extend(data)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        os.waitpid(child, 0)
        reader.join(1)
        return bytes(received)

    def _sandbox(self) -> list[str]:
        from sprite.config import Settings
        from sprite.sandbox.sandbox import find_boundary, sandboxed

        settings = Settings(self.workspace, bridge_data=self.data)
        boundary = find_boundary(settings)
        assert boundary.engine is not None, boundary.words
        return sandboxed(settings, boundary.engine, {})

    def _state(self, slug: str) -> object:
        """Return what an attempt could change of its process and its files outside."""
        process: object = None
        with suppress(OSError):
            pid = self.victims[slug].pid
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            limits = Path(f"/proc/{pid}/limits").read_text()
            # State (S: it sleeps), nice value.
            process = (fields[0], fields[16], os.sched_getaffinity(pid), limits, _text(f"/proc/{pid}/oom_score_adj"))
        file, other = VISIBLE / f"t-{slug}", VISIBLE / f"u-{slug}"
        status = file.stat() if file.exists() else None
        known = None if status is None else (status.st_mode, status.st_mtime_ns, _text(str(file)))
        return process, known, other.exists()

    def _marks(self) -> str:
        """Return names and contents of everything where no attempt may write."""
        places = [self.home, self.outside, VISIBLE, self.data, Path("/dev/shm"), Path("/var/tmp"), Path("/tmp")]
        places += map(Path, _ETC)
        names = ".envrc deep/.envrc .mcp.json .vscode .idea .husky .claude .npmrc .bashrc .profile tree bare.git"
        kept = [self.workspace / name for name in names.split()]
        kept += [self.workspace / name / ".git" for name in (".", *(f"r{n}" for n in (1, 2, 3, 4, 7)))]
        kept += [self.workspace / "deep/er/r5/.git", self.workspace / "deep2/r6/.git", self.workspace / ".os"]
        kept += self.workspace.glob("late-*")
        found: list[str] = []
        for place in (*places, *kept):
            if place.is_file():
                found.append(_text(str(place)))
            for folder, folders, files in os.walk(place):
                if Path(folder) == self.workspace:
                    folders.clear()
                    continue
                for name in (*folders, *files):
                    path = Path(folder, name)
                    found.append(name)
                    if path.is_symlink():
                        found.append(str(path.readlink()))
                    elif path.is_file():
                        found.append(_text(str(path)))
        return "\n".join(found)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def main() -> None:
    """Build the house, run the attempts, and print the evidence."""
    mode, outer = sys.argv[1], json.loads(sys.argv[2])
    # These attempts would destroy a real machine.
    assert MARKER.is_dir(), "not in a disposable machine"
    assert not [name for name, space in spaces().items() if outer[name] == space], "not in a disposable machine"
    assert Path("/proc/1/comm").read_text().strip() == "bwrap", "not in a disposable machine"
    os.environ.update(HOME=str(HOUSE / "home"), PATH="/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C")
    is_root = os.geteuid() == 0
    if is_root:
        for address in _LOOPBACK_NAMES:
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    usual = [each for each in ATTEMPTS if is_root or "root" not in each.tags]
    # The sandbox must end before a late mark is written.
    stage = Stage(sorted(usual, key=lambda each: "late" in each.tags))
    stage.build()
    print(json.dumps(stage.run(mode)))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
