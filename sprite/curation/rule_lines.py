"""Rules that the curator proposes: `RULE [t31] stop when command "git commit" ...: reason | "quote"`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sprite.curation.answer_files import read_line
from sprite.curation.provenance.evidence import Turns, flaw
from sprite.curation.verifier import Item, Rulings
from sprite.errors import PeerError
from sprite.memory import decision as effects
from sprite.memory.apply import NewLearning
from sprite.rules.condition import parse, shown

#: Rules that one answer may propose: each is checked against the whole log.
MOST_PROPOSED = 5


def propose(
    rules: Sequence[str],
    draft: effects.Fold,
    turns: Turns,
    rulings: Rulings,
    taught: Mapping[int, NewLearning],
    zone: str,
) -> None:
    """Take over the rules of an answer that the person's own words carry. They are offered, and hold nothing yet."""
    for text in rules[:MOST_PROPOSED]:
        line = read_line(text)
        try:
            proposed = parse(line.text)
        except PeerError as error:
            draft.refuse("rule_refused", f"{error} {line.text}", line.turn_id)
            continue
        evidence = turns.find(line.turn_id, line.quote)
        if evidence is None or (evidence.voice.kind, evidence.voice.origin) != ("person", "user"):
            draft.refuse("rule_refused", f"the user did not say it: {line.text}", line.turn_id)
            continue
        turn = evidence.turn.logged.id
        if not rulings.keeps(turn):
            continue
        item = Item("preference", proposed.reason, turn, evidence.quote)
        why = flaw(proposed.reason, evidence, turns, zone, item.kind.upper())
        if (why := why or rulings.objection(item, "the user's messages do not say it")) is not None:
            draft.refuse("rule_refused", f"{why}: {line.text}", turn)
            continue
        of_turn = [new for new in taught.values() if new.turn == turn and new.origin == "user"]
        near = next((new for new in of_turn if new.quote == evidence.quote), of_turn[0] if of_turn else None)
        rule = f"{shown(proposed.condition, proposed.action)}: {proposed.reason}"
        draft.put(effects.Proposed(rule, turn, evidence.quote, near.number if near else None))
