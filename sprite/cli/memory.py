"""`memory search|file|history|diff|drift|learnings`: show memory in a terminal."""

from __future__ import annotations

import argparse
import difflib
from dataclasses import replace

from sprite.cli.output import day_and_time, show
from sprite.common.sqlite import LARGEST_ROW_ID
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.log.curations import what_happened
from sprite.memory import query
from sprite.memory.files import shown_to, template
from sprite.owner import Stores, open_stores
from sprite.protocol.framing import on_one_line, one_line
from sprite.protocol.shapes import RETIRED, SearchHit, counted
from sprite.search.meaning.meaning import BY_WORDS
from sprite.search.view import file_as_of, known_file

SNIPPET_CHARS = 200


async def search(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the hits of a query, best first; exit code 1 if there are none."""
    async with open_stores(settings) as stores:
        found = await stores.view.search(" ".join(arguments.query), arguments.limit, arguments.project)
    if settings.embeddings != "off":
        # The model and the vectors are in the running sprite's memory.
        found = replace(found, notes=(*found.notes, f"{BY_WORDS}, in this command."))
    reach = (
        f"{counted(len(found.hits), 'hit')}. Learnings reach up to turn {found.indexed_through}; "
        f"{counted(found.waiting, 'newer turn')} not learned from yet."
    )
    show(arguments, found, [*map(_hit_line, found.hits), *found.notes, reach])
    return 0 if found.hits else 1


def _hit_line(hit: SearchHit) -> str:
    text = " ".join(hit.text.split())
    text = text if len(text) <= SNIPPET_CHARS else f"{text[:SNIPPET_CHARS]}…"
    name = f"L{hit.id}" if hit.kind == "learning" else f"t{hit.id}"
    replaced = mark(hit.id, hit.superseded_by, is_unverified=hit.unverified)
    project = f" {one_line(hit.project)}" if hit.project is not None else ""
    return f"{name:<6} {hit.type:<12} {day_and_time(hit.at)}{project}{replaced}  {text}"


def mark(number: int, superseded_by: int | None, *, is_unverified: bool) -> str:
    """Return the mark printed after a learning that is no longer true, done, superseded or unverified, else ""."""
    if superseded_by is None:
        return " [unverified]" if is_unverified else ""
    if superseded_by == number:
        return " [done]"
    return " [no longer true]" if superseded_by == RETIRED else f" [superseded by L{superseded_by}]"


async def file(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print a memory file, as of a time or curation if given, and for one project's sessions if given."""
    async with open_stores(settings) as stores:
        project = stores.view.project(arguments.project)
        if arguments.as_of is None:
            content, version = await stores.view.file(arguments.name)
        else:
            until = await _event(stores, arguments.as_of)
            name = known_file(arguments.name)
            content, version = await file_as_of(stores.transcript, stores.memory, settings.run, name, until)
    if arguments.project is not None:
        content = shown_to(arguments.name, content, [project] if project else [])
    facts = {"name": arguments.name, "version": version, "content": content}
    return show(arguments, facts, [content.removesuffix("\n")])


async def _event(stores: Stores, moment: str) -> int:
    if moment.isdecimal():
        return min(int(moment), LARGEST_ROW_ID)
    if (at := query.moment(moment)) is None:
        raise PeerError(f"{moment!r} is neither a time such as 2026-11-20T15:00 nor the number of a curation.")
    return await stores.transcript.curations.newest_event(at)


async def history(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print every version of a curated file."""
    async with open_stores(settings) as stores:
        versions = await stores.view.history(arguments.name)
    lines = [
        f"version {version.version:<4} {day_and_time(version.at)}  {version.lines:>3} lines  "
        f"by {version.source} (curation {version.curation_id})"
        for version in versions
    ]
    return show(arguments, versions, lines or [f"{arguments.name} is as shipped."])


async def diff(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the changes between two versions of a curated file; version 0 is the file as shipped."""
    async with open_stores(settings) as stores:
        contents = [await content_of(stores, arguments.name, number) for number in (arguments.a, arguments.b)]
    titles = (f"{arguments.name} version {arguments.a}", f"{arguments.name} version {arguments.b}")
    lines = _difference(contents[0], contents[1], titles)
    facts = {"name": arguments.name, "a": arguments.a, "b": arguments.b, "diff": lines}
    return show(arguments, facts, lines or ["The two versions are the same."])


async def content_of(stores: Stores, name: str, version: int) -> str:
    """Return a version of a curated file; 0 is the file as shipped. Raises PeerError if it does not exist."""
    return template(known_file(name)) if version == 0 else (await stores.view.file_version(name, version)).content


def _difference(before: str, after: str, titles: tuple[str, str]) -> list[str]:
    lines = before.splitlines(), after.splitlines()
    return list(difflib.unified_diff(*lines, titles[0], titles[1], lineterm=""))


async def drift(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print pending changes by the agent's work as a difference; they wait for a person's decision."""
    async with open_stores(settings) as stores:
        waiting = await stores.view.drift()
        changes = {
            name: _difference(stores.files.read(name), found.content, (f"{name} in memory", f"{name} on disk"))
            for name, found in waiting.items()
        }
    facts = [{"name": name, "at": waiting[name].found_at, "diff": lines} for name, lines in changes.items()]
    told = []
    for name, lines in changes.items():
        told += [f"{what_happened(name)}, found {day_and_time(waiting[name].found_at)}:", "\n".join(lines)]
        told.append(f"Accept it with `memory accept {name}`, or discard it with `memory reject {name}`.")
    return show(arguments, facts, told or ["No file waits for a decision."])


async def learnings(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print learnings, oldest first."""
    async with open_stores(settings) as stores:
        rows = await stores.view.learnings(arguments.after, arguments.limit)
    lines = [] if rows else ["Nothing has been learned yet."]
    for row in rows:
        turn = f" t{row.source_observation_id}" if row.source_observation_id is not None else ""
        replaced = mark(row.id, row.superseded_by, is_unverified=row.is_unverified)
        project = f" {one_line(row.project)}" if row.project is not None else ""
        quote = f'  "{on_one_line(row.evidence)}"' if row.evidence else ""
        about = f"{day_and_time(row.created_at)}{turn} ({row.origin}){project}{replaced}"
        lines.append(f"L{row.id:<5} {row.type:<12} {about}  {row.content}{quote}")
    if any(row.is_unverified and row.superseded_by is None for row in rows):
        words = "Unverified learnings: `memory confirm N` confirms one, `memory retire N` marks it as no longer true."
        lines.append(words)
    return show(arguments, rows, lines)
