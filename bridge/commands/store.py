"""`python -m bridge store ...`: list, check, accept and delete replicas.

Works on the store itself, with or without a running bridge.
"""

import argparse
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager

from bridge.admin.status import ago
from bridge.commands.reach import add_data, add_json, add_person, ask, say, say_json
from bridge.config import Settings
from bridge.db.open import open_database
from bridge.errors import OperatorError
from bridge.providers.provider import printable
from bridge.replicas.sealed_store import SealedStore, open_store
from bridge.replicas.store import Kept, StoreError
from bridge.replicas.upkeep import checked
from sprite.protocol.files import size_in_words

Work = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]

_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `store`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    every: tuple[tuple[str, str, Work], ...] = (
        ("list", "lists the replicas with their age and size", _list),
        ("verify", "decrypts everything, and checks that nothing is damaged or missing", _verify),
        ("accept", "replicates a sprite as it is now, although the store has more of it, or another log", _accept),
        ("delete", "overwrites and deletes the replica of a person's agent", _delete),
    )
    for name, summary, work in every:
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        match name:
            case "list":
                add_json(command)
                add_data(command)
            case "verify":
                add_person(command, "the person whose agent it is (default: all)", nargs="?")
            case _:
                add_person(command, "the person whose agent it is")
        if name == "delete":
            command.add_argument("--yes", action="store_true", help="without asking first")
        command.set_defaults(work=work)


@asynccontextmanager
async def _store_beside(settings: Settings) -> AsyncIterator[SealedStore]:
    """Yield the store of replicas, whether or not a bridge runs."""
    async with AsyncExitStack() as stack:
        database = None
        if settings.database_url is not None:
            database = await stack.enter_async_context(open_database(settings.database_url))
        yield await stack.enter_async_context(open_store(settings, database))


async def _known(store: SealedStore, name: str) -> None:
    if name not in await store.sprites():
        raise OperatorError(f"There is no replica of {printable(name)}. See python -m bridge store list")


async def _list(settings: Settings, arguments: argparse.Namespace) -> int:
    async with _store_beside(settings) as store:
        kept = [await store.kept(sprite) for sprite in await store.sprites()]
    if arguments.json:
        return say_json(kept)
    say(*(_line(each, time.time()) for each in kept))
    if not kept:
        say("There are no replicas yet: a sprite is replicated while somebody is connected to it.")
    return 0


def _line(kept: Kept, now: float) -> str:
    position = kept.position
    age = "nothing yet" if position.at is None else f"newest {ago(position.at, now)}"
    if position.at is not None and not position.is_whole:
        since = "" if position.whole_at is None else f", complete as of {ago(position.whole_at, now)}"
        age = f"{age}, not complete{since}"
    older = f"{kept.rows} rows, {kept.older_rows} older versions, {kept.chunks} chunks"
    return f"{kept.sprite}  {size_in_words(kept.size)}  {older}  ({age})"


async def _verify(settings: Settings, arguments: argparse.Namespace) -> int:
    wrong = 0
    async with _store_beside(settings) as store:
        if arguments.name is not None:
            await _known(store, arguments.name)
        for sprite in await store.sprites() if arguments.name is None else [arguments.name]:
            try:
                findings = await checked(store, sprite)
            except StoreError as error:
                wrong += 1
                say(f"{sprite}: {error}")
                continue
            wrong += findings.count
            looked = f"{findings.rows} versions of rows, {findings.chunks} chunks"
            say(f"{sprite}: {looked}: {'all as they were stored' if not findings.wrong else 'NOT as they were stored'}")
            say(*(f"  {words}" for words in findings.wrong))
    return _FAILED if wrong else 0


async def _accept(settings: Settings, arguments: argparse.Namespace) -> int:
    async with _store_beside(settings) as store:
        await _known(store, arguments.name)
        await ask(settings, "POST", "/audit", {"action": "store accept", "subject": arguments.name})
        await store.accept(arguments.name)
    earlier = "The earlier replica stays for a month as an older state."
    say(f"{arguments.name} is now replicated from the beginning. {earlier}")
    return 0


async def _delete(settings: Settings, arguments: argparse.Namespace) -> int:
    async with _store_beside(settings) as store:
        await _known(store, arguments.name)
        if not arguments.yes and not _is_meant(arguments.name, await store.kept(arguments.name)):
            say("Nothing was deleted.")
            return _FAILED
        await ask(settings, "POST", "/audit", {"action": "store delete", "subject": arguments.name})
        await store.delete(arguments.name)
    say(f"The replica of {arguments.name} is deleted. An agent that still runs is replicated again.")
    return 0


def _is_meant(name: str, kept: Kept) -> bool:
    if not sys.stdin.isatty():
        raise OperatorError("This deletes permanently. Without a terminal, confirm it with --yes.")
    say(f"{_line(kept, time.time())}", "It cannot be restored. If the agent's machine is gone, so is the agent.")
    return input(f"Delete it? Type {name} to confirm: ").strip() == name
