"""`status`: shows at a glance whether memory is well."""

from __future__ import annotations

from typing import Any

from sprite.commands.output import day_and_time, dollars, say, say_json
from sprite.commands.stores import Stores, open_stores
from sprite.config import Settings
from sprite.memory.last_error import last_error

GAUGE_CELLS = 20


async def status(settings: Settings, *, as_json: bool) -> int:
    """Prints sessions, turns, learnings, files, spend and the last error."""
    async with open_stores(settings) as stores:
        facts = await _facts(settings, stores)
    if as_json:
        say_json(facts)
    else:
        _print(facts)
    return 0


async def _facts(settings: Settings, stores: Stores) -> dict[str, Any]:
    address = settings.run / "address"
    return {
        "workspace": str(settings.workspace),
        "running": address.read_text().strip() if address.exists() else None,
        **await stores.view.health(),
        "daily_cap_usd": settings.daily_usd,
        "last_error": last_error(settings.run),
    }


def _print(facts: dict[str, Any]) -> None:
    well = facts["last_error"] is None
    say(f"Memory of {facts['workspace']}: {'well' if well else 'needs attention'}")
    say(f"  sprite      {'running on ' + facts['running'] if facts['running'] else 'not running'}")
    say(f"  sessions    {facts['sessions']}")
    waiting = f", {facts['waiting']} waiting to be curated" if facts["waiting"] else ", all curated"
    say(f"  turns       {facts['turns']}{waiting if facts['turns'] else ''}")
    say(f"  learnings   {facts['learnings']}, {facts['open_actions']} open action(s)")
    say(f"  curations   {facts['curations']}, the last {day_and_time(facts['last_curation_at'])}")
    say("  files")
    for file in facts["files"]:
        filled = min(GAUGE_CELLS, round(GAUGE_CELLS * file["lines"] / file["limit"]))
        gauge = "█" * filled + "·" * (GAUGE_CELLS - filled)
        say(f"    {file['name']:<11} {gauge} {file['lines']:>3} of {file['limit']} lines")
    _print_spend(facts)
    if facts["unverified"]:
        say(f"  unverified  {facts['unverified']} learning(s) whose evidence is not in the turn they name")
    for refusal in facts["refusals"]:
        say(f"  refused     curation {refusal['curation_id']}: {refusal['detail']}")
    say(f"  last error  {facts['last_error'] or 'none'}")


def _print_spend(facts: dict[str, Any]) -> None:
    per_100 = facts["usd_per_100_turns"]
    say(
        f"  spend       {dollars(facts['spend_today_usd'])} today, {dollars(facts['spend_usd'])} in all"
        + (f", {dollars(per_100)} per 100 turns" if per_100 is not None else "")
    )
    if facts["calls_of_unknown_price"]:
        say(f"              and {facts['calls_of_unknown_price']} call(s) to a model whose price is not known")
    if facts["lost_calls"]:
        say(f"              {facts['lost_calls']} call(s) gave no usable answer: {dollars(facts['lost_usd'])} of it")
    if facts["tokens_read"]:
        say(f"              {facts['tokens_read']:,} tokens read, {facts['tokens_written']:,} written")
    if facts["daily_cap_usd"] is not None:
        say(f"              capped at {dollars(facts['daily_cap_usd'])} a day")
    if facts["spend_usd"]:
        for day in facts["spend_by_day"]:
            say(f"    {day['day']}   {dollars(day['usd']):>10}  {day['calls']} call(s)")
        for session in facts["spend_by_session"]:
            started, cost = day_and_time(session["started_at"]), dollars(session["usd"])
            say(f"    session {session['session_id'][:8]}, {started}  {session['turns']} turn(s)  {cost}")
