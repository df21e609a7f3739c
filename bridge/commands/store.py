"""`python -m bridge store ...`: list, check and delete replicas, and rotate their encryption key.

Works on the store itself, with or without a running bridge.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec

from bridge.admin import control
from bridge.admin.audit import CLI, outcome_noted
from bridge.admin.control import NoBridgeError
from bridge.admin.status import in_units
from bridge.cluster.peers import GONE_SECONDS, running
from bridge.commands.reach import add_data, ask_or_act, running_bridge, say
from bridge.config import Settings
from bridge.db.open import Database, open_database
from bridge.errors import OperatorError
from bridge.providers.provider import printable
from bridge.replicas.keys import KeyFile, Keyring
from bridge.replicas.sealed_store import SealedStore, open_store
from bridge.replicas.store import Kept, StoreError
from bridge.replicas.upkeep import checked, pieces_of_other_keys, sealed_anew
from bridge.terminal.drawing import sized

Work = Callable[[Settings, argparse.Namespace], Coroutine[None, None, int]]

_FAILED = 1
#: The subject of an act on the whole store.
_ALL = "all"
_ALL_SEALED = "There was nothing to do: all that is stored is sealed with the key in use."
_OF_GONE = f"(A bridge that was killed counts for {GONE_SECONDS:.0f} s more.)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `store`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    every: tuple[tuple[str, str, Work], ...] = (
        ("list", "what is kept of whom: how old, how large", _list),
        ("verify", "unseals everything, and looks whether it is all there", _verify),
        ("rotate-key", "seals everything anew with a new key (or with the first one of BRIDGE_STORE_KEY)", _rotate),
        ("accept", "follows a sprite as it now is, where the store has more, or another log", _accept),
        ("delete", "overwrites and deletes all that is kept of somebody", _delete),
    )
    for name, summary, work in every:
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name in {"accept", "delete"}:
            command.add_argument("name", metavar="NAME", help="the person whose agent it is")
        if name == "verify":
            command.add_argument("name", metavar="NAME", nargs="?", help="the person whose agent it is (default: all)")
        if name == "delete":
            command.add_argument("--yes", action="store_true", help="without asking first")
        if name == "list":
            command.add_argument("--json", action="store_true", help="for programs")
        add_data(command)
        command.set_defaults(work=work)


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[SealedStore]:
    async with _store_beside(settings) as (store, _):
        yield store


@asynccontextmanager
async def _store_beside(settings: Settings) -> AsyncIterator[tuple[SealedStore, Database | None]]:
    """Yield the store, and the shared database if there is one."""
    async with AsyncExitStack() as stack:
        database = None
        if settings.database_url is not None:
            database = await stack.enter_async_context(open_database(settings.database_url))
        yield await stack.enter_async_context(open_store(settings, database)), database


async def _known(store: SealedStore, name: str) -> None:
    if name not in await store.sprites():
        raise OperatorError(f"Nothing is stored of {printable(name)}. python -m bridge store list")


@asynccontextmanager
async def _act(settings: Settings, action: str, subject: str) -> AsyncIterator[None]:
    """Record in the audit log that the act starts, and its outcome at the end of the block."""
    await _note(settings, action, subject)
    async with outcome_noted(partial(_note, settings, action, subject)):
        yield


async def _note(settings: Settings, action: str, subject: str, outcome: str = "") -> None:
    # Looked up each time: the bridge may have started or stopped since the first line.
    detail = {"outcome": outcome} if outcome else {}
    line = {"action": action, "subject": subject, "outcome": outcome}
    await ask_or_act(
        settings, "POST", "/audit", lambda acts: acts.audit.note(CLI, action, subject, **detail), body=line
    )


async def _list(settings: Settings, arguments: argparse.Namespace) -> int:
    async with _store(settings) as store:
        kept = [await store.kept(sprite) for sprite in await store.sprites()]
    if arguments.json:
        say(msgspec.json.encode(kept).decode())
    elif not kept:
        say("Nothing is stored yet: a sprite's log comes here while somebody is connected to it.")
    else:
        for each in kept:
            say(_line(each, time.time()))
    return 0


def _line(kept: Kept, now: float) -> str:
    position = kept.position
    age = "nothing yet" if position.at is None else f"newest {_ago(now - position.at)}"
    if position.at is not None and not position.is_whole:
        since = "" if position.whole_at is None else f", all of {_ago(now - position.whole_at)}"
        age = f"{age}, more was on its way{since}"
    older = f"{kept.rows} rows, {kept.older_rows} older versions, {kept.chunks} chunks"
    return f"{kept.sprite}  {sized(kept.size)}  {older}  ({age})"


def _ago(seconds: float) -> str:
    age = in_units(seconds)
    return f"{age} ago" if age else "just now"


async def _verify(settings: Settings, arguments: argparse.Namespace) -> int:
    wrong = 0
    async with _store(settings) as store:
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


async def _rotate(settings: Settings, _arguments: argparse.Namespace) -> int:
    async with _store_beside(settings) as (store, database):
        keys, sprites = store.keyring, await store.sprites()
        if not sprites:
            say("Nothing is stored yet: there is nothing to seal anew.")
            return 0
        await _agreed(settings, keys, database)
        if not isinstance(keys, KeyFile) and not await _of_other_keys(store, sprites):
            say(_ALL_SEALED, _advice(settings))
            return 0
        async with _act(settings, "store rotate-key", _ALL):
            if isinstance(keys, KeyFile):
                if keys.count() == 1:
                    keys.add()
                    say(f"A new key is in {settings.store_key}, before the one of before: keep a copy of that file.")
                else:
                    say("Going on where a rotation ended.")
            await _seal_anew(store, sprites)
            if isinstance(keys, KeyFile):
                # Other processes that opened the store meanwhile already encrypt with the new key.
                keys.drop_older()
        if isinstance(keys, KeyFile):
            say(f"Done. The key of before is not in {settings.store_key} any more, and opens nothing that is stored.")
        else:
            say("Done. Only the first key of BRIDGE_STORE_KEY is needed from here on; the others may go.")
    return 0


async def _of_other_keys(store: SealedStore, sprites: list[str]) -> int:
    return sum([await pieces_of_other_keys(store, sprite) for sprite in sprites])


def _advice(settings: Settings) -> str:
    """Return how to rotate a key that is not in a key file."""
    if settings.store_keys is None:
        return (
            "That key is made of BRIDGE_CLUSTER_SECRET. To have another one, set BRIDGE_STORE_KEY for every bridge, "
            "restart them, and say this again."
        )
    if len(settings.store_keys) == 1:
        return (
            "To have another one, give every bridge both (the old one, then the new one) and restart them, then the "
            "new one first and restart them, and say this again."
        )
    return "Only the first key of BRIDGE_STORE_KEY is needed from here on; the others may go."


async def _agreed(settings: Settings, keys: Keyring, database: Database | None) -> None:
    """Raise OperatorError if a running bridge lacks the new key or still encrypts with another one."""
    bridges: list[tuple[str, Sequence[str]]] = []
    try:
        async with running_bridge(settings) as session:
            here = await control.ask(session, "GET", "/store/keys")
            bridges.append(("The bridge that runs on this data folder", here["keys"]))
    except NoBridgeError:
        pass
    others = [] if database is None else await running(database)
    if isinstance(keys, KeyFile):
        if len(others) > len(bridges):
            raise OperatorError(
                f"Other bridges run over this database ({', '.join(peer.address for peer in others)}), and a key file "
                "is read by one alone. Set BRIDGE_STORE_KEY for all of them: the key in the file, then a new one."
            )
        return
    bridges += [(f"The bridge at {peer.address}", peer.store_keys) for peer in others]
    new, *_ = keys.ids()
    for bridge, theirs in bridges:
        if new not in theirs:
            raise OperatorError(
                f"{bridge} does not have the key that is first here (id {new}), and could read nothing any more. "
                "Nothing was changed. Put that key into its BRIDGE_STORE_KEY, too, behind the one in use, and restart "
                f"it. {_OF_GONE}"
            )
        if theirs[0] != new:
            raise OperatorError(
                f"{bridge} still seals with another key (id {theirs[0]}). Nothing was changed. Put the key that is "
                f"first here (id {new}) first in its BRIDGE_STORE_KEY, and restart it. {_OF_GONE}"
            )


async def _seal_anew(store: SealedStore, sprites: list[str]) -> None:
    for number, sprite in enumerate(sprites, start=1):
        total = await pieces_of_other_keys(store, sprite)
        async for done in sealed_anew(store, sprite):
            if sys.stdout.isatty():
                sys.stdout.write(f"\r{sprite} ({number} of {len(sprites)}): {done} of {total} pieces sealed anew")
                sys.stdout.flush()
        if total:
            say(f"\r{sprite} ({number} of {len(sprites)}): {total} pieces sealed anew")


async def _accept(settings: Settings, arguments: argparse.Namespace) -> int:
    async with _store(settings) as store:
        await _known(store, arguments.name)
        async with _act(settings, "store accept", arguments.name):
            await store.accept(arguments.name)
    say(
        f"{arguments.name} is followed anew, as it now is. What was stored before stays for a month, as the state of "
        "then."
    )
    return 0


async def _delete(settings: Settings, arguments: argparse.Namespace) -> int:
    async with _store(settings) as store:
        await _known(store, arguments.name)
        if not arguments.yes and not _is_meant(arguments.name, await store.kept(arguments.name)):
            say("Nothing was deleted.")
            return _FAILED
        async with _act(settings, "store delete", arguments.name):
            await store.delete(arguments.name)
    say(f"Nothing is stored of {arguments.name} any more. An agent that still runs is stored anew.")
    return 0


def _is_meant(name: str, kept: Kept) -> bool:
    if not sys.stdin.isatty():
        raise OperatorError("This deletes for good. Say --yes where nobody can be asked.")
    say(f"{_line(kept, time.time())}", "It cannot be had back; if its machine is gone, so is the agent.")
    return input(f"Delete it? Type {name} to go on: ").strip() == name
