"""The command line: `python -m sprite COMMAND`; `--help` lists the commands."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

EXIT_INTERRUPTED = 130

try:
    from sprite import __version__
    from sprite.common import own_secrets
    from sprite.common.settings import add_flags, epilog, secrets
    from sprite.common.sqlite import LARGEST_ROW_ID
    from sprite.common.tasks import TaskDiedError
    from sprite.config import Settings, from_environment
    from sprite.errors import SpriteError
    from sprite.memory.folders import refuse_what_is_no_file
    from sprite.privacy.redaction import DiscreetFilter
    from sprite.search.search import DEFAULT_LIMIT
except KeyboardInterrupt:
    # These take a while to load.
    sys.exit(EXIT_INTERRUPTED)

#: Like argparse: a person has to change the call or its input.
EXIT_OPERATOR = 2
#: A bug; the supervisor may restart the program.
EXIT_FAULT = 1

WORKSPACE = Path("/workspace")


def main(argv: list[str] | None = None, *, workspace: Path = WORKSPACE, program: str = "python -m sprite") -> int:
    """Set up logging, run a command and return the exit code. `workspace` is the default of `--workspace`."""
    _set_up_logging()
    return run(argv, workspace=workspace, program=program)


def run(argv: list[str] | None = None, *, workspace: Path = WORKSPACE, program: str = "python -m sprite") -> int:
    """Run a command and return the exit code."""
    arguments = _parser(workspace, program).parse_args(argv)
    try:
        settings = from_environment(arguments.workspace, vars(arguments))
        _keep_own_secrets(settings)
        refuse_what_is_no_file(settings)
        # Named "module.function", because importing all modules would take long.
        module, _, function = arguments.command.rpartition(".")
        command: Callable[..., Coroutine[None, None, int]]
        command = getattr(importlib.import_module(f"sprite.{module}"), function)
        return asyncio.run(command(settings, arguments))
    except SpriteError as error:
        print(f"sprite: {error}", file=sys.stderr)
        return EXIT_OPERATOR
    except TaskDiedError as error:
        print(f"sprite: {error}", file=sys.stderr)
        return EXIT_FAULT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # `... | head` closed the pipe; without this Python prints another error at exit.
        sys.stderr.close()
        return 0
    except OSError as error:
        # The machine refused an operation that the command needs.
        where = f"{error.filename}: " if error.filename else ""
        print(f"sprite: {where}{error.strerror or error}", file=sys.stderr)
        return EXIT_OPERATOR


def _keep_own_secrets(settings: Settings) -> None:
    """Keep credentials out of logs and out of everything that a command writes."""
    own_secrets.hold(*secrets(settings))
    # The form is checked where the token is used.
    with contextlib.suppress(OSError, UnicodeDecodeError):
        own_secrets.hold(settings.token_file.read_text().strip())


def _set_up_logging() -> None:
    """Log our own messages from INFO up, other libraries' from WARNING up, to stderr: stdout is for programs."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.addFilter(DiscreetFilter())
    # Uncaught exceptions would bypass the filter.
    sys.excepthook = lambda *uncaught: logging.getLogger("sprite").critical("an error of ours", exc_info=uncaught)
    logging.getLogger("sprite").setLevel(logging.INFO)


# --- the arguments ---


def _parser(workspace: Path, program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="An agent that lives on its own computer and never forgets.",
        epilog=f"Each command takes --help.\n\n{epilog(Settings)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sprite {__version__}")
    commands = _Commands(parser, workspace)
    add_flags(commands.add("serve", "server.serve_until_signal", "run the agent's server", prints=False), Settings)
    commands.add("status", "cli.status.status", "show whether memory works, at a glance")
    _add_memory_commands(commands.group("memory", "search, show, correct and forget memory"))
    _add_action_commands(commands.group("actions", "to-dos: list, add, done, dismiss"))
    _add_file_commands(commands)
    _add_whole_memory_commands(commands)
    commands.add(
        "mcp", "cli.mcp_server.serve_memory", "offer memory to other agents: MCP on stdio, read-only", prints=False
    )
    doctor = commands.add("doctor", "cli.status.doctor", "check this machine and say what to do")
    doctor.add_argument("--without-model", action="store_true", help="do not ask the model: it has no key here yet")
    doctor.add_argument(
        "--live",
        action="store_true",
        help="try the model for at most $0.50: a turn, a curation, a cut answer, 40 lines to verify, and the spend",
    )
    doctor.add_argument("--yes", action="store_true", help="with --live: do not ask; needed without a terminal")
    commands.add("schema", "cli.output.schema", "print the wire protocol as JSON Schema", prints=False)
    return parser


class _Commands:
    """The commands of a parser. Each takes `--workspace`, and those that print take `--json`."""

    def __init__(self, parser: argparse.ArgumentParser, workspace: Path) -> None:
        self._parsers = parser.add_subparsers(required=True, metavar="COMMAND")
        self._workspace = workspace

    def group(self, name: str, words: str) -> _Commands:
        """Add a command that has commands itself, such as `memory`."""
        return _Commands(self._parsers.add_parser(name, help=words), self._workspace)

    def add(self, name: str, function: str, words: str, *, prints: bool = True, **more: Any) -> argparse.ArgumentParser:
        """Add a command with the help text `words`; `function` is "module.function", below `sprite`."""
        parser = self._parsers.add_parser(name, help=words, **more)
        parser.set_defaults(command=function)
        where = f"the agent's folder (default: {self._workspace}); everything of Sprite's is below its .os/"
        parser.add_argument("--workspace", type=Path, default=self._workspace, metavar="DIR", help=where)
        if prints:
            parser.add_argument("--json", action="store_true", help="print JSON for programs")
        return parser


def _add_whole_memory_commands(commands: _Commands) -> None:
    """Add the commands that write or read a whole memory: rebuild, import, export, follow."""
    rebuild = commands.add(
        "rebuild",
        "cli.rebuild.rebuild",
        "rebuild memory.db and the curated files from the log",
        description="Rebuild memory.db and the files from the log. Only a --dry-run works beside a running sprite.",
    )
    ways = rebuild.add_mutually_exclusive_group()
    ways.add_argument(
        "--re-extract",
        action="store_true",
        help="ask the curator again about every turn, with another prompt or model; can be interrupted and continued",
    )
    ways.add_argument(
        "--reapply", action="store_true", help="only show which logged answers would be decided differently today"
    )
    rebuild.add_argument("--dry-run", action="store_true", help="only show the number of calls and the price")

    imports = commands.add(
        "import",
        "cli.import_logs.import_logs",
        "add session logs of Claude Code to the log, once each; or restore an archive of `export`",
        description="Reads session logs of Claude Code, recognised by their content. An archive from `export` "
        "restores a workspace into an empty one.",
    )
    imports.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a file, or a folder such as ~/.claude/projects; an archive"
    )
    imports.add_argument("--dry-run", action="store_true", help="only check an archive")

    export = commands.add(
        "export",
        "cli.archives.export",
        "write everything as one archive of plain text: log, memory, canvas, chat and files",
        epilog="Works while the sprite runs. `import FILE` restores a workspace from it; docs/archive.md has its "
        "layout.",
    )
    export.add_argument("file", metavar="FILE", help="the archive to write, such as sprite.zip; - for stdout")
    export.add_argument("--without-files", action="store_true", help="leave out the person's files")
    export.add_argument("--force", action="store_true", help="replace FILE if it exists")

    follow = commands.add(
        "follow",
        "cli.import_logs.follow",
        "import each turn of Claude Code's sessions once, as it ends",
        prints=False,
        description="Watches Claude Code's session logs and imports each turn once, when it ends. A running sprite "
        "imports it; without one, it is written to the workspace's log. Claude Code itself is not changed: there is no "
        "hook, and no prompt takes longer. Turns from before the start are imported, too.",
    )
    words = "a folder of logs, or one log (default: ~/.claude/projects, or CLAUDE_CONFIG_DIR's)"
    follow.add_argument("paths", nargs="*", type=Path, metavar="PATH", help=words)


def _add_file_commands(commands: _Commands) -> None:
    """Add the commands about rules, hosts and changed files."""
    rules = commands.group("rules", "your rules about the agent's tool calls")
    listed = rules.add("list", "cli.rules.list_rules", "the active rules, and those that wait")
    listed.add_argument("--all", action="store_true", help="also dismissed and retired ones")
    test = rules.add("test", "cli.rules.test", "run the rules' examples, or say what a call would meet")
    test.add_argument("call", nargs="?", metavar="COMMAND", help="a shell command, as if it ran in this folder")

    reach = commands.group("reach", "hosts that the agent may reach, and those that it has reached")
    reach.add("list", "cli.rules.list_hosts", "the hosts that you always allow, and the connections")
    revoke = reach.add("revoke", "cli.rules.revoke", "revoke a host, and close its connections", prints=False)
    revoke.add_argument("host", metavar="HOST", help="as `list` shows it: example.org, or example.org:8443")

    turn_words = "its number, or `undo` for the last undo (default: the newest turn that changed files)"
    changes = commands.add("changes", "cli.changes.changes", "which files a turn changed")
    changes.add_argument("turn", nargs="?", metavar="TURN", help=turn_words)
    changes.add_argument("--diff", action="store_true", help="also show the changed lines")
    undo = commands.add("undo", "cli.changes.undo", "take the file changes of a turn back")
    undo.add_argument("turn", nargs="?", metavar="TURN", help=turn_words)
    undo.add_argument("files", nargs="*", metavar="FILE", help="only these files, also if they may be your own changes")
    over_words = "restore this file even if it has changed again since then"
    undo.add_argument("--over", action="append", default=[], metavar="FILE", help=over_words)


def _number(text: str) -> int:
    """Parse a row number, limited to the valid range."""
    try:
        return max(-LARGEST_ROW_ID, min(int(text), LARGEST_ROW_ID))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error


def _count(text: str) -> int:
    """Parse the number of rows to print, at least 1."""
    if (number := _number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return number


def _add_memory_commands(memory: _Commands) -> None:
    search = memory.add("search", "cli.memory.search", "find learnings and turns, best first")
    search.add_argument(
        "query", nargs="+", help="in natural language; filters: type: since: before: session: project: around:"
    )
    search.add_argument("--project", metavar="P", help="only of this project: its key, or its folder's name")
    search.add_argument("--limit", type=_count, default=DEFAULT_LIMIT, metavar="N", help="hits (default: 10)")

    file = memory.add("file", "cli.memory.file", "print a memory file")
    file.add_argument("name", help="soul.md, os.md, tools.md, user.md, files.md or context.md")
    file.add_argument(
        "--as-of", metavar="TIME|CURATION", help="the version of this time (2026-11-20T15:00) or curation number"
    )
    project_words = "as a session of this project sees it: the person's part and the project's section"
    file.add_argument("--project", metavar="P", help=project_words)

    memory.add("history", "cli.memory.history", "every version of a curated file").add_argument("name")

    diff = memory.add("diff", "cli.memory.diff", "what changed between two versions (0: as shipped)")
    diff.add_argument("name")
    diff.add_argument("a", type=_number)
    diff.add_argument("b", type=_number)

    drift_words = "changes of memory files during the agent's work that wait for your decision"
    memory.add("drift", "cli.memory.drift", drift_words)
    for name, words in (
        ("accept", "accept such a change"),
        ("reject", "discard such a change: the file gets memory's content again"),
    ):
        memory.add(name, f"cli.change.{name}", words, prints=False).add_argument("name")

    learnings = memory.add("learnings", "cli.memory.learnings", "what was learned, oldest first")
    learnings.add_argument("--after", type=_number, default=0, metavar="ID", help="only those with a higher number")
    learnings.add_argument("--limit", type=_count, default=100, metavar="N", help="how many (default: 100)")

    for name, words in (
        ("confirm", "confirm an unverified learning: it then counts as your own statement"),
        ("retire", "say that a learning is no longer true"),
    ):
        answer = memory.add(name, "cli.change.answer", words, prints=False)
        answer.add_argument("learning", type=_number, metavar="N", help="its number, as `learnings` shows it")
        answer.set_defaults(op=name)

    restore_words = "make an earlier version of a curated file the newest"
    restore = memory.add("restore", "cli.change.restore", restore_words, prints=False)
    restore.add_argument("name")
    restore.add_argument("version", type=_number, help="its number in the history; 0: as shipped")

    retry = memory.add("retry", "cli.change.retry", "try again to learn from a turn that was set aside", prints=False)
    retry.add_argument("turn", type=_number, help="its number, as `status` shows it")

    forget_words = "remove something permanently from memory, the log and all copies"
    forget = memory.add("forget", "cli.change.forget", forget_words)
    what = forget.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", metavar="T", help="these words, everywhere")
    what.add_argument("--turn", type=_number, metavar="N", help="a turn, and what was learned from it")
    what.add_argument("--session", metavar="ID", help="a session's turns, and what was learned from them")
    what.add_argument("--learning", type=_number, metavar="N", help="a learning, and the words it was learned from")
    yes_words = "do not ask; needed without a terminal, and where many turns match"
    forget.add_argument("--yes", action="store_true", help=yes_words)


def _add_action_commands(actions: _Commands) -> None:
    listing = actions.add("list", "cli.actions.list_actions", "the open actions, the next due first")
    listing.add_argument("--all", action="store_true", help="also those that are done, dismissed or failed")

    add = actions.add(
        "add",
        "cli.actions.add",
        "add an action; when it is due, the agent does it or reminds you",
        epilog="Example: actions add Draw my open actions --due 'tomorrow 8:00' --every weekday --tz Europe/Berlin",
    )
    add.add_argument("text", nargs="+", help="what is to be done")
    due_words = "2026-12-01 (means 09:00), '2026-12-01 14:30', 'tomorrow 9:00', 'in 20 minutes'; on your clock"
    add.add_argument("--due", metavar="WHEN", help=due_words)
    add.add_argument(
        "--every",
        metavar="REPEAT",
        help="hour, day, weekday, week, month, year, or an RFC 5545 rule (FREQ=...); at most every 5 minutes",
    )
    add.add_argument("--tz", metavar="ZONE", help="your time zone, like Europe/Berlin (default: as your page said it)")
    add.add_argument("--priority", type=_number, default=0, metavar="N", help="higher comes first (default: 0)")

    for name, status, words in (
        ("done", "done", "mark an action as done"),
        ("dismiss", "dismissed", "dismiss an action that is not needed any more"),
    ):
        closing = actions.add(name, "cli.actions.close", f"{words}; a repeating action then ends")
        closing.add_argument("action", nargs="+", metavar="ACTION", help="some of its words")
        closing.set_defaults(status=status)


if __name__ == "__main__":
    sys.exit(main())
