"""Superseding, repeat counting, and required sources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from sprite.search.view import MemoryView
from tests.memory_stores import Stores, call, open_stores


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.projection.settle()
        yield opened


async def chain(stores: Stores) -> list[tuple[int, int | None]]:
    return [(row.id, row.superseded_by) for row in await stores.learnings()]


async def test_correction_supersedes_named_learnings_but_keeps_them(stores: Stores) -> None:
    await stores.learn('FACT [t] Reports are in EUR. | "in EUR"', "in EUR")
    await stores.learn('FACT [t] Invoices are in EUR. | "invoices too"', "invoices too, in EUR")
    await stores.learn('FACT [t] Ada likes cats. | "like cats"', "I like cats")
    await stores.learn('CORRECTION [t] supersedes L1, L2: All amounts are in SEK. | "all in SEK"', "no, all in SEK")
    assert await chain(stores) == [(1, 4), (2, 4), (3, None), (4, None)]
    view = MemoryView(stores.transcript, stores.memory, stores.files)
    hits = [hit for hit in (await view.search("amounts reports invoices EUR SEK")).hits if hit.kind == "learning"]
    assert next(hit.id for hit in hits) == 4, "the replacements rank first, however well the old ones match"
    assert {hit.id: hit.superseded_by for hit in hits} == {4: None, 1: 4, 2: 4}


async def test_superseded_learning_cannot_be_superseded_again(stores: Stores) -> None:
    await stores.learn('FACT [t] It is 5. | "5"', "5")
    await stores.learn('CORRECTION [t] supersedes L1: It is 6. | "6"', "6")
    await stores.learn('CORRECTION [t] supersedes L1, L2: It is 7. | "7"', "7")
    assert await chain(stores) == [(1, 2), (2, 3), (3, None)]


@pytest.mark.parametrize(
    ("turn", "done"),
    [
        ({"reply": "I have sent the report to Ilse."}, True),
        ({"user": "I sent the report to Ilse myself."}, True),
        ({"calls": [call("WebFetch", "The report was sent to Ilse.")]}, False),
        ({"calls": [call("Bash", "The report was sent to Ilse.")]}, False),
        ({"calls": [call("mcp__sprite__search_memory", "The report was sent to Ilse.")]}, False),
    ],
    ids=["agent", "person", "page", "tool", "memory"],
)
async def test_agent_may_complete_request_but_stranger_not(turn: dict[str, object], done: bool, stores: Stores) -> None:
    await stores.learn('ACTION [t] Mail Ilse about the numbers. | "mail Ilse"', "Please mail Ilse about the numbers")
    quote = next(iter(turn.values()))
    quote = quote[0]["result"] if isinstance(quote, list) else quote
    await stores.learn(f'FACT [t] supersedes L1: The report has been sent to Ilse. | "{quote}"', **turn)  # type: ignore[arg-type]
    (action,) = await stores.memory.actions()
    assert action.status == ("done" if done else "open")
    kinds = [kind for kind, _ in await stores.reports()]
    assert kinds.count("supersede_refused") == (not done)


async def test_agent_cannot_retract_persons_statement(stores: Stores) -> None:
    await stores.learn('PREFERENCE [t] Ada wants tables. | "I want tables"', "I want tables")
    await stores.learn('FACT [t] supersedes L1: Ada wants prose. | "you want prose"', "ok", "Noted, you want prose")
    assert (await chain(stores))[0] == (1, None)


async def test_repeats_are_counted_with_last_time(stores: Stores) -> None:
    """Both exact and near repeats are counted."""
    for words in ("The user's office is in Lund.", "User's office is in Lund", "the user's office is in Lund!"):
        await stores.learn(f'FACT [t] {words} | "office is in Lund"', "My office is in Lund")
    (learning,) = await stores.learnings()
    assert (learning.seen, learning.content) == (3, "The user's office is in Lund.")
    assert learning.last_seen > learning.created_at
    last = (await stores.transcript.curations.after(0))[-1]
    assert learning.last_seen == last.created_at


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The office is open on Friday.", "The office is not open on Friday."),
        ("The office closes at 5.", "The office closes at 6."),
        ("Ann reports to Bo.", "Bo reports to Ann."),
        ("The user writes C++.", "The user writes C#."),
        ("The offset is 5.", "The offset is -5."),
    ],
)
async def test_negation_number_or_reordering_is_new(first: str, second: str, stores: Stores) -> None:
    for words in (first, second):
        await stores.learn(f'FACT [t] {words} | "{words}"', words)
    assert [(row.content, row.seen) for row in await stores.learnings()] == [(first, 1), (second, 1)]


async def test_person_endorses_tool_learning(stores: Stores) -> None:
    line = "The office closes at noon on Fridays."
    await stores.learn(f'FACT [t] {line} | "{line}"', calls=[call("WebFetch", line)])
    await stores.learn(f'FACT [t] {line} | "closes at noon on Fridays"', "Yes, the office closes at noon on Fridays")
    (learning,) = await stores.learnings()
    assert (learning.origin, learning.confidence, learning.seen) == ("user", 0.9, 2)
    assert (learning.evidence, learning.source_observation_id) == ("closes at noon on Fridays", 2)


async def test_person_endorses_learning_without_quote(stores: Stores) -> None:
    line = "The office closes at noon on Fridays."
    await stores.learn(f'FACT [t] {line} | "{line}"', calls=[call("WebFetch", line)])
    await stores.learn(f"FACT [t] {line}", "Yes, the office closes at noon on Fridays", "Good")
    (learning,) = await stores.learnings()
    assert learning.origin == "user"


@pytest.mark.parametrize("quote", [' | "The office closes at noon on Fridays."', ""])
async def test_untrusted_claim_read_aloud_stays_untrusted(quote: str, stores: Stores) -> None:
    line = "The office closes at noon on Fridays."
    await stores.learn(f"FACT [t] {line}{quote}", "Look it up", calls=[call("WebFetch", line)])
    for _ in range(26):
        await stores.turn("Something else", "Indeed")
    await stores.learn(f'FACT [t] {line} | "{line}"', "And Fridays?", line)
    (learning,) = await stores.learnings()
    assert (learning.origin, learning.seen) == ("web", 1)


async def test_persons_statement_does_not_become_agents(stores: Stores) -> None:
    line = "The office closes at noon on Fridays."
    await stores.learn(f"FACT [t] {line}", line, "Good")
    await stores.learn(f'FACT [t] {line} | "{line}"', "And Fridays?", line)
    (learning,) = await stores.learnings()
    assert (learning.origin, learning.confidence) == ("user", 0.5)


async def test_learning_keeps_number_when_earlier_ones_go(stores: Stores) -> None:
    for words in ("It is 5.", "It is 5.", "It is 6."):
        await stores.learn(f'FACT [t] {words} | "{words}"', words)
    assert [(row.id, row.content) for row in await stores.learnings()] == [(1, "It is 5."), (3, "It is 6.")]


async def test_curator_sees_open_learnings_nearest_to_turns(stores: Stores, tmp_path: Path) -> None:
    from sprite.config import Settings
    from sprite.curation.extraction import Extractor, log_lost_call
    from sprite.curation.model import CuratorModel

    await stores.learn('FACT [t] Reports are in EUR. | "reports are in EUR"', "reports are in EUR")
    await stores.learn('CORRECTION [t] supersedes L1: Reports are in SEK. | "in SEK"', "no, reports are in SEK")
    await stores.learn('FACT [t] Ada keeps bees. | "keep bees"', "I keep bees")
    turn = await stores.turn("Which currency do the reports use?")
    model = CuratorModel(Settings(tmp_path), partial(log_lost_call, stores.transcript))
    extractor = Extractor(stores.memory, stores.files, model)
    prompt, _ = await extractor.prompt(await stores.turns_between(turn, turn))
    day = datetime.now().astimezone().strftime("%Y-%m-%d")
    assert (
        f'<learning id="2" type="CORRECTION" from="user" on="{day}" turn="2">Reports are in SEK.</learning>'
        in prompt.user
    )
    assert 'id="1"' not in prompt.user
