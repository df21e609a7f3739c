"""`status`: show whether memory is well. `doctor`: check this machine and workspace, and say how to fix problems."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib.metadata
import os
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from sprite.backup.replica_files import ShippingReport, shipping_report
from sprite.cli.live import live
from sprite.cli.output import day_and_time, dollars, show
from sprite.config import Settings
from sprite.curation.model import check_model
from sprite.errors import MigrationPendingError, SpriteError
from sprite.log.curations import seconds_since_midnight, what_happened
from sprite.memory.files import MemoryFiles, set_aside
from sprite.memory.folders import last_error, make_folders
from sprite.owner import PROBE_SECONDS, Probed, ask_briefly, open_stores, probe
from sprite.protocol.messages import Status, System
from sprite.protocol.shapes import Health, counted
from sprite.sandbox.attempts import attempts
from sprite.sandbox.sandbox import find_boundary
from sprite.search.meaning.meaning import state as meaning_state
from sprite.workspace.database import read_workspace

GAUGE_CELLS = 20
#: The label of a report by its kind; any other is a refusal.
_KINDS = {"over_limit": "over limit", "lines_kept": "kept", "edit_missed": "missed"}


async def status(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print sessions, turns, learnings, files, spend and the last error."""
    running = await probe(settings)
    health, spent_today, shipped = await _looked_at(settings)
    aside, sandbox = set_aside(settings.memory), running.sandbox or find_boundary(settings, PROBE_SECONDS).words
    meaning = meaning_state(settings)
    facts: dict[str, object] = {"workspace": str(settings.workspace), "running": running.address}
    facts |= {"trouble": running.trouble, "slow": running.slow, "paused": running.paused, "set_aside": aside}
    facts |= {"sandbox": sandbox, "meaning": meaning, "agent_spend_today_usd": spent_today}
    facts |= {**msgspec.to_builtins(health), "shipping": shipped}
    is_well = not (health.attention or health.quarantined or health.drift or running.trouble)
    lines = [f"Memory of {settings.workspace}: {'well' if is_well else 'needs attention'}"]
    lines += [f"  sprite      {running.words}", *(f"              {words}" for words in running.slow)]
    lines += [f"  paused      {running.paused}"] if running.paused else []
    lines += [f"  sandbox     {sandbox}", f"  meaning     {meaning}", *_lines(health, spent_today)]
    lines += _shipping_lines(shipped) if shipped is not None and shipped.followed else []
    return show(arguments, facts, [*lines, *(f"  kept aside  {words}" for words in aside)])


async def _looked_at(settings: Settings) -> tuple[Health, float, ShippingReport | None]:
    """Return the state of memory, today's costs of the agent in US dollars, and the state of replication."""
    async with open_stores(settings) as stores:
        health = await stores.view.health(daily_cap_usd=settings.daily_usd, last_error=last_error(settings.run))
        if not settings.workspace_db.exists():
            return health, 0.0, None
        async with read_workspace(settings.workspace_db) as workspace:
            today = (await workspace.spend(time.time() - seconds_since_midnight(), None)).today
            spent = sum(cost.settled + cost.estimated for cost in (today.agent, today.schedules))
            return health, spent, await shipping_report(stores.transcript, workspace)


def _lines(health: Health, spent_today: float) -> Iterator[str]:
    yield f"  sessions    {health.sessions}"
    aside = f", {len(health.quarantined)} set aside" if health.quarantined else ""
    waiting = f", {health.waiting} not learned from yet" if health.waiting else "" if aside else ", all learned from"
    yield f"  turns       {health.turns}{waiting if health.turns else ''}{aside}"
    for turn in health.quarantined:
        yield f"  set aside   turn {turn.turn_id}, {day_and_time(turn.at)}: {turn.reason}"
        yield f"              it stays in the log and in the search; `memory retry {turn.turn_id}` learns from it again"
    yield f"  learnings   {health.learnings}, {counted(health.open_actions, 'open to-do')}"
    yield f"  curations   {health.curations}, the last {day_and_time(health.last_curation_at)}"
    yield "  files"
    for file in health.files:
        filled = min(GAUGE_CELLS, round(GAUGE_CELLS * file.lines / file.limit))
        gauge = "█" * filled + "·" * (GAUGE_CELLS - filled)
        yield f"    {file.name:<11} {gauge} {file.lines:>3} of {file.limit} lines"
    per_100 = f", {dollars(health.usd_per_100_turns)} per 100 turns" if health.usd_per_100_turns is not None else ""
    yield f"  spend       memory {dollars(health.spend_today_usd)} today, {dollars(health.spend_usd)} in all{per_100}"
    if health.calls_of_unknown_price:
        yield f"              and {counted(health.calls_of_unknown_price, 'call')} to a model whose price is not known"
    if health.daily_cap_usd is not None:
        yield f"              capped at {dollars(health.daily_cap_usd)} a day"
    yield f"              the agent {dollars(spent_today)} today"
    if health.unverified:
        yield f"  unverified  {counted(health.unverified, 'learning')} without evidence in the turn named as source"
    for drifted in health.drift:
        yield f"  drift       {what_happened(drifted.name)} ({day_and_time(drifted.at)}): see `memory drift`"
    for refusal in health.refusals:
        kind = _KINDS.get(refusal.kind, "refused")
        yield f"  {kind:<11} curation {refusal.curation_id}: {'; '.join(refusal.detail.splitlines())}"
    for words in health.attention:
        yield f"  attention   {words}"
    yield f"  last error  {health.last_error or 'none'}"


def _shipping_lines(shipped: ShippingReport) -> Iterator[str]:
    unsent = f"{counted(shipped.waiting, 'row')} not sent to the bridge yet"
    waiting = unsent if shipped.waiting else "the bridge has everything"
    yield f"  replica     {waiting}, last confirmed {day_and_time(shipped.acked_at)}"
    for words in shipped.words():
        yield f"              {words}"


#: SQLite steps between two checks of the clock.
_STEPS = 100_000
#: The oldest SQLite with all features of the schema (FTS5 with `ORDER BY rank`, upsert, partial indexes).
OLDEST_SQLITE = (3, 35, 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `doctor`: its name, whether it passed, and details or how to fix the problem."""

    name: str
    ok: bool
    words: str


async def doctor(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print every finding; exit code 1 if a person must act. Asking the model sends one request that is not billed."""
    if arguments.live:
        return await live(settings, arguments)
    running = await probe(settings)
    # An unsupported Python is reported where the package is imported: it cannot read this file.
    findings = [Finding("python", ok=True, words=".".join(map(str, sys.version_info[:3]))), _sqlite(), *_agent()]
    findings += [_workspace(settings), _databases(settings), _token(settings), _sandbox(settings, running)]
    meaning = meaning_state(settings)
    findings.append(Finding("meaning", ok=not meaning.startswith("off: "), words=meaning))
    findings.append(Finding("sprite", ok=not running.trouble, words=running.words))
    # Slow work is not a failure: an update of the sprite does not have to wait for a person.
    findings += [Finding("under way", ok=True, words=words) for words in running.slow]
    if running.paused:
        findings.append(Finding("paused", ok=True, words=running.paused))
    findings.append(_rules(settings))
    findings += [Finding("set aside", ok=True, words=words) for words in set_aside(settings.memory)]
    if settings.transcript_db.exists() and all(finding.ok for finding in findings if finding.name == "databases"):
        findings += await _memory(settings)
    if not arguments.without_model and not running.trouble:
        findings.append(await _model(settings))
    is_well = all(finding.ok for finding in findings)
    lines = [f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name:<12} {finding.words}" for finding in findings]
    lines.append("All is well." if is_well else "Something has to be done: see the lines marked FAIL.")
    show(arguments, [{"check": f.name, "ok": f.ok, "detail": f.words} for f in findings], lines)
    return 0 if is_well else 1


def _sqlite() -> Finding:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        return Finding("sqlite", ok=False, words=f"{sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize = 'porter unicode61')")
    except sqlite3.OperationalError as error:
        return Finding("sqlite", ok=False, words=f"FTS5 is missing ({error}); use a Python whose SQLite has it")
    finally:
        connection.close()
    return Finding("sqlite", ok=True, words=f"{sqlite3.sqlite_version} with FTS5")


def _agent() -> list[Finding]:
    try:
        sdk = importlib.metadata.distribution("claude-agent-sdk")
    except importlib.metadata.PackageNotFoundError:
        return [Finding("agent sdk", ok=False, words="not installed; pip install -r sprite/requirements.txt")]
    found = Finding("agent sdk", ok=True, words=f"claude-agent-sdk {sdk.version}")
    if not os.access(str(sdk.locate_file("claude_agent_sdk/_bundled/claude")), os.X_OK):
        words = "the SDK came without its CLI; install it for this platform"
        return [found, Finding("agent cli", ok=False, words=words)]
    return [found, Finding("agent cli", ok=True, words="bundled with the SDK")]


def _workspace(settings: Settings) -> Finding:
    folder = next(path for path in (settings.system, *settings.system.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = "mount it writable" if error.errno == errno.EROFS else "fix its owner"
        return Finding("workspace", ok=False, words=f"{folder} cannot be written to ({error.strerror}); {remedy}")
    return Finding("workspace", ok=True, words=f"{settings.workspace} can be written to")


def _databases(settings: Settings) -> Finding:
    found = []
    for path in (settings.transcript_db, settings.memory_db, settings.workspace_db):
        if not path.exists():
            continue
        try:
            problem = _integrity(path)
        except sqlite3.OperationalError as error:
            words = f"{path.name} cannot be opened ({error}): its disk is full, read-only, or somebody else's"
            return Finding("databases", ok=False, words=words)
        if problem != "ok":
            remedy = "run rebuild" if path == settings.memory_db else "restore it from a backup"
            return Finding("databases", ok=False, words=f"{path.name} is damaged ({problem}); {remedy}")
        found.append(path.name)
    return Finding("databases", ok=True, words=", ".join(found) or "none yet")


def _integrity(path: Path) -> str:
    """Return the problem of a file, or "ok". Raises OperationalError if the disk prevents the check.

    A check that takes longer than PROBE_SECONDS is stopped and counts as passed.
    """
    until = time.monotonic() + PROBE_SECONDS
    if not path.is_file():
        return "it is not a file"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            return str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        if time.monotonic() > until:
            return "ok"
        raise
    except sqlite3.DatabaseError as error:
        return str(error)


def _token(settings: Settings) -> Finding:
    path = settings.token_file
    if settings.token:
        return Finding("token", ok=True, words="from SPRITE_TOKEN")
    if not path.exists():
        return Finding("token", ok=True, words="will be created at the first start")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Finding("token", ok=False, words=f"{path} can be read by others (mode {mode:o}); chmod 600 it")
    return Finding("token", ok=True, words="readable by its owner only")


def _rules(settings: Settings) -> Finding:
    edited = MemoryFiles(settings.memory).edited()
    if not edited:
        return Finding("agent rules", ok=True, words="soul.md and os.md are the ones that came with Sprite")
    are = "was changed by hand and stays" if len(edited) == 1 else "were changed by hand and stay"
    words = f"{' and '.join(edited)} {are} as changed; delete a file to get this version's text"
    return Finding("agent rules", ok=True, words=words)


def _sandbox(settings: Settings, running: Probed) -> Finding:
    """Check the sandbox by trying to break out of it, in a trial workspace if this one was never started."""
    with tempfile.TemporaryDirectory() as folder:
        if not settings.run.is_dir():
            settings = replace(settings, workspace=Path(folder))
            make_folders(settings)
        found = find_boundary(settings, PROBE_SECONDS, is_proof=True)
    words = found.words + ("; tried to: " + ", ".join(attempts({})) if found.holds else "")
    if running.sandbox not in {None, found.words}:
        words = f"{running.sandbox} (reported by the running sprite; a test here reports: {words})"
    return Finding("sandbox", ok=True, words=words)


async def _memory(settings: Settings) -> list[Finding]:
    """Check memory, its files and quarantined turns, and what the replica lacks or still has to forget."""
    try:
        health, _, shipped = await _looked_at(settings)
    except MigrationPendingError as error:
        # An update of the sprite, which starts it, does not have to wait for it.
        return [Finding("memory", ok=True, words=str(error))]
    except SpriteError as error:
        return [Finding("memory", ok=False, words=str(error))]
    findings = [Finding("memory", ok=False, words=words) for words in health.attention]
    files = "as memory has them, or as edited by you"
    if changed := [what_happened(drifted.name) for drifted in health.drift]:
        # Nothing is broken, and an update of the sprite does not have to wait for it.
        files = f"{', '.join(changed)}; `memory drift` shows how, and what to do"
    findings.append(Finding("memory files", ok=True, words=files))
    curation = "no turn is set aside"
    if health.quarantined:
        oldest = health.quarantined[0]
        curation = (
            f"{counted(len(health.quarantined), 'turn')} set aside, the oldest turn {oldest.turn_id} "
            f"({oldest.reason}); `python -m sprite memory retry {oldest.turn_id}` learns from it again"
        )
    findings.append(Finding("curation", ok=not health.quarantined, words=curation))
    if shipped is not None and shipped.followed:
        findings += [Finding("copy", ok=True, words=words) for words in shipped.words()]
    return findings


async def _model(settings: Settings) -> Finding:
    """Check the model through a running sprite if there is one: this shell may lack its key and address."""
    try:
        if (running := await ask_briefly(settings, System("check_model"), Status)) is not None:
            words = f"{running.model_words} (asked by the running sprite)"
            return Finding("model", ok=running.model_answers is True, words=words)
        return Finding("model", ok=True, words=await check_model(settings))
    except SpriteError as error:
        return Finding("model", ok=False, words=str(error))
