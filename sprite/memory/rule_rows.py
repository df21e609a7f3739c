"""Rows of kind `rule` in the log: their JSON, and the table that they make."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from sprite.log.curations import Curation
from sprite.memory.action_rows import Known, find_learning
from sprite.memory.apply import Projected
from sprite.memory.words import FORGOTTEN
from sprite.protocol.messages import RuleWord
from sprite.protocol.shapes import RuleExample, RuleRow
from sprite.rules.condition import Action, Condition, shown

if TYPE_CHECKING:
    from sprite.memory.database import MemoryDB


class RuleRecord(Struct, tag_field="op", omit_defaults=True):
    """One event of a rule, as logged."""


class Offer(RuleRecord, tag="offer"):
    """A rule to decide about; its number is the row's. `turn` and `quote` are its evidence.

    `of` is the learning that it comes from, by `learning`, its number. `instead_of` is the rule that it changes. The
    examples are its tests: `checked` calls of the log, of which it is about so many, and of these so many were asked
    for.
    """

    condition: Condition
    action: Action
    reason: str
    by: Literal["curator", "person"]
    turn: int | None = None
    quote: str = ""
    learning: int | None = None
    of: Known | None = None
    instead_of: int | None = None
    examples: list[RuleExample] = []
    checked: int = 0
    stops: int = 0
    asked: int = 0


class Said(RuleRecord, tag="said"):
    """A person's word on a rule."""

    rule: int
    word: RuleWord


class Applied(RuleRecord, tag="applied"):
    """A rule was about a call, and what became of it: `passed` is one that the person let run in spite of it."""

    rule: int
    did: Literal["stopped", "allowed", "denied", "passed"]
    mission: str | None = None
    tool_use_id: str | None = None


Record = Offer | Said | Applied
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_STATUS = {"accept": "active", "dismiss": "dismissed", "retire": "retired"}


def write_rule(record: Record) -> str:
    """Return the JSON of a logged event of a rule."""
    return msgspec.json.encode(record).decode()


def read_rule(response: str) -> Record:
    """Parse a logged event of a rule. Raise ValueError if it is invalid."""
    return _DECODER.decode(response)


def fold_rule(tx: Projected, curation: Curation) -> None:
    """Apply one event to the table. Raise ValueError if it is damaged."""
    if FORGOTTEN in curation.response:
        return
    record, at, sql = read_rule(curation.response), curation.created_at, tx.tx
    if isinstance(record, Offer):
        learning = None if record.of is None else find_learning(tx, record.learning or 0, record.of)
        sql.execute(
            "INSERT INTO rules (id, created_at, condition_json, action, reason, source_learning_id, offer_json) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(curation.id, at, msgspec.json.encode(record.condition).decode(), record.action, record.reason),
                *(learning.id if learning else None, curation.response),
            ),
        )
    elif isinstance(record, Applied):
        sql.execute(
            "UPDATE rules SET used_at = ?1, uses = uses + 1, overrides = CASE WHEN ?3 AND NOT is_overridden THEN 0 "
            "ELSE overrides END, is_overridden = CASE WHEN ?3 THEN 0 ELSE is_overridden END WHERE id = ?2",
            (at, record.rule, record.did == "stopped"),
        )
    elif record.word == "override":
        sql.execute("UPDATE rules SET overrides = overrides + 1, is_overridden = 1 WHERE id = ?", (record.rule,))
    else:
        sql.execute(
            "UPDATE rules SET status = ?1, accepted_at = CASE WHEN ?1 = 'active' THEN ?2 ELSE accepted_at END, "
            "overrides = 0, is_overridden = 1 WHERE id = ?3",
            (_STATUS[record.word], at, record.rule),
        )
        if record.word == "accept":
            sql.execute(
                "UPDATE rules SET status = 'retired' WHERE status = 'active' AND id = "
                "(SELECT json_extract(offer_json, '$.instead_of') FROM rules WHERE id = ?)",
                (record.rule,),
            )


UNUSED_SECONDS = 90 * 86_400.0
#: So many overrides in a row, and a rule is offered for retirement.
OVERRIDES = 2


async def all_rules(memory: MemoryDB) -> list[tuple[RuleRow, Condition]]:
    """Return every rule with its condition, the oldest first."""
    return [_rule(time.time(), *row) for row in await memory.rules()]


def _rule(
    now: float, number: int, created_at: float, condition: str, status: str, *rest: Any
) -> tuple[RuleRow, Condition]:
    offer, known = msgspec.json.decode(rest[0], type=Offer), msgspec.json.decode(condition, type=Condition)
    accepted_at, used_at, uses, overrides = rest[1:]
    doubt = ""
    if status == "active" and overrides >= OVERRIDES:
        doubt = f"You let it pass {overrides} times in a row."
    elif status == "active" and max(accepted_at, used_at or 0.0) + UNUSED_SECONDS < now:
        doubt = "It has not been needed for 90 days."
    row = RuleRow(
        *(number, created_at, shown(known, offer.action), offer.action, offer.reason, status, offer.by),
        *(offer.turn, offer.quote, offer.instead_of, offer.examples, offer.checked, offer.stops, offer.asked),
        *(accepted_at, used_at, uses, doubt),
    )
    return row, known
