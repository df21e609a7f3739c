"""Prints a part of what memory has for a session in this folder; nothing wherever anything is not as it must be.

`python -I -S session_start.py PART [WORKSPACE]`, in the session's folder. With a workspace it prints the file that the
sprite keeps there for each project; without one it asks the bridge that the plugin's options name, for a moment only.

It stands alone: each import delays every session's beginning, and nothing of Sprite is installed where it runs.
"""

from __future__ import annotations

import os
import stat
import sys

#: Claude Code shows a hook's output up to 10,000 characters; of a longer one it shows the first 2 KB.
PART_CHARS = 9_800
#: A tag that leaves less room is none of the sprite's.
MOST_TAG_CHARS = 1_200
#: Several times the longest text there is (8,000 tokens).
MAX_BYTES = 256 * 1024
#: This machine, as a bridge without https may be called.
HERE = ("127.0.0.1", "localhost", "[::1]")
#: Ignore the user's settings, print no progress, fail on errors, and stop after some seconds. Headers come by stdin.
#: Requests to this machine use no proxy.
CURL = (
    "curl",
    "-q",
    "--silent",
    "--fail",
    "--globoff",
    "--proto",
    "=http,https",
    "--noproxy",
    "127.0.0.1,localhost,::1",
    "--max-time",
    "0.8",
    "--header",
    "@-",
)
BOOT = (".os", "run", "boot")
#: The tags of memory's own words: where a session is recorded, nothing between them is learned from it.
BEGIN, END = "<sprite_memory ", "</sprite_memory>\n"
#: A pipe would be waited for, which O_NONBLOCK prevents.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_PARENTS = 256
_MAX_LINK_BYTES = 4096


def main() -> None:
    """Prints the part that the command line names; an exception where it cannot be had."""
    part, workspace = int(sys.argv[1]), "".join(sys.argv[2:])
    project = project_of(os.getcwd())
    text = kept(workspace, project) if workspace else asked(project)
    if text is not None:
        sys.stdout.buffer.write(part_of(text, part).encode())


# --- the text ---


def kept(workspace: str, project: str) -> str | None:
    """Return the sprite's memory for a project, or for the person alone if the project is new and has no file yet.

    The agent writes in its workspace, too: no link is followed.
    """
    folder = os.open(workspace, _FLAGS | os.O_DIRECTORY)
    for name in BOOT:
        folder = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
    for key in (project, ""):
        try:
            descriptor = os.open(f"{digest(key)}.md", _FLAGS, dir_fd=folder)
        except FileNotFoundError:
            continue
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > MAX_BYTES:
            return None
        return os.read(descriptor, MAX_BYTES).decode()
    return None


def digest(key: str) -> str:
    """SHA-256 in hex. The built-in module, whose name depends on Python's version, spares loading all of OpenSSL."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found]
        except ImportError:
            from hashlib import sha256
    found: str = sha256(os.fsencode(key)).hexdigest()
    return found


def asked(project: str) -> str | None:
    """Return the bridge's answer, if it comes in time; curl starts sooner than Python's own HTTP.

    A redirection is not followed: the token is for this bridge. It goes through a pipe, which no other process sees,
    and over a network by https alone.
    """
    url, token = (os.environ[f"CLAUDE_PLUGIN_OPTION_{name}"].strip() for name in ("BRIDGE_URL", "TOKEN"))
    if not token.isprintable() or not is_private_way(url):
        return None
    told, tell = os.pipe()
    answer, answered = os.pipe()
    pipes = [(os.POSIX_SPAWN_DUP2, told, 0), (os.POSIX_SPAWN_DUP2, answered, 1)]
    where = ("--get", "--data-urlencode", f"project={project}", "--url", f"{url.rstrip('/')}/v1/memory/boot")
    curl = os.posix_spawnp("curl", [*CURL, *where], os.environ, file_actions=pipes)
    os.close(answered)
    os.write(tell, f"Authorization: Bearer {token}\n".encode())
    os.close(tell)
    said = bytearray()
    while len(said) <= MAX_BYTES and (more := os.read(answer, MAX_BYTES)):
        said += more
    os.close(answer)
    # It fails, too, where only a part came.
    return said.decode() if os.waitpid(curl, 0)[1] == 0 and len(said) <= MAX_BYTES else None


def is_private_way(url: str) -> bool:
    """Whether nobody on the way to this address can listen: by https, or on this machine."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() != "http":
        return scheme.lower() == "https"
    place = rest.partition("/")[0].lower()
    host, _, port = place.rpartition(":")
    return place in HERE or (host in HERE and port.isdecimal())


# --- its parts ---


def part_of(text: str, part: int) -> str:
    """One of the pieces that Claude Code shows whole, which come in no certain order; "" after the last one.

    Each stands between the tags of memory's own words. "", too, for what does not: it is no text of the sprite's.
    """
    begin, line_break, rest = text.partition("\n")
    if not begin.startswith(BEGIN) or not rest.endswith(f"\n{END}") or length(begin) > MOST_TAG_CHARS:
        return ""
    if length(text) <= PART_CHARS:
        return text if part == 1 else ""
    pieces = cut(rest[: -len(END)], PART_CHARS - length(f"{begin}{END}") - len("(Part 1 of 9)\n\n"))
    if part > len(pieces):
        return ""
    return f"{begin}{line_break}(Part {part} of {len(pieces)})\n{pieces[part - 1].rstrip()}\n{END}"


def cut(text: str, most: int) -> list[str]:
    """As few pieces of at most so many characters as can be: where a part of memory ends if one may, else a line."""
    pieces = []
    while (left := length(text)) > most:
        head = text[:most]
        while length(head) > most:
            head = head[: len(head) - (length(head) - most + 1) // 2]
        # A shorter cut would make one piece more.
        least = left - most * ((left - 1) // most)
        closing = head.rfind("\n</")
        ends = (head.find("\n", closing + 1) + 1 if closing >= 0 else 0, head.rfind("\n") + 1)
        at = next((end for end in ends if length(text[:end]) >= least), len(head))
        pieces.append(text[:at])
        text = text[at:]
    return [*pieces, text]


def length(text: str) -> int:
    """Characters as Claude Code counts them: in UTF-16."""
    return len(text.encode("utf-16-le")) // 2


# --- the project ---


def project_of(folder: str) -> str:
    """The project of a folder, by the sprite's own rules (sprite/memory/projects.py; a test compares the two)."""
    try:
        parent = here = os.path.realpath(folder)
    except (OSError, ValueError):
        return folder
    for _ in range(_MAX_PARENTS):
        git = os.path.join(parent, ".git")
        try:
            mode = os.stat(git).st_mode
        except (OSError, ValueError):
            mode = 0
        if stat.S_ISDIR(mode) and _is_repository(git):
            return parent
        root = _root_by_file(git) if stat.S_ISREG(mode) else None
        if root is not None:
            return root
        if parent == os.path.dirname(parent):
            break
        parent = os.path.dirname(parent)
    return here


def _is_repository(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "HEAD"))


def _root_by_file(git: str) -> str | None:
    said = _line(git)
    if said is None or not said.startswith("gitdir:"):
        return None
    folder = _joined(os.path.dirname(git), said[len("gitdir:") :].strip())
    if folder is None or not _is_repository(folder):
        return None
    shared = _line(os.path.join(folder, "commondir"))
    if shared is None:
        return os.path.dirname(git)
    common = _joined(folder, shared)
    known_as = _line(os.path.join(folder, "gitdir"))
    # Anybody's folder can name a repository; only that of a worktree's own names the worktree in return.
    if common is None or known_as is None or _joined(folder, known_as) != git or not _is_repository(common):
        return None
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def _joined(folder: str, path: str) -> str | None:
    try:
        return os.path.realpath(os.path.join(folder, path)) if path else None
    except (OSError, ValueError):
        return None


def _line(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        line = os.read(descriptor, _MAX_LINK_BYTES + 1)
    except (OSError, ValueError):
        return None
    if len(line) > _MAX_LINK_BYTES or b"\0" in line:
        return None
    return os.fsdecode(line).strip()


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    finally:
        # A traceback has no reader, and no work is left to do.
        os._exit(0)
