"""`status`: show at a glance whether memory is well."""

from __future__ import annotations

import msgspec

from sprite.backup.replica_files import ShippingReport, shipping_report
from sprite.cli.output import day_and_time, dollars, say, say_json
from sprite.config import Settings
from sprite.log.curations import what_happened
from sprite.memory.files import set_aside
from sprite.memory.folders import last_error
from sprite.owner import PROBE_SECONDS, open_stores, probe
from sprite.protocol.shapes import Health
from sprite.sandbox.sandbox import find_boundary
from sprite.workspace.database import read_workspace

GAUGE_CELLS = 20
#: The label of a report by its kind; any other is a refusal.
_KINDS = {"over_limit": "over limit", "lines_kept": "kept", "edit_missed": "missed"}


async def status(settings: Settings, *, as_json: bool) -> int:
    """Print sessions, turns, learnings, files, spend and the last error."""
    running = await probe(settings)
    shipped: ShippingReport | None = None
    async with open_stores(settings) as stores:
        if settings.workspace_db.exists():
            async with read_workspace(settings.workspace_db) as workspace:
                shipped = await shipping_report(stores.transcript, workspace)
        health = await stores.view.health(daily_cap_usd=settings.daily_usd, last_error=last_error(settings.run))
    aside, sandbox = set_aside(settings.memory), find_boundary(settings, PROBE_SECONDS).words
    if as_json:
        facts: dict[str, object] = {
            "workspace": str(settings.workspace),
            "running": running.address,
            "trouble": running.trouble,
        }
        facts |= {"slow": running.slow, "paused": running.paused, "set_aside": aside, "sandbox": sandbox}
        say_json({**facts, **msgspec.to_builtins(health), "shipping": msgspec.to_builtins(shipped)})
    else:
        is_well = not (health.attention or health.quarantined or health.drift or running.trouble)
        say(f"Memory of {settings.workspace}: {'well' if is_well else 'needs attention'}")
        say(f"  sprite      {running.words}")
        for words in running.slow:
            say(f"              {words}")
        if running.paused:
            say(f"  paused      {running.paused}")
        say(f"  sandbox     {sandbox}")
        _print(health)
        if shipped is not None and shipped.followed:
            _print_shipping(shipped)
        for words in aside:
            say(f"  kept aside  {words}")
    return 0


def _print(health: Health) -> None:
    say(f"  sessions    {health.sessions}")
    aside = f", {len(health.quarantined)} set aside" if health.quarantined else ""
    waiting = f", {health.waiting} waiting to be curated" if health.waiting else "" if aside else ", all curated"
    say(f"  turns       {health.turns}{waiting if health.turns else ''}{aside}")
    for turn in health.quarantined:
        say(f"  set aside   turn {turn.turn_id}, {day_and_time(turn.at)}: {turn.reason}")
        say(f"              it stays in the log and in the search; `memory retry {turn.turn_id}` curates it again")
    say(f"  learnings   {health.learnings}, {health.open_actions} open action(s)")
    say(f"  curations   {health.curations}, the last {day_and_time(health.last_curation_at)}")
    say("  files")
    for file in health.files:
        filled = min(GAUGE_CELLS, round(GAUGE_CELLS * file.lines / file.limit))
        gauge = "█" * filled + "·" * (GAUGE_CELLS - filled)
        say(f"    {file.name:<11} {gauge} {file.lines:>3} of {file.limit} lines")
    _print_spend(health)
    if health.unverified:
        say(f"  unverified  {health.unverified} learning(s) whose evidence is not in the turn they name")
    for drifted in health.drift:
        found = day_and_time(drifted.at)
        say(f"  drift       {what_happened(drifted.name, drifted.source)} ({found}): see `memory drift`")
    for refusal in health.refusals:
        kind = _KINDS.get(refusal.kind, "refused")
        say(f"  {kind:<11} curation {refusal.curation_id}: {'; '.join(refusal.detail.splitlines())}")
    for words in health.attention:
        say(f"  attention   {words}")
    say(f"  last error  {health.last_error or 'none'}")


def _print_shipping(shipped: ShippingReport) -> None:
    waiting = f"{shipped.waiting} row(s) wait for the bridge" if shipped.waiting else "the bridge has everything"
    say(f"  copy        {waiting}, heard of it {day_and_time(shipped.acked_at)}")
    for words in shipped.words():
        say(f"              {words}")


def _print_spend(health: Health) -> None:
    per_100 = health.usd_per_100_turns
    say(
        f"  spend       {dollars(health.spend_today_usd)} today, {dollars(health.spend_usd)} in all"
        + (f", {dollars(per_100)} per 100 turns" if per_100 is not None else "")
    )
    if health.calls_of_unknown_price:
        say(f"              and {health.calls_of_unknown_price} call(s) to a model whose price is not known")
    if health.lost_calls:
        say(f"              {health.lost_calls} call(s) gave no usable answer: {dollars(health.lost_usd)} of it")
    if health.tokens_read:
        say(f"              {health.tokens_read:,} tokens read, {health.tokens_written:,} written")
    if health.daily_cap_usd is not None:
        say(f"              capped at {dollars(health.daily_cap_usd)} a day")
    if health.spend_usd:
        for day in health.spend_by_day:
            say(f"    {day.day}   {dollars(day.usd):>10}  {day.calls} call(s)")
        for session in health.spend_by_session:
            started, cost = day_and_time(session.started_at), dollars(session.usd)
            say(f"    session {session.session_id[:8]}, {started}  {session.turns} turn(s)  {cost}")
