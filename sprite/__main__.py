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

Command = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]


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
        return asyncio.run(_command(arguments)(settings, arguments))
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


def _command(arguments: argparse.Namespace) -> Command:
    """Return the command's function, named "module.function": importing all modules would take long."""
    module, _, function = arguments.command.rpartition(".")
    command: Command = getattr(importlib.import_module(f"sprite.{module}"), function)
    return command


# --- the arguments ---


def _parser(workspace: Path, program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="An agent that lives on its own computer and never forgets.",
        epilog=f"Each command takes --help.\n\n{epilog(Settings)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sprite {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    here, printed = _common(workspace)

    serve = _add(commands, "serve", "server.serve_until_signal", "run the agent's server", here)
    add_flags(serve, Settings)

    _add(commands, "status", "cli.status.status", "show whether memory works, at a glance", here, printed)

    memory = commands.add_parser("memory", help="search, show, correct and forget memory")
    _add_memory_commands(memory.add_subparsers(required=True, metavar="COMMAND"), here, printed)

    actions = commands.add_parser("actions", help="to-dos: list, add, done, dismiss")
    _add_action_commands(actions.add_subparsers(required=True, metavar="COMMAND"), here, printed)

    _add_file_commands(commands, here, printed)

    rebuild = _add(
        commands,
        "rebuild",
        "cli.rebuild.rebuild",
        "rebuild memory.db and the curated files from the log",
        here,
        printed,
        description="Rebuild memory.db and the files from the log. Only a --dry-run works beside a running sprite.",
    )
    ways = rebuild.add_mutually_exclusive_group()
    ways.add_argument(
        "--re-extract",
        action="store_true",
        help=("ask the curator again about every turn, with another prompt or model; can be interrupted and continued"),
    )
    ways.add_argument(
        "--reapply", action="store_true", help="only show which logged answers would be decided differently today"
    )
    rebuild.add_argument("--dry-run", action="store_true", help="only show the number of calls and the price")

    imports = _add(
        commands,
        "import",
        "cli.import_logs.import_command",
        "add session logs of Claude Code to the log, once each; or restore an archive of `export`",
        here,
        printed,
        description="Reads session logs of Claude Code, recognised by their content. An archive from `export` "
        "restores a workspace into an empty one.",
    )
    imports.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a file, or a folder such as ~/.claude/projects; an archive"
    )
    imports.add_argument("--dry-run", action="store_true", help="only check an archive")

    export = _add(
        commands,
        "export",
        "cli.archives.export_command",
        "write everything as one archive of plain text: log, memory, canvas, chat and files",
        here,
        printed,
        epilog=(
            "Works while the sprite runs. `import FILE` restores a workspace from it; docs/archive.md has its layout."
        ),
    )
    export.add_argument("file", metavar="FILE", help="the archive to write, such as sprite.zip; - for stdout")
    export.add_argument("--without-files", action="store_true", help="leave out the person's files")
    export.add_argument("--force", action="store_true", help="replace FILE if it exists")

    _add_follow(commands, here)

    _add(commands, "mcp", "cli.mcp_server.serve_memory", "offer memory to other agents: MCP on stdio, read-only", here)

    doctor = _add(commands, "doctor", "cli.status.doctor", "check this machine and say what to do", here, printed)
    doctor.add_argument("--without-model", action="store_true", help="do not ask the model: it has no key here yet")
    doctor.add_argument(
        "--live",
        action="store_true",
        help="try the model for at most $0.50: a turn, a curation, a cut answer, 40 lines to verify, and the spend",
    )
    doctor.add_argument("--yes", action="store_true", help="with --live: do not ask; needed without a terminal")

    schema = _add(commands, "schema", "cli.output.schema", "print the wire protocol as JSON Schema")
    # It reads no workspace, so any path will do.
    schema.set_defaults(workspace=Path())
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    function: str,
    words: str,
    *parents: argparse.ArgumentParser,
    **more: Any,
) -> argparse.ArgumentParser:
    """Add a command with the help text `words`; `function` names its function as for `_command`."""
    parser = commands.add_parser(name, help=words, parents=parents, **more)
    parser.set_defaults(command=function)
    return parser


def _common(workspace: Path) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    here = argparse.ArgumentParser(add_help=False)
    here.add_argument(
        "--workspace",
        type=Path,
        default=workspace,
        metavar="DIR",
        help=f"the agent's folder (default: {workspace}); everything of Sprite's is below its .os/",
    )
    printed = argparse.ArgumentParser(add_help=False)
    printed.add_argument("--json", action="store_true", help="print JSON for programs")
    return here, printed


def _add_file_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    here: argparse.ArgumentParser,
    printed: argparse.ArgumentParser,
) -> None:
    """Add the commands about rules, hosts and changed files."""
    rules = commands.add_parser("rules", help="your rules about the agent's tool calls")
    ruling = rules.add_subparsers(required=True, metavar="COMMAND")
    listed = _add(ruling, "list", "cli.rules.list_rules", "the active rules, and those that wait", here, printed)
    listed.add_argument("--all", action="store_true", help="also dismissed and retired ones")
    test = _add(
        ruling, "test", "cli.rules.test", "run the rules' examples, or say what a call would meet", here, printed
    )
    test.add_argument("call", nargs="?", metavar="COMMAND", help="a shell command, as if it ran in this folder")

    reach = commands.add_parser("reach", help="hosts that the agent may reach, and those that it has reached")
    reaching = reach.add_subparsers(required=True, metavar="COMMAND")
    _add(
        reaching, "list", "cli.reach.list_hosts", "the hosts that you always allow, and the connections", here, printed
    )
    revoke = _add(reaching, "revoke", "cli.reach.revoke", "revoke a host, and close its connections", here)
    revoke.add_argument("host", metavar="HOST", help="as `list` shows it: example.org, or example.org:8443")

    turn_words = "its number, or `undo` for the last undo (default: the newest turn that changed files)"
    changes = _add(commands, "changes", "cli.changes.changes", "which files a turn changed", here, printed)
    changes.add_argument("turn", nargs="?", metavar="TURN", help=turn_words)
    changes.add_argument("--diff", action="store_true", help="also show the changed lines")

    undo = _add(commands, "undo", "cli.changes.undo", "take the file changes of a turn back", here, printed)
    undo.add_argument("turn", nargs="?", metavar="TURN", help=turn_words)
    undo.add_argument("files", nargs="*", metavar="FILE", help="only these files, also if they may be your own changes")
    undo.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="FILE",
        help="restore this file even if it has changed again since then",
    )


def _add_follow(commands: argparse._SubParsersAction[argparse.ArgumentParser], here: argparse.ArgumentParser) -> None:
    follow = _add(
        commands,
        "follow",
        "cli.follow.follow",
        "import each turn of Claude Code's sessions once, as it ends",
        here,
        description="Watches Claude Code's session logs and imports each turn once, when it ends. A running sprite "
        "imports it; without one, it is written to the workspace's log. Claude Code itself is not "
        "changed: there is no hook, and no prompt takes longer. Turns from before the start are "
        "imported, too.",
    )
    follow.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="a folder of logs, or one log (default: ~/.claude/projects, or CLAUDE_CONFIG_DIR's)",
    )


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


def _add_memory_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    here: argparse.ArgumentParser,
    printed: argparse.ArgumentParser,
) -> None:
    parents = [here, printed]
    search = _add(commands, "search", "cli.memory.search", "find learnings and turns, best first", *parents)
    search.add_argument(
        "query", nargs="+", help="in natural language; filters: type: since: before: session: project: around:"
    )
    search.add_argument("--project", metavar="P", help="only of this project: its key, or its folder's name")
    search.add_argument("--limit", type=_count, default=DEFAULT_LIMIT, metavar="N", help="hits (default: 10)")

    file = _add(commands, "file", "cli.memory.file", "print a memory file", *parents)
    file.add_argument("name", help="soul.md, os.md, tools.md, user.md, files.md or context.md")
    file.add_argument(
        "--as-of", metavar="TIME|CURATION", help="the version of this time (2026-11-20T15:00) or curation number"
    )
    file.add_argument(
        "--project",
        metavar="P",
        help="as a session of this project sees it: the person's part and the project's section",
    )

    history = _add(commands, "history", "cli.memory.history", "every version of a curated file", *parents)
    history.add_argument("name")

    diff = _add(commands, "diff", "cli.memory.diff", "what changed between two versions (0: as shipped)", *parents)
    diff.add_argument("name")
    diff.add_argument("a", type=_number)
    diff.add_argument("b", type=_number)

    _add(
        commands,
        "drift",
        "cli.memory.drift",
        "changes of memory files during the agent's work that wait for your decision",
        *parents,
    )
    accept = _add(commands, "accept", "cli.change.accept", "accept such a change", here)
    accept.add_argument("name")
    reject = _add(
        commands, "reject", "cli.change.reject", "discard such a change: the file gets memory's content again", here
    )
    reject.add_argument("name")

    learnings = _add(commands, "learnings", "cli.memory.learnings", "what was learned, oldest first", *parents)
    learnings.add_argument("--after", type=_number, default=0, metavar="ID", help="only those with a higher number")
    learnings.add_argument("--limit", type=_count, default=100, metavar="N", help="how many (default: 100)")

    for name, words in (
        ("confirm", "confirm an unverified learning: it then counts as your own statement"),
        ("retire", "say that a learning is no longer true"),
    ):
        answer = _add(commands, name, "cli.change.answer", words, here)
        answer.add_argument("learning", type=_number, metavar="N", help="its number, as `learnings` shows it")
        answer.set_defaults(op=name)

    restore = _add(
        commands, "restore", "cli.change.restore", "make an earlier version of a curated file the newest", here
    )
    restore.add_argument("name")
    restore.add_argument("version", type=_number, help="its number in the history; 0: as shipped")

    retry = _add(commands, "retry", "cli.change.retry", "try again to learn from a turn that was set aside", here)
    retry.add_argument("turn", type=_number, help="its number, as `status` shows it")

    forget = _add(
        commands,
        "forget",
        "cli.change.forget",
        "remove something permanently from memory, the log and all copies",
        *parents,
    )
    what = forget.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", metavar="T", help="these words, everywhere")
    what.add_argument("--turn", type=_number, metavar="N", help="a turn, and what was learned from it")
    what.add_argument("--session", metavar="ID", help="a session's turns, and what was learned from them")
    what.add_argument("--learning", type=_number, metavar="N", help="a learning, and the words it was learned from")
    forget.add_argument(
        "--yes", action="store_true", help="do not ask; needed without a terminal, and where many turns match"
    )


def _add_action_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    here: argparse.ArgumentParser,
    printed: argparse.ArgumentParser,
) -> None:
    parents = [here, printed]
    listing = _add(commands, "list", "cli.actions.list_actions", "the open actions, the next due first", *parents)
    listing.add_argument("--all", action="store_true", help="also those that are done, dismissed or failed")

    add = _add(
        commands,
        "add",
        "cli.actions.add",
        "add an action; when it is due, the agent does it or reminds you",
        *parents,
        epilog="Example: actions add Draw my open actions --due 'tomorrow 8:00' --every weekday --tz Europe/Berlin",
    )
    add.add_argument("text", nargs="+", help="what is to be done")
    add.add_argument(
        "--due",
        metavar="WHEN",
        help="2026-12-01 (means 09:00), '2026-12-01 14:30', 'tomorrow 9:00', 'in 20 minutes'; on your clock",
    )
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
        closing = _add(commands, name, "cli.actions.close", f"{words}; a repeating action then ends", *parents)
        closing.add_argument("action", nargs="+", metavar="ACTION", help="some of its words")
        closing.set_defaults(status=status)


if __name__ == "__main__":
    sys.exit(main())
