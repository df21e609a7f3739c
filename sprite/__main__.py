"""The command line: `python -m sprite serve|status|memory|rebuild|import|export|follow|mcp|doctor`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

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

#: Like argparse: a person has to change the call or its input.
EXIT_OPERATOR = 2
#: A bug; the supervisor may restart the program.
EXIT_FAULT = 1
EXIT_INTERRUPTED = 130

Command = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]


def main(argv: list[str] | None = None) -> int:
    """Set up logging, run a command and return the exit code."""
    _set_up_logging()
    return run(argv)


def run(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code."""
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        settings = from_environment(arguments.workspace, vars(arguments))
        _keep_own_secrets(settings)
        refuse_what_is_no_file(settings)
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
    sys.excepthook = lambda *uncaught: logging.getLogger("sprite").critical("a fault of ours", exc_info=uncaught)
    logging.getLogger("sprite").setLevel(logging.INFO)


# --- the commands ---


async def _serve(settings: Settings, _arguments: argparse.Namespace) -> int:
    from sprite.server import install_signals, serve

    stop = asyncio.Event()
    install_signals(stop)
    await serve(settings, lambda host, port: print(f"sprite listening on {host}:{port}", flush=True), stop)
    return 0


async def _status(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli.status import status

    return await status(settings, as_json=arguments.json)


async def _memory(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli import change, memory

    commands: dict[str, Command] = {
        "search": memory.search,
        "file": memory.file,
        "history": memory.history,
        "diff": memory.diff,
        "drift": memory.drift,
        "learnings": memory.learnings,
        "accept": change.accept,
        "reject": change.reject,
        "restore": change.restore,
        "confirm": change.answer,
        "retire": change.answer,
        "retry": change.retry,
        "forget": change.forget,
    }
    return await commands[arguments.memory_command](settings, arguments)


async def _actions(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli import actions

    commands = {"list": actions.list_actions, "add": actions.add, "done": actions.close, "dismiss": actions.close}
    return await commands[arguments.actions_command](settings, arguments)


async def _rebuild(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli.rebuild import rebuild, show_reapplied

    if arguments.reapply:
        return await show_reapplied(settings, as_json=arguments.json)
    return await rebuild(settings, re_extract=arguments.re_extract, dry_run=arguments.dry_run, as_json=arguments.json)


async def _import(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli.import_logs import import_logs

    return await import_logs(
        settings, arguments.paths, dry_run=arguments.dry_run, as_json=arguments.json, kind=arguments.kind
    )


async def _export(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli.archives import export

    without_files, force = arguments.without_files, arguments.force
    return await export(settings, arguments.file, without_files=without_files, force=force, as_json=arguments.json)


async def _follow(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli.follow import follow

    return await follow(settings, arguments)


async def _mcp(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli.mcp_server import serve_memory

    return await serve_memory(settings, arguments.allow)


async def _doctor(settings: Settings, arguments: argparse.Namespace) -> int:
    from sprite.cli.live import live
    from sprite.cli.status import doctor

    if arguments.live:
        return await live(settings, as_json=arguments.json)
    return await doctor(settings, as_json=arguments.json, ask_model=not arguments.without_model)


async def _schema(_settings: Settings, _arguments: argparse.Namespace) -> int:
    from sprite.cli.output import schema

    return await schema()


# --- the arguments ---


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sprite",
        description="An agent that lives on its own computer and never forgets.",
        epilog=f"Each command takes --help.\n\n{epilog(Settings)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sprite {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    here, printed = _common()

    serve = commands.add_parser("serve", parents=[here], help="run the agent's server")
    add_flags(serve, Settings)
    serve.set_defaults(command=_serve)

    status = commands.add_parser("status", parents=[here, printed], help="whether memory is well, at a glance")
    status.set_defaults(command=_status)

    memory = commands.add_parser("memory", help="look into memory")
    _add_memory_commands(memory.add_subparsers(required=True, metavar="COMMAND", dest="memory_command"), here, printed)
    memory.set_defaults(command=_memory)

    actions = commands.add_parser("actions", help="what is to be done, and when")
    _add_action_commands(
        actions.add_subparsers(required=True, metavar="COMMAND", dest="actions_command"), here, printed
    )
    actions.set_defaults(command=_actions)

    rebuild = commands.add_parser(
        "rebuild",
        parents=[here, printed],
        help="make memory.db and the curated files anew from the log",
        description="Make memory.db and the files anew from the log. Only a --dry-run works beside a running sprite.",
    )
    rebuild.add_argument(
        "--re-extract",
        action="store_true",
        help="ask the curator again about every turn, with another prompt or model; can be cut off and taken up again",
    )
    rebuild.add_argument(
        "--reapply", action="store_true", help="only show which logged answers would be decided otherwise today"
    )
    rebuild.add_argument("--dry-run", action="store_true", help="only say what it would take, in calls and dollars")
    rebuild.set_defaults(command=_rebuild)

    imports = commands.add_parser(
        "import",
        parents=[here, printed],
        help="take what other programs kept of conversations into the log, once each; or an archive of `export`",
        description="Reads session logs of Claude Code, Codex and Gemini CLI, an export of claude.ai and claude-mem's "
        "database; AGENTS.md, CLAUDE.md, MEMORY.md and OpenClaw's files are proposed for memory files. What each file "
        "is, is seen by what stands in it. An archive that `export` wrote makes an empty workspace what another was.",
    )
    imports.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a file, or a folder such as ~/.claude/projects, ~/.codex/sessions or ~/.gemini/tmp; an archive",
    )
    imports.add_argument(
        "--as",
        dest="kind",
        choices=("codex", "gemini-cli", "claude.ai", "claude-code", "claude-mem", "notes"),
        metavar="KIND",
        help="read every file as this: codex, gemini-cli, claude.ai, claude-code, claude-mem or notes",
    )
    imports.add_argument("--dry-run", action="store_true", help="only say what would be imported")
    imports.set_defaults(command=_import)

    export = commands.add_parser(
        "export",
        parents=[here, printed],
        help="write everything as one archive of plain text: log, memory, canvas, chat and files",
        epilog="Works while the sprite runs. `import FILE` makes a workspace of it again; its layout: docs/archive.md.",
    )
    export.add_argument("file", metavar="FILE", help="the archive to write, such as sprite.zip; - for stdout")
    export.add_argument("--without-files", action="store_true", help="leave out the person's files")
    export.add_argument("--force", action="store_true", help="replace FILE if it is there")
    export.set_defaults(command=_export)

    _add_follow(commands, here, printed)

    mcp = commands.add_parser("mcp", parents=[here], help="offer memory to other agents: MCP on stdio, read-only")
    mcp.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=["actions", "ask"],
        help="offer more: `actions` adds to what is to be done, `ask` hands missions to the agent that runs here "
        "(may be given twice)",
    )
    mcp.set_defaults(command=_mcp)

    doctor = commands.add_parser("doctor", parents=[here, printed], help="check this machine and say what to do")
    doctor.add_argument("--without-model", action="store_true", help="do not ask the model: it has no key here yet")
    doctor.add_argument(
        "--live",
        action="store_true",
        help="only ask the verifier's model about 40 fixed lines, count its wrong answers and say the cost",
    )
    doctor.set_defaults(command=_doctor)

    schema = commands.add_parser("schema", help="print the wire protocol as JSON Schema")
    # It reads no workspace, so any path will do.
    schema.set_defaults(command=_schema, workspace=Path())
    return parser


def _common() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    here = argparse.ArgumentParser(add_help=False)
    here.add_argument(
        "--workspace",
        type=Path,
        default=Path("/workspace"),
        metavar="DIR",
        help="the agent's folder (default: /workspace); everything of Sprite's is below its .os/",
    )
    printed = argparse.ArgumentParser(add_help=False)
    printed.add_argument("--json", action="store_true", help="print JSON for programs")
    return here, printed


def _add_follow(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    here: argparse.ArgumentParser,
    printed: argparse.ArgumentParser,
) -> None:
    follow = commands.add_parser(
        "follow",
        parents=[here, printed],
        help="take each turn of Claude Code's sessions as it ends, once each",
        description="Watches Claude Code's session logs and takes each turn as it ends into a sprite's log: by the "
        "sprite that runs on the workspace, or straight into its log while none does. Nothing is added to Claude Code: "
        "no hook, and no time to any prompt. What was said while nothing followed is caught up on, once each.",
    )
    follow.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="a folder of logs, or one log (default: ~/.claude/projects, or CLAUDE_CONFIG_DIR's)",
    )
    follow.add_argument("--once", action="store_true", help="catch up, say what was taken, and end")
    follow.add_argument(
        "--to",
        metavar="URL",
        help="send them to your sprite behind this bridge; while it is away they wait on disk",
    )
    follow.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="your token there, with --to (else the variable BRIDGE_TOKEN); it needs the scope `observe`",
    )
    follow.set_defaults(command=_follow)


def _number(text: str) -> int:
    """Parse a row number, limited to the valid range."""
    try:
        return max(-LARGEST_ROW_ID, min(int(text), LARGEST_ROW_ID))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error


def _add_memory_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    here: argparse.ArgumentParser,
    printed: argparse.ArgumentParser,
) -> None:
    parents = [here, printed]
    search = commands.add_parser("search", parents=parents, help="find learnings and turns, best first")
    search.add_argument(
        "query", nargs="+", help="in natural language; filters: type: since: before: session: project: around:"
    )
    search.add_argument("--project", metavar="P", help="only of this project: its key, or its folder's name")
    search.add_argument("--limit", type=_number, default=DEFAULT_LIMIT, metavar="N", help="hits (default: 10)")

    file = commands.add_parser("file", parents=parents, help="print a memory file")
    file.add_argument("name", help="soul.md, os.md, tools.md, user.md, files.md or context.md")
    file.add_argument(
        "--as-of", metavar="TIME|CURATION", help="as it was then: 2026-11-20T15:00, or a curation's number"
    )

    file.add_argument(
        "--project",
        metavar="P",
        help="what a session of this project is shown of it: the person's part and its section",
    )

    history = commands.add_parser("history", parents=parents, help="every version of a curated file")
    history.add_argument("name")

    diff = commands.add_parser("diff", parents=parents, help="what changed between two versions (0: as shipped)")
    diff.add_argument("name")
    diff.add_argument("a", type=_number)
    diff.add_argument("b", type=_number)

    commands.add_parser(
        "drift", parents=parents, help="what changed while the agent worked, or by an import, and waits for you"
    )
    accept = commands.add_parser("accept", parents=[here], help="take over a change that waits for you")
    accept.add_argument("name")
    reject = commands.add_parser("reject", parents=[here], help="put such a change away: the file is as memory has it")
    reject.add_argument("name")

    learnings = commands.add_parser("learnings", parents=parents, help="what was learned, oldest first")
    learnings.add_argument("--after", type=_number, default=0, metavar="ID", help="only those with a higher number")
    learnings.add_argument("--limit", type=_number, default=100, metavar="N", help="how many (default: 100)")

    for name, words in (
        ("confirm", "say that an unverified learning is right: it becomes your own word"),
        ("retire", "say that an unverified learning is not right: it no longer holds"),
    ):
        answer = commands.add_parser(name, parents=[here], help=words)
        answer.add_argument("learning", type=_number, metavar="N", help="its number, as `learnings` shows it")

    restore = commands.add_parser(
        "restore", parents=[here], help="make an earlier version of a curated file the newest"
    )
    restore.add_argument("name")
    restore.add_argument("version", type=_number, help="its number in the history; 0: as shipped")

    retry = commands.add_parser("retry", parents=[here], help="have a turn that was set aside curated again")
    retry.add_argument("turn", type=_number, help="its number, as `status` says it")

    forget = commands.add_parser("forget", parents=parents, help="take something out of memory, the log and all copies")
    what = forget.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", metavar="T", help="these words, wherever they stand")
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
    listing = commands.add_parser("list", parents=parents, help="the open actions, the next due first")
    listing.add_argument("--all", action="store_true", help="also those that are done, dismissed or failed")

    add = commands.add_parser(
        "add",
        parents=parents,
        help="add one; at its time the agent does it, or reminds of it",
        epilog="Example: actions add Draw my open actions --every 'weekday at 8' --tz Europe/Berlin",
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
        help="day, weekday, 'monday and friday', '2 weeks', 'weekday at 8', or an RFC 5545 rule (FREQ=...); at most "
        "every 5 minutes",
    )
    add.add_argument("--tz", metavar="ZONE", help="your time zone, like Europe/Berlin (default: as your page said it)")
    add.add_argument("--priority", type=_number, default=0, metavar="N", help="higher comes first (default: 0)")

    for name, words in (("done", "say that it is done"), ("dismiss", "say that it need not be done")):
        closing = commands.add_parser(name, parents=parents, help=f"{words}; one that repeats ends with that")
        closing.add_argument("id", type=_number, help="its number, as `list` shows it")


if __name__ == "__main__":
    sys.exit(main())
