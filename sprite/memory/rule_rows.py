"""Rows of kind `rule` in the log: their JSON, and the table that they make."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sprite.log.curations import Curation
from sprite.memory.decision import Projected
from sprite.memory.words import FORGOTTEN
from sprite.protocol.messages import RuleOutcome, RuleWord
from sprite.protocol.shapes import RuleRow
from sprite.rules.condition import parse

if TYPE_CHECKING:
    from sprite.memory.database import MemoryDB


class Offer(Struct, tag_field="op", tag="offer", omit_defaults=True):
    """The log's row of a proposed rule, about which a person decides. The rule's number is the row's id."""

    rule: RuleRow


class Event(Struct, tag_field="op", tag="event", omit_defaults=True):
    """A person's decision on a rule, or the fate of a call that it matched; `passed`: the person let it run."""

    rule: int
    what: RuleWord | RuleOutcome
    mission: str | None = None
    tool_use_id: str | None = None


Record = Offer | Event
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_STATUS = {"accept": "active", "dismiss": "dismissed", "retire": "retired"}


def read_rule(response: str) -> Record:
    """Parse a logged event of a rule. Raise ValueError if it is invalid."""
    return _DECODER.decode(response)


def fold_rule(tx: Projected, curation: Curation) -> None:
    """Apply one logged row about a rule to the table of rules. Raise ValueError if the row is damaged."""
    if FORGOTTEN in curation.response:
        return
    record = read_rule(curation.response)
    if isinstance(record, Event):
        found = tx.tx.execute("SELECT row_json FROM rules WHERE id = ?", (record.rule,)).fetchone()
        if found is not None:
            _happened(tx, msgspec.json.decode(found[0], type=RuleRow), record, curation.created_at)
        return
    rule, read = record.rule, parse(record.rule.words)
    rule.id = curation.id
    learning, rule.instead_of = _source(tx, rule)
    condition = msgspec.json.encode({"when": read.given, "not": read.unless}).decode()
    columns = (
        *(rule.id, curation.created_at, condition, rule.action, rule.reason, learning, rule.status),
        msgspec.json.encode(rule).decode(),
    )
    tx.tx.execute("INSERT INTO rules VALUES (?, ?, ?, ?, ?, ?, ?, ?)", columns)


def _source(tx: Projected, rule: RuleRow) -> tuple[int | None, int | None]:
    """Return (the learning with the same evidence as a rule, the active rule that the rule replaces)."""
    learning = tx.tx.execute(
        "SELECT id FROM learnings WHERE source_observation_id = ? AND origin = 'user' "
        "ORDER BY evidence = ? DESC, id LIMIT 1",
        (rule.turn, rule.quote),
    ).fetchone()
    if learning is None:
        return None, rule.instead_of
    (before,) = tx.tx.execute(
        "SELECT max(r.id) FROM rules r JOIN learnings l ON l.id = r.source_learning_id "
        "WHERE r.status = 'active' AND l.superseded_by = ?",
        learning,
    ).fetchone()
    return learning[0], before


def _happened(tx: Projected, rule: RuleRow, event: Event, at: float) -> None:
    match event.what:
        case "accept" | "dismiss" | "retire":
            rule.status, rule.overrides = _STATUS[event.what], 0
        case "override":
            rule.overrides += 1
        case _:
            rule.uses, rule.used_at = rule.uses + 1, at
            # The stop before this one was not overridden.
            if rule.last == event.what == "stopped":
                rule.overrides = 0
    rule.last = event.what
    if event.what == "accept":
        rule.accepted_at = at
        tx.tx.execute(
            "UPDATE rules SET status = 'retired', row_json = json_set(row_json, '$.status', 'retired') "
            "WHERE id = ? AND status = 'active'",
            (rule.instead_of,),
        )
    columns = (rule.status, msgspec.json.encode(rule).decode(), rule.id)
    tx.tx.execute("UPDATE rules SET status = ?, row_json = ? WHERE id = ?", columns)


UNUSED_SECONDS = 90 * 86_400.0
#: After this many overrides in a row, the person is asked whether to retire the rule.
OVERRIDES = 2


async def all_rules(memory: MemoryDB) -> list[RuleRow]:
    """Return every rule, the oldest first."""
    rules = [msgspec.json.decode(row[0], type=RuleRow) for row in await memory.rules()]
    for rule in rules:
        if rule.status == "active" and rule.overrides >= OVERRIDES:
            rule.doubt = f"You let it pass {rule.overrides} times in a row."
        elif rule.status == "active" and max(rule.accepted_at or 0, rule.used_at or 0) + UNUSED_SECONDS < time.time():
            rule.doubt = "It has not been needed for 90 days."
    return rules
