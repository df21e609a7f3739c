"""The person's rules about tool calls: offer them with past calls, check each call, and apply their word.

Only a person's message activates a rule. A call is checked in memory; the log is written when a rule is about one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo

from sprite.agent.permissions import Call, DeniedError, PermissionBroker, deeds_of
from sprite.common.recurrence import DEFAULT_ZONE
from sprite.errors import PeerError, SpriteError
from sprite.forget.plan import all_rows
from sprite.log.transcript import Observation, TranscriptDB
from sprite.memory.action_rows import Known
from sprite.memory.database import MemoryDB
from sprite.memory.decision import Change
from sprite.memory.projection import Projection
from sprite.memory.rule_rows import Applied, Offer, Said, all_rules
from sprite.protocol.messages import RuleApplied, RuleOffered, RuleWord
from sprite.protocol.shapes import RuleExample, RuleRow
from sprite.rules import condition as language
from sprite.rules.check import Book, Facts, Match, Rule, UncertainError
from sprite.rules.condition import Values
from sprite.workspace.feed import Feed

if TYPE_CHECKING:
    from sprite.agent.memory_events import MemoryEvents

log = logging.getLogger(__name__)

#: More rules would be more than a person oversees, and than a call is checked against in 0.1 ms.
MOST_RULES = 200
MOST_EXAMPLES = 6
_EXAMPLE_CHARS = 300
_NEXT = {"accept": "offered", "dismiss": "offered", "retire": "active", "override": "active"}
_Did = Literal["stopped", "allowed", "denied", "passed"]


class RuleDesk:
    """Hold the rules of one sprite."""

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
        self._zone = DEFAULT_ZONE
        #: The call that each rule stopped last, and the calls that may run once.
        self._stopped: dict[int, str] = {}
        self._passes: dict[int, str] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no rule is active."""
        return not len(self._book)

    async def load(self) -> None:
        """Read the rules and the person's time zone again."""
        rules = await all_rules(self._memory)
        self._zone = await self._memory.zone() or DEFAULT_ZONE
        self._rows = {row.id: row for row, _ in rules}
        self._book = Book([(row.id, condition, row.action) for row, condition in rules if row.status == "active"])

    # --- at work ---

    async def refusal(self, call: Call, mission_id: str | None, *, of_background: bool, waits: bool) -> str | None:
        """Return why a call may not run, as text for the agent, or None. A rule that asks waits for the person.

        `waits`: a question stays open without a client, since a schedule began the turn.
        """
        now = datetime.now(ZoneInfo(self._zone))
        facts = Facts(call.tool, call.input, None if call.cwd is None else str(call.cwd), now)
        is_asked = False
        for match in self._book.find(facts):
            row = self._rows[match.rule]
            if row.action == "stop" and match.is_certain:
                if (said := await self._stop(row, call, mission_id)) is not None:
                    return said
            elif not is_asked:
                is_asked = True
                try:
                    words = _words(row, match, self._zone)
                    await self.desk.ask(mission_id, call, of_background=of_background, is_unattended=waits, rule=words)
                except DeniedError as denied:
                    said = f"{words} {denied}"
                    await self._applied(row, call, mission_id, "denied", said)
                    return said
                await self._applied(row, call, mission_id, "allowed", words)
        return None

    async def _stop(self, row: RuleRow, call: Call, mission_id: str | None) -> str | None:
        key, words = _key(call), _words(row, Match(row.id), self._zone)
        if self._passes.get(row.id) == key:
            del self._passes[row.id]
            await self._applied(row, call, mission_id, "passed", f"You let it run once. {words}")
            return None
        self._stopped[row.id] = key
        await self._applied(row, call, mission_id, "stopped", words)
        words = words.replace("your rule", "the person's rule", 1)
        return f"{words} Do not look for a way around it. The person can let this call run once."

    async def _applied(self, row: RuleRow, call: Call, mission_id: str | None, did: _Did, said: str) -> None:
        self._feed.publish(RuleApplied(row.id, mission_id, call.tool_use_id, call.tool, did, said))
        try:
            await self._log(Applied(row.id, did, mission_id, call.tool_use_id))
        except SpriteError as error:
            # The rule holds on a full disk, too.
            log.warning("a rule's use was not logged: %s", error)

    # --- the person's word ---

    async def answer(self, number: int | None, word: RuleWord) -> None:
        """Apply a person's word on a rule. PeerError if there is no such rule, or it has changed."""
        row = self._rows.get(number or 0)
        if row is None:
            raise PeerError(f"There is no rule {number}.", code="not_found")
        if row.status != _NEXT[word]:
            raise PeerError(f"This rule is {row.status}.", code="conflict")
        if word == "accept" and self._is_full(but=row.instead_of):
            raise PeerError(f"There are {MOST_RULES} rules. Retire one first.", code="too_many")
        if word == "override":
            if row.id not in self._stopped:
                raise PeerError("It has stopped no call since Sprite started.", code="not_found")
            self._passes[row.id] = self._stopped.pop(row.id)
        await self._log(Said(row.id, word))
        self._feed.publish(RuleOffered(self._rows[row.id]))

    async def propose(self, text: str, instead_of: int | None = None) -> None:
        """Offer a rule that a person wrote, with the past calls that it is about. PeerError if it is none."""
        rule = language.parse(text)
        if instead_of is not None and instead_of not in self._rows:
            raise PeerError(f"There is no rule {instead_of}.", code="not_found")
        if any(row.status in {"offered", "active"} for row in self._like(rule)):
            raise PeerError("There is this rule already.", code="conflict")
        await self._offer(Offer(rule.condition, rule.action, rule.reason, "person", instead_of=instead_of))

    async def heard(self, change: Change) -> None:
        """Offer the rules that the curator proposes, each once."""
        for each in change.proposed:
            rule = language.parse(each.rule)
            if self._like(rule):
                continue
            offer = Offer(rule.condition, rule.action, rule.reason, "curator", each.turn, each.quote)
            learning = None if each.learning is None else await self._memory.learning(each.learning)
            if learning is not None:
                offer.learning, offer.of = learning.id, Known(learning.content, learning.source_observation_id)
                offer.instead_of = await self._memory.rule_before(learning.id)
            await self._offer(offer)

    async def _offer(self, offer: Offer) -> None:
        await review(offer, self._transcript, self._zone)
        number = await self._log(offer)
        self._feed.publish(RuleOffered(self._rows[number]))

    def _like(self, rule: language.Proposed) -> list[RuleRow]:
        words = language.shown(rule.condition, rule.action)
        return [row for row in self._rows.values() if row.words == words]

    def _is_full(self, but: int | None) -> bool:
        return sum(row.status == "active" and row.id != but for row in self._rows.values()) >= MOST_RULES

    async def _log(self, record: Offer | Said | Applied) -> int:
        number, changes = await self._projection.log_rule(record)
        await self.load()
        for change in changes:
            self._announce(change)
        return number


async def open_rules(
    desk: PermissionBroker,
    transcript: TranscriptDB,
    memory: MemoryDB,
    projection: Projection,
    feed: Feed,
    announce: MemoryEvents,
) -> RuleDesk:
    """Return the rules of a sprite. They offer what the curator proposes from now on."""
    rules = RuleDesk(transcript, memory, projection, feed, desk, announce)
    await rules.load()
    announce.when_rules_are_proposed(rules.heard)
    return rules


def _key(call: Call) -> str:
    return json.dumps([call.tool, deeds_of(call), str(call.cwd)], sort_keys=True, default=str)


def _words(row: RuleRow, match: Match, zone: str) -> str:
    """Return which rule is about a call, for the person and the agent."""
    day = datetime.fromtimestamp(row.accepted_at or row.created_at, ZoneInfo(zone))
    did = "Stopped by" if row.action == "stop" and match.is_certain else "Asked because of"
    doubt = "" if match.is_certain else " It cannot be told whether this call is meant."
    return f"{did} your rule of {day.day} {day:%B}: {row.reason or row.words}{doubt}"


# --- the check against the log ---


async def review(offer: Offer, transcript: TranscriptDB, zone: str) -> None:
    """Check a rule against every call in the log; the newest calls that it is about become its examples."""
    rule, offer.examples = Rule(offer.condition), []
    async for turn in all_rows(transcript.observations_after):
        for call in turn.tool_calls:
            if not isinstance(call, dict) or not isinstance(call.get("input"), dict):
                continue
            offer.checked += 1
            name, tool_input = str(call.get("name", "")), call["input"]
            facts = Facts(name, tool_input, None, datetime.fromtimestamp(turn.timestamp, ZoneInfo(zone)), is_past=True)
            is_certain = True
            try:
                if not rule.is_about(facts):
                    continue
            except UncertainError:
                is_certain = False
            asked = _asked_for(offer.condition.given, turn)
            offer.stops, offer.asked = offer.stops + 1, offer.asked + asked
            shown = dict(_shown(tool_input))
            offer.examples.append(RuleExample(turn.id, turn.timestamp, name, shown, asked, is_certain))
            del offer.examples[:-MOST_EXAMPLES]


def _asked_for(given: Values, turn: Observation) -> bool:
    """Return whether the person's message names what the condition is about."""
    if turn.trigger != "user":
        return False
    message = turn.user_message.casefold()
    named = [word for pattern in given.get("command", ()) for word in pattern.split()[1:] or [pattern]]
    named += [value.strip("*/").rpartition("/")[2] for key in ("path", "host") for value in given.get(key, ())]
    named += [value.rpartition("__")[2] for value in given.get("tool", ()) if "path" not in given]
    return any(word.casefold() in message for word in named if word.strip(".*-"))


def _shown(tool_input: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in list(tool_input.items())[:4]:
        if isinstance(value, str):
            yield name, value[:_EXAMPLE_CHARS]
