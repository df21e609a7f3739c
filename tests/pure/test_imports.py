"""The sources: imports point downwards without a cycle, each layer knows only what it may, each task has an owner."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.forking import ROOT


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module reaches: imported, imported by its name, or a file reached by its path.

    `at_start`: it runs when the module is imported.
    """

    name: str
    line: int
    at_start: bool
    by_path: bool = False


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


PATHS = {module_name(path): path for folder in ("sprite", "bridge") for path in sorted((ROOT / folder).rglob("*.py"))}


SOURCES = {name: path.read_text(encoding="utf-8") for name, path in PATHS.items()}


@cache
def tree(name: str) -> ast.Module:
    """A module, parsed once."""
    return ast.parse(SOURCES[name])


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in {
        leaf.id if isinstance(leaf, ast.Name) else leaf.attr
        for leaf in ast.walk(node.test)
        if isinstance(leaf, ast.Name | ast.Attribute)
    }


def path_of(node: ast.AST) -> list[str]:
    """The literal parts at the end of a path such as `ROOT / "sprite" / "prices.json"`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
        return [*path_of(node.left), *str(node.right.value).split("/")]
    return []


def reached(node: ast.AST) -> str | None:
    """The module or package file that an expression reaches without an import statement."""
    if isinstance(node, ast.Call):
        named = [node.func, *node.args]
        loads = any(isinstance(part, ast.Attribute) and part.attr == "import_module" for part in named)
        names = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        return names[0] if loads and names else None
    parts = path_of(node)
    return ".".join(parts) if parts and parts[0] in {"sprite", "bridge"} else None


#: Only modules with one of these reach others without an import statement: their expressions are looked through.
REACHING = ("import_module", '"sprite', '"bridge')


def imports_in(root: ast.AST, package: str, *, expressions: bool = True) -> list[Import]:
    """Return the imports in the order of their lines, of statements alone or of expressions, too."""
    found: list[Import] = []
    waiting = [(root, True)]
    while waiting:
        node, at_start = waiting.pop()
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno, at_start) for alias in node.names]
            continue
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from sprite.memory import files` imports a module, `from sprite.errors import PeerError` a name.
                whole = f"{source}.{alias.name}"
                found.append(Import(whole if whole in PATHS else source, node.lineno, at_start))
            continue
        if (name := reached(node)) is not None:
            by_path = isinstance(node, ast.BinOp)
            found.append(Import(name, getattr(node, "lineno", 0), at_start=False, by_path=by_path))
            if by_path:
                # Its beginning is a shorter path to the same file.
                continue
        at_start &= not (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(node)
        )
        kinds = ast.AST if expressions else (ast.stmt, ast.ExceptHandler, ast.match_case)
        waiting += [(child, at_start) for child in ast.iter_child_nodes(node) if isinstance(child, kinds)]
    return sorted(found, key=lambda each: each.line)


@cache
def imports() -> dict[str, list[Import]]:
    """Return what every module imports."""
    return {
        name: imports_in(
            tree(name), package_of(name, path), expressions=any(mark in SOURCES[name] for mark in REACHING)
        )
        for name, path in PATHS.items()
    }


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


#: It ships the sprite's files into VMs, and so reaches all of them by path.
SHIPS = "bridge.hosts.archive"


def breaches(importers: tuple[str, ...], forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    """Imports of any kind, late and type-only ones included, from the one side to the other."""
    return [
        f"{PATHS[name].relative_to(ROOT)}:{found.line} imports {found.name}"
        for name in PATHS
        if within(name, *importers)
        for found in imports()[name]
        if not (found.by_path and name == SHIPS)
        if within(found.name, *forbidden) and not within(found.name, *allowed)
    ]


def test_the_test_sees_imports_of_every_kind() -> None:
    source = """
import asyncio, sprite.feed
from sprite.memory import files
from ..errors import PeerError
from .recall import view
if TYPE_CHECKING:
    from sprite.agent.equipment import Agent
class A:
    import json
    def method(self):
        from sprite.server import serve
        asyncio.to_thread(importlib.import_module, "sprite.agent.equipment")
        return ROOT / "sprite" / "prices.json"
"""
    found = imports_in(ast.parse(source), "sprite.memory")
    assert [(i.name, i.at_start) for i in found] == [
        ("asyncio", True),
        ("sprite.feed", True),
        ("sprite.memory.files", True),
        ("sprite.errors", True),
        ("sprite.memory.recall.view", True),
        ("sprite.agent.equipment", False),
        ("json", True),
        ("sprite.server", False),
        ("sprite.agent.equipment", False),
        ("sprite.prices.json", False),
    ]
    assert len(PATHS) > 50
    assert {"sprite", "sprite.protocol.messages", "sprite.memory.capture.recorder", "bridge.offline.model"} <= set(
        PATHS
    )


def test_no_module_is_part_of_a_cycle_type_only_and_late_imports_included() -> None:
    graph = {name: {i.name for i in found if i.name in PATHS} for name, found in imports().items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for imported in sorted(graph[name]):
                visit(imported, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


#: Everything that knows of connections, turns or the agent's process.
UPPER = "sprite.agent sprite.clients sprite.feed sprite.commands sprite.server sprite.__main__".split()


@pytest.mark.parametrize(
    ("importers", "forbidden", "allowed"),
    [
        (("sprite.memory",), (*UPPER, "sprite.tools"), ()),
        (("sprite.tools",), (*UPPER, "sprite.config"), ()),
        (
            ("sprite.database",),
            ("sprite",),
            (
                *("sprite.database", "sprite.errors", "sprite.common"),
                *("sprite.protocol.archive", "sprite.protocol.rows", "sprite.protocol.shapes", "sprite.protocol.tools"),
                "sprite.protocol.shipping",
            ),
        ),
        (("sprite.protocol",), ("sprite",), ("sprite.protocol", "sprite.errors")),
        (("sprite.privacy",), ("sprite",), ("sprite.privacy", "sprite.errors", "sprite.common")),
        (("sprite.errors",), ("sprite", "asyncio"), ()),
        (("sprite.config",), ("sprite",), ("sprite.errors", "sprite.common")),
        (
            ("sprite.clients.connection", "sprite.feed"),
            ("sprite.agent.runtime", "sprite.clients.gateway", "sprite.server"),
            (),
        ),
        (("sprite.clients.gateway", "sprite.agent.runtime"), ("sprite.server", "sqlite3", "aiosqlite"), ()),
        (("sprite.agent",), ("sprite.clients", "sprite.server", "sqlite3", "aiosqlite"), ()),
        (("sprite",), ("bridge", "tests"), ()),
        (("bridge",), ("sprite",), ("sprite.protocol", "sprite.prices", "sprite.common")),
        (("bridge",), ("tests",), ()),
        (("sprite.common",), ("sprite", "bridge"), ("sprite.common",)),
        (("bridge.offline",), ("bridge",), ("bridge.offline",)),
        (("bridge.hosts",), ("bridge",), ("bridge.hosts",)),
        (
            ("bridge.relay",),
            ("bridge",),
            (
                *("bridge.relay", "bridge.hosts", "bridge.cluster.ownership"),
                "bridge.token_bucket",
            ),
        ),
        (
            ("bridge.waking",),
            ("bridge",),
            (
                *("bridge.waking", "bridge.relay", "bridge.hosts.output", "bridge.cluster.ownership"),
                *("bridge.database", "bridge.write_behind"),
            ),
        ),
        (
            ("bridge.cluster",),
            ("bridge",),
            ("bridge.cluster", "bridge.database", "bridge.hosts.host"),
        ),
        (("bridge.write_behind",), ("bridge",), ("bridge.database",)),
        (("bridge.observing",), ("bridge",), ("bridge.observing", "bridge.token_bucket")),
        (("bridge.door",), ("bridge.operating", "bridge.commands", "bridge.app", "bridge.doors"), ()),
        (("bridge.doors",), ("bridge.operating", "bridge.commands", "bridge.app", "bridge.llm"), ()),
        (
            ("bridge.acp",),
            ("bridge", "aiohttp"),
            (
                "bridge.acp",
                "bridge.chat",
                "bridge.client",
                "bridge.config",
                "bridge.errors",
                "bridge.observing.logs",
            ),
        ),
        (("bridge.app", "bridge.operating"), ("bridge.commands",), ()),
        (
            ("bridge.mcp",),
            ("bridge",),
            (
                *(
                    "bridge.mcp",
                    "bridge.door",
                    "bridge.doors.asking",
                    "bridge.doors.json_bodies",
                    "bridge.relay",
                    "bridge.hosts.host",
                ),
                *("bridge.database", "bridge.config", "bridge.observing.request_keys"),
                "bridge.token_bucket",
            ),
        ),
        (
            ("bridge.llm",),
            ("bridge",),
            (
                "bridge.llm",
                "bridge.database",
                "bridge.observing.request_keys",
                "bridge.token_bucket",
            ),
        ),
        (("bridge.token_bucket",), ("bridge", "sprite"), ()),
        (
            tuple(f"sprite.schedules.{name}" for name in ("due", "every", "recurrence", "words", "zones")),
            ("sprite",),
            ("sprite.schedules", "sprite.errors"),
        ),
    ],
    ids=lambda value: value[0] if value else "-",
)
def test_no_module_knows_more_than_its_layer_may(
    importers: tuple[str, ...], forbidden: tuple[str, ...], allowed: tuple[str, ...]
) -> None:
    assert breaches(importers, forbidden, allowed) == []


def test_the_stores_do_not_know_each_other() -> None:
    stores = [name for name in PATHS if within(name, "sprite.database") and name.count(".") == 2]
    shared = {f"sprite.database.{name}" for name in ("connection", "full_text", "log_mark", "ship_changes")}
    parts = {
        "transcript": {"turn_index", "curations", "quarantine", "user_files"},
        "quarantine": {"curations"},
        "memory": {"learning_index", "projected"},
        "projected": {"learning_index"},
    }
    for name in stores:
        own = {f"sprite.database.{part}" for part in parts.get(name.rpartition(".")[2], set())}
        others = tuple(other for other in stores if other not in {name, *own, *shared})
        assert breaches((name,), others) == []
    assert breaches(("sprite.database.connection",), tuple(stores), ("sprite.database.connection",)) == []


@pytest.mark.parametrize(
    "name",
    [
        "sprite.protocol.shapes",
        "sprite.protocol.events",
        "sprite.protocol.memory",
        "sprite.protocol.canvas",
        "sprite.protocol.rows",
        "sprite.protocol.refusals",
        "sprite.protocol.messages",
        "sprite.protocol.frames",
        "sprite.protocol.tools",
        "sprite.protocol.outbox",
        "sprite.protocol.position",
        "sprite.protocol.observing",
        "sprite.protocol.projects",
        "sprite.protocol.lines",
        "sprite.protocol.shipping",
        "sprite.shipping.messages",
        "sprite.protocol.upload_chunks",
        "sprite.protocol.archive",
        "sprite.protocol.offered.shapes",
        "sprite.protocol.offered.wording",
        "sprite.protocol.offered.cards",
        "sprite.protocol.offered.tools",
        "sprite.protocol.offered.watching",
        "bridge.mcp.addresses",
        "sprite.prices",
        "sprite.agent.mission_end",
        "sprite.agent.turn_result",
        "sprite.privacy.cutting",
        "sprite.privacy.redaction",
        "sprite.memory.tokens",
        "sprite.memory.words",
        "sprite.errors",
        "sprite.agent.translate",
        "sprite.tools.blocks",
        "sprite.memory.capture.turn_buffer",
        "sprite.memory.capture.observed_turns",
        "sprite.memory.echo",
        "sprite.memory.sections",
        "sprite.memory.claude_code.entries",
        "sprite.memory.claude_code.voices",
        "sprite.memory.claude_code.subagents",
        "sprite.memory.claude_code.turns",
        "sprite.memory.importing.documents",
        "sprite.memory.importing.proposals",
        "sprite.memory.importing.talk",
        "sprite.memory.importing.tools",
        "sprite.memory.recall.query",
        "sprite.memory.recall.passage",
        "sprite.memory.recall.spelling",
        "sprite.memory.recall.when",
        "sprite.memory.projection.evidence",
        "sprite.memory.projection.guards",
        "sprite.memory.projection.batch_fold",
        "sprite.memory.projection.file_fold",
        "sprite.memory.projection.project_turns",
        "sprite.memory.projection.fold",
        "sprite.memory.curation.prompt",
        "sprite.memory.curation.answer",
        "sprite.memory.curation.answer_files",
        "bridge.token_bucket",
    ],
)
def test_what_is_pure_knows_no_loop_no_socket_and_no_database(name: str) -> None:
    forbidden = "asyncio threading socket subprocess sqlite3 aiosqlite anthropic"
    assert breaches((name,), tuple(forbidden.split())) == []


def test_only_the_stores_speak_sql() -> None:
    speakers = {name for name in PATHS if any(within(found.name, "aiosqlite") for found in imports()[name])}
    assert all(within(name, "sprite.database") for name in speakers), speakers


def environment_readers(package: str) -> set[str]:
    return {
        name
        for name, source in SOURCES.items()
        if within(name, package) and ("env" in source)
        for node in ast.walk(tree(name))
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"})
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {a.name for a in node.names} & {"environ", "getenv"}
        )
    }


def test_only_the_settings_read_the_environment() -> None:
    assert environment_readers("sprite") == {"sprite.config", "sprite.common.settings"}
    # What kind of terminal it runs in, and with which editor, is no setting.
    assert environment_readers("bridge") == {"bridge.config", "bridge.chat.client"}


@pytest.mark.parametrize("starts", [["sprite.server", "sprite.__main__"], ["bridge.app", "bridge.__main__"]])
def test_what_must_answer_at_once_does_not_wait_for_the_sdks(starts: list[str]) -> None:
    """The listener is up before the SDKs (1.1 s) are imported: nothing it needs may import them at its start."""
    heavy = ("claude_agent_sdk", "httpx2", "mcp", "starlette")
    reached, waiting = set(), starts
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [i.name for i in imports()[name] if i.at_start and i.name in PATHS]
    guilty = [
        f"{name} imports {i.name}" for name in reached for i in imports()[name] if i.at_start and within(i.name, *heavy)
    ]
    assert guilty == []


#: Where a task is made by hand: its maker awaits it in the same function or hands its exception on.
BY_HAND = {
    "bridge.client.link",
    "bridge.chat.endpoints",
    "bridge.mcp.asgi",
    "bridge.observing.probe",
    "bridge.operating.audit",
    "bridge.relay.link",
    "bridge.relay.relay",
    "bridge.relay.room",
    "bridge.waking.waker",
    "sprite.agent.conversation",
}
#: Task groups end with what fails in them.
GROUPS = {
    "bridge.chat.client",
    "bridge.chat.terminal",
    "bridge.llm.shared_accounts",
    "bridge.operating.status",
    "bridge.operating.steps",
}


def test_every_task_has_a_name_and_an_owner() -> None:
    makers = set()
    for name, source in SOURCES.items():
        if not ("create_task" in source or "ensure_future" in source):
            continue
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr != "ensure_future", name
                if node.func.attr == "create_task":
                    assert "name" in {keyword.arg for keyword in node.keywords}, f"{name}:{node.lineno}"
                    makers.add(name)
    assert makers == BY_HAND | GROUPS | {"sprite.common.tasks"}


def test_no_regex_has_a_possessive_group() -> None:
    """Python matches them wrongly before 3.11.5 (CPython gh-106052). Possessive characters and classes are right."""
    group = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")
    files = [path for program in ("sprite", "bridge") for path in (ROOT / program).rglob("*.*")]
    sources = {path: path.read_text() for path in files if path.suffix in {".py", ".toml"}}
    assert sources
    assert [str(path) for path, text in sources.items() if group.search(text)] == []
