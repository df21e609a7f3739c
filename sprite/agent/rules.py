"""The person's rules about tool calls: offer each rule with past calls that match it, and check each new call.

Only a person's message activates a rule. Calls are checked in memory; the log is written only when a rule matches.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from sprite.agent.permissions import Call, DeniedError, PermissionBroker, deeds_of
from sprite.common.recurrence import DEFAULT_ZONE
from sprite.errors import PeerError, SpriteError
from sprite.forget.plan import all_rows
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import MemoryDB
from sprite.memory.decision import Change
from sprite.memory.projection import Projection
from sprite.memory.rule_rows import Event, Offer, Record, all_rules
from sprite.protocol.messages import RuleApplied, RuleOffered, RuleOutcome, RuleWord
from sprite.protocol.shapes import RuleExample, RuleRow
from sprite.rules.check import Book, Facts, Match
from sprite.rules.condition import parse, shown
from sprite.workspace.feed import Feed

if TYPE_CHECKING:
    from sprite.agent.memory_events import MemoryEvents

log = logging.getLogger(__name__)

#: More rules would be more than a person oversees, and than a call is checked against in 0.1 ms.
MOST_RULES = 200
MOST_EXAMPLES = 6
_EXAMPLE_CHARS = 300
#: The status that a rule must have for each word.
_BEFORE = {"accept": "offered", "dismiss": "offered", "retire": "active", "override": "active"}


class RuleDesk:
    """Hold the rules of one sprite, once they are loaded."""

    def __init__(
        self,
        transcript: TranscriptDB,
        memory: MemoryDB,
        projection: Projection,
        feed: Feed,
        desk: PermissionBroker,
        announce: MemoryEvents,
    ) -> None:
        self._transcript = transcript
        self._memory = memory
        self._projection = projection
        self._feed = feed
        #: It asks the person, also for reasons other than rules.
        self.desk = desk
        self._announce = announce
        self._book = Book([])
        self._rows: dict[int, RuleRow] = {}
        self._zone = ZoneInfo(DEFAULT_ZONE)
        #: The call that each rule stopped last, and the calls that may run once.
        self._stopped: dict[int, str] = {}
        self._passes: dict[int, str] = {}
        announce.on_proposal = self.heard

    async def load(self) -> None:
        """Read the rules and the person's time zone again."""
        rules = await all_rules(self._memory)
        self._zone = ZoneInfo(await self._memory.zone() or DEFAULT_ZONE)
        self._rows = {rule.id: rule for rule in rules}
        self._book = Book([(rule.id, parse(rule.words)) for rule in rules if rule.status == "active"])

    async def refusal(self, call: Call, mission_id: str | None, *, of_background: bool, waits: bool) -> str | None:
        """Return the person's rule that forbids a call, as text for the agent, or None if the call may run.

        If the rule demands a question, wait for the answer. With `waits`, the question stays open without a client.
        """
        if not len(self._book):
            return None
        facts = Facts(call.tool, call.input, None if call.cwd is None else str(call.cwd), datetime.now(self._zone))
        key = json.dumps([call.tool, deeds_of(call), str(call.cwd)], sort_keys=True, default=str)
        for match in self._book.find(facts):
            number, words = match.rule, self._words(match)
            if not match.stops:
                # One question is enough, and all that stop come first.
                refusal = None
                try:
                    await self.desk.ask(mission_id, call, of_background=of_background, is_unattended=waits, rule=words)
                except DeniedError as denied:
                    refusal = f"{words} {denied}"
                await self._applied(number, call, mission_id, "denied" if refusal else "allowed", refusal or words)
                return refusal
            if self._passes.get(number) != key:
                self._stopped[number] = key
                await self._applied(number, call, mission_id, "stopped", words)
                words = words.replace("your rule", "the person's rule", 1)
                return f"{words} Do not look for a way around it. The person can let this call run once."
            del self._passes[number]
            words = words.replace("Stopped by", "You let it run once in spite of", 1)
            await self._applied(number, call, mission_id, "passed", words)
        return None

    def _words(self, match: Match) -> str:
        """Return the text that names the matching rule and its day, for the person and the agent."""
        rule = self._rows[match.rule]
        day = datetime.fromtimestamp(rule.accepted_at or 0, self._zone)
        did = "Stopped by" if match.stops else "Asked because of"
        doubt = "" if match.is_certain else " It cannot be told whether this call is meant."
        return f"{did} your rule of {day.day} {day:%B}: {rule.reason or rule.words}{doubt}"

    async def _applied(self, number: int, call: Call, mission_id: str | None, did: RuleOutcome, said: str) -> None:
        self._feed.publish(RuleApplied(number, mission_id, did, said))
        try:
            await self._log(Event(number, did, mission_id, call.tool_use_id))
        except SpriteError as error:
            # The rule holds on a full disk, too.
            log.warning("a rule's use was not logged: %s", error)

    async def answer(self, number: int | None, word: RuleWord) -> None:
        """Apply the person's word to a rule. PeerError if there is no such rule, or its status does not allow this."""
        rule = self._rows.get(number or 0)
        if rule is None:
            raise PeerError(f"There is no rule {number}.", code="not_found")
        if rule.status != _BEFORE[word]:
            raise PeerError(f"This rule is {rule.status}, so you cannot {word} it.", code="conflict")
        replaced = self._rows.get(rule.instead_of or 0)
        is_more = word == "accept" and (replaced is None or replaced.status != "active")
        if is_more and len(self._book) >= MOST_RULES:
            raise PeerError(f"There are {MOST_RULES} rules. Retire one first.", code="too_many")
        if word == "override":
            if rule.id not in self._stopped:
                raise PeerError(f"Rule {number} has stopped no call since Sprite started.", code="not_found")
            self._passes[rule.id] = self._stopped.pop(rule.id)
        await self._log(Event(rule.id, word))
        self._feed.publish(RuleOffered(self._rows[rule.id]))

    async def propose(self, text: str, instead_of: int | None = None) -> None:
        """Offer a rule that a person wrote, with past calls that match it. PeerError if the text is no valid rule."""
        if instead_of is not None and instead_of not in self._rows:
            raise PeerError(f"There is no rule {instead_of}.", code="not_found")
        new = row_of(text, instead_of=instead_of)
        if any(rule.status in {"offered", "active"} and rule.id != instead_of for rule in self._like(new)):
            raise PeerError("This rule exists already.", code="conflict")
        await self._offer(new)

    async def heard(self, change: Change) -> None:
        """Offer the rules that a curation proposed to the person, except those that are known."""
        for each in change.proposed:
            new = row_of(each.rule, each.turn, each.quote)
            if not self._like(new):
                await self._offer(new)

    async def _offer(self, rule: RuleRow) -> None:
        await review(rule, self._transcript, self._zone)
        number = await self._log(Offer(rule))
        self._feed.publish(RuleOffered(self._rows[number]))

    def _like(self, rule: RuleRow) -> list[RuleRow]:
        return [row for row in self._rows.values() if row.words == rule.words]

    async def _log(self, record: Record) -> int:
        number, changes = await self._projection.log_rule(record)
        await self.load()
        for change in changes:
            self._announce(change)
        return number


def row_of(text: str, turn: int | None = None, quote: str = "", instead_of: int | None = None) -> RuleRow:
    """Parse a rule of one line, and return it as a row. PeerError if the line is no valid rule."""
    rule = parse(text)
    said = (0, shown(rule), rule.action, rule.reason, turn, quote, instead_of)
    return RuleRow(*said, [], 0, 0, 0, "offered", None, None, 0, 0, last="", doubt="")


async def review(rule: RuleRow, transcript: TranscriptDB, zone: ZoneInfo) -> None:
    """Check a rule against every call in the log, and store the counts and the newest matching calls in it."""
    book = Book([(rule.id, parse(rule.words))])
    async for turn in all_rows(transcript.observations_after):
        for call in turn.tool_calls:
            if not isinstance(call, dict) or not isinstance(call.get("input"), dict):
                continue
            rule.checked += 1
            at, name, tool_input = turn.timestamp, str(call.get("name", "")), call["input"]
            for match in book.find(Facts(name, tool_input, None, datetime.fromtimestamp(at, zone))):
                asked = turn.trigger == "user" and book.names(turn.user_message)
                rule.stops, rule.asked = rule.stops + 1, rule.asked + asked
                strings = [(key, value) for key, value in tool_input.items() if isinstance(value, str)]
                shown_input = {key: value[:_EXAMPLE_CHARS] for key, value in strings[:4]}
                rule.examples.append(RuleExample(turn.id, at, name, shown_input, asked, match.is_certain))
                del rule.examples[:-MOST_EXAMPLES]
