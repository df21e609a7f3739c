"""`doctor --live`: ask the configured verifier about 40 fixed lines, and count its wrong answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files as resources

import msgspec

from sprite.cli.output import dollars, say, say_json
from sprite.common.prices import Usage, price_of
from sprite.config import Settings
from sprite.curation.model import VERDICT_TOKENS, Answer, Asked, CuratorModel
from sprite.curation.provenance.evidence import Turns
from sprite.curation.verifier import Item, Request, build_request, read_answer
from sprite.log.transcript import Observation

#: Lines in one call: as many as a batch usually asks about.
LINES_PER_CALL = 10
#: A model with more wrong answers does not protect memory (or refuses too much of what the person says).
MOST_ACCEPTED, MOST_REFUSED = 2, 4
#: The moment of the fixed messages: Monday, 2026-11-23.
_AT = 1_795_424_400.0
_CHARS_PER_TOKEN = 4


class Line(msgspec.Struct, frozen=True):
    """A message of a person, a proposed line, and whether the message `said` it."""

    language: str
    kind: str
    message: str
    line: str
    said: bool
    old: str = ""


@cache
def fixed_lines() -> list[Line]:
    """Return the lines shipped in `prompts/verifier_lines.json`: 20 that the person said and 20 that they did not."""
    shipped = resources("sprite.curation").joinpath("prompts/verifier_lines.json").read_bytes()
    return msgspec.json.decode(shipped, type=list[Line])


async def live(settings: Settings, *, as_json: bool) -> int:
    """Ask about all lines, and print the figures and the cost. Exit code 1 if too many answers are wrong.

    ModelError if the model does not answer. The calls are not in the log, so `status` does not count their cost.
    """
    lines = fixed_lines()
    calls = list(_calls(lines))
    name = "the offline model" if settings.is_offline else settings.curator_model
    estimate = None if settings.is_offline else _estimate(name, [request for _, request in calls])
    if not as_json:
        price = "free" if settings.is_offline else "at an unknown price" if estimate is None else dollars(estimate)
        say(f"Asking {name} about {len(lines)} fixed lines in {len(calls)} calls: about {price}.")
    wrong: list[tuple[Line, str]] = []
    costs: list[float | None] = []
    model = CuratorModel(settings, _not_logged)
    try:
        for asked, request in calls:
            answer = await model.verify(request, Asked(1, len(asked), 0))
            costs.append(answer.cost_usd)
            rulings = read_answer(answer.text, request.lines)
            wrong += [
                (line, ruling.verdict)
                for line, ruling in zip(asked, rulings, strict=True)
                if (ruling.verdict == "yes") != line.said
            ]
    finally:
        await model.close()
    accepted = sum(not line.said for line, _ in wrong)
    refused = len(wrong) - accepted
    cost = None if None in costs else sum(each for each in costs if each is not None)
    if as_json:
        figures = {"model": name, "offline": settings.is_offline, "lines": len(lines), "accepted": accepted}
        wrongs = [{**msgspec.to_builtins(line), "verdict": verdict} for line, verdict in wrong]
        say_json({**figures, "refused": refused, "estimate_usd": estimate, "cost_usd": cost, "wrong": wrongs})
    else:
        _print(lines, wrong, accepted, refused)
        paid = "an unknown price" if cost is None else dollars(cost)
        say(f"Cost: {'nothing' if settings.is_offline else paid}.")
    return 0 if accepted <= MOST_ACCEPTED and refused <= MOST_REFUSED else 1


def _print(lines: Sequence[Line], wrong: Sequence[tuple[Line, str]], accepted: int, refused: int) -> None:
    honest = sum(line.said for line in lines)
    for line, verdict in wrong:
        told = "the person said it" if line.said else "the person did not say it"
        say(f"wrong  {verdict:<6} ({told}, {line.language}) {line.kind}: {line.line}")
    others = len(lines) - honest
    say(f"Lines that the person said:         {honest - refused} of {honest} right ({MOST_REFUSED} may be wrong)")
    say(f"Lines that the person did not say:  {others - accepted} of {others} right ({MOST_ACCEPTED} may be wrong)")
    if accepted > MOST_ACCEPTED or refused > MOST_REFUSED:
        say("This model is not fit to verify memory: set SPRITE_CURATOR_MODEL to another one.")


def _calls(lines: Sequence[Line]) -> Iterator[tuple[list[Line], Request]]:
    number = -(-len(lines) // LINES_PER_CALL)
    for first in range(number):
        asked = list(lines[first::number])
        # Each message has a session of its own, so none explains another.
        turns = Turns([_turn(turn, line.message) for turn, line in enumerate(asked, 1)], [])
        items = [Item(line.kind, line.line, turn, line.message, line.old) for turn, line in enumerate(asked, 1)]
        yield asked, build_request(items, turns, "UTC")


def _turn(number: int, message: str) -> Observation:
    return Observation(number, _AT, f"live-{number}", 1, message, [], "", 0, "complete", None, "user", "")


def _estimate(model: str, requests: Sequence[Request]) -> float | None:
    price = price_of(model)
    read = sum(len(request.system) + len(request.user) for request in requests) // _CHARS_PER_TOKEN
    written = sum(VERDICT_TOKENS // 4 * len(request.lines) for request in requests)
    return None if price is None else price.tokens_usd(Usage(input=read, output=written))


async def _not_logged(_answer: Answer, _reason: str, _asked: Asked | None) -> int:
    return 0
