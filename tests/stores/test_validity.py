"""Superseding, repeat counting, and required sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sprite.search.view import MemoryView
from tests.memory_stores import Stores, agree, call, object_to, open_stores


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.projection.settle()
        yield opened


async def chain(stores: Stores) -> list[tuple[int, int | None]]:
    return [(row.id, row.superseded_by) for row in await stores.learnings()]


async def test_correction_supersedes_named_learnings_but_keeps_them(stores: Stores) -> None:
    await stores.learn('FACT [t] All reports are in EUR amounts. | "in EUR"', "in EUR")
    await stores.learn('FACT [t] Invoices have amounts in EUR, all. | "invoices too"', "invoices too, in EUR")
    await stores.learn('FACT [t] Ada likes cats. | "like cats"', "I like cats")
    await stores.learn(
        'CORRECTION [t] supersedes L1, L2: Amounts are in SEK, not EUR. | "all in SEK"', "no, all in SEK, not EUR"
    )
    assert await chain(stores) == [(1, 4), (2, 4), (3, None), (4, None)]
    view = MemoryView(stores.transcript, stores.memory, stores.files)
    hits = [hit for hit in (await view.search("amounts reports invoices EUR SEK")).hits if hit.kind == "learning"]
    assert next(hit.id for hit in hits) == 4, "the replacements rank first, however well the old ones match"
    assert {hit.id: hit.superseded_by for hit in hits} == {4: None, 1: 4, 2: 4}


async def test_superseded_learning_cannot_be_superseded_again(stores: Stores) -> None:
    for number, replaced in (("5", ""), ("6", " supersedes L1:"), ("7", " supersedes L1, L2:")):
        await stores.learn(f'FACT [t]{replaced} The kiln shelf is {number}. | "{number}"', number)
    assert await chain(stores) == [(1, 2), (2, 3), (3, None)]


MAIL = {"command": "mail -s report ilse@office.example < numbers.txt"}


@pytest.mark.parametrize(
    ("turn", "quote", "is_done"),
    [
        ({"calls": [call("Bash", "ok", MAIL)]}, "mail -s report", True),
        ({"calls": [call("Bash", "no route to host", MAIL, is_error=True)]}, "mail -s report", False),
        ({"calls": [call("Bash", "ok", {"command": "ls"})]}, "ls", False),
        ({"reply": "I have sent the report to Ilse."}, "I have sent the report", False),
        ({"calls": [call("WebFetch", "The report was sent to Ilse.")]}, "The report was sent", False),
        ({"calls": [call("Bash", "The report was sent to Ilse.")]}, "The report was sent", False),
        ({"user": "I sent the report to Ilse myself."}, "I sent the report", True),
        ({"user": "I sent the report to Ilse myself."}, None, True),
    ],
    ids=["command", "failed command", "other command", "reply", "page", "result", "person", "no quote"],
)
@pytest.mark.parametrize("form", ["DONE", "FACT"])
async def test_action_is_closed_by_command_or_person(
    form: str, turn: dict[str, Any], quote: str | None, is_done: bool, stores: Stores
) -> None:
    """The verifier agrees where the person's words or a command finish it."""
    await stores.learn('ACTION [t] Mail Ilse about the report. | "mail Ilse"', "Please mail Ilse about the report")
    cited = f' | "{quote}"' if quote else ' | "sent the report"'
    told = {"DONE": f'DONE L1 | [t] sent{f" | {chr(34)}{quote}{chr(34)}" if quote else ""}',
            "FACT": f"FACT [t] supersedes L1: The report went to Ilse by mail.{cited}"}  # fmt: skip

    def verify(line: str) -> str:
        by_command = "(by the agent's command" in line
        return "yes" if not line.startswith("done") or by_command or "user" in turn else "no: nobody did it"

    await stores.learn(told[form], **turn, verify=verify)
    (action,) = await stores.memory.actions()
    assert action.status == ("done" if is_done else "open")


def believe_commands(line: str) -> str:
    return "no: nobody did it" if line.startswith("done") and "(by the agent's command" not in line else "yes"


@pytest.mark.parametrize(
    ("command", "quote", "is_done"),
    [
        ("rm -r ~/scans && ls ~/scans", "cannot access '/home/ada/scans'", True),
        ("rm -r ~/scans && ls ~/scans", "No such file or directory", False),
        ("rm -r ~/scans && ls ~/scans", "rm -r ~/scans", False),
        ("rm -r ~/old", "cannot access '/home/ada/scans'", False),
    ],
    ids=["names the thing", "names nothing", "command alone", "other command"],
)
async def test_quoted_error_can_close_action(command: str, quote: str, is_done: bool, stores: Stores) -> None:
    await stores.learn('ACTION [t] Delete the scans. | "delete the scans"', "Please delete the scans tomorrow")
    gone = "ls: cannot access '/home/ada/scans': No such file or directory"
    calls = [call("Bash", gone, {"command": command}, is_error=True)]
    await stores.learn(f'DONE L1 | [t] deleted | "{quote}"', calls=calls, verify=believe_commands)
    (action,) = await stores.memory.actions()
    assert action.status == ("done" if is_done else "open")


async def test_agent_cannot_retract_persons_statement(stores: Stores) -> None:
    await stores.learn('PREFERENCE [t] Ada wants tables. | "I want tables"', "I want tables")
    await stores.learn('FACT [t] supersedes L1: Ada wants prose. | "you want prose"', "ok", "Noted, you want prose")
    assert (await chain(stores))[0] == (1, None)


@pytest.mark.parametrize(
    ("user", "command", "verify", "is_replaced"),
    [
        ("archive shop", True, agree, True),
        ("archive shop", True, object_to, False),
        ("archive shop", False, agree, False),
        ("", True, agree, False),
    ],
)
async def test_work_asked_for_replaces_persons_fact(
    user: str, command: bool, verify: Callable[[str], str], is_replaced: bool, stores: Stores
) -> None:
    await stores.learn('FACT [t] Shop papers are in ~/shop. | "are in ~/shop"', "papers are in ~/shop")
    moved = call("Bash", "", {"command": "mv ~/shop ~/archive"}) if command else call("WebFetch", "mv ~/shop ~/archive")
    answer = 'FACT [t] supersedes L1: Shop papers are in ~/archive. | "mv ~/shop ~/archive"'
    await stores.learn(answer, user, calls=[moved], verify=verify)
    assert (await chain(stores))[0] == (1, 2 if is_replaced else None)


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


async def test_untrusted_claim_read_aloud_stays_untrusted(stores: Stores) -> None:
    line = "The office closes at noon on Fridays."
    await stores.learn(f'FACT [t] {line} | "{line}"', "Look it up", calls=[call("WebFetch", line)])
    for _ in range(26):
        await stores.turn("Something else", "Indeed")
    await stores.learn(f'FACT [t] {line} | "{line}"', "And Fridays?", line)
    (learning,) = await stores.learnings()
    assert (learning.origin, learning.seen) == ("web", 1)


async def test_persons_statement_does_not_become_agents(stores: Stores) -> None:
    line = "The office closes at noon on Fridays."
    await stores.learn(f'FACT [t] {line} | "closes at noon"', line, "Good")
    await stores.learn(f'FACT [t] {line} | "{line}"', "And Fridays?", line)
    (learning,) = await stores.learnings()
    assert (learning.origin, learning.confidence) == ("user", 0.9)


async def test_learning_keeps_number_when_earlier_ones_go(stores: Stores) -> None:
    for words in ("It is 5.", "It is 5.", "It is 6."):
        await stores.learn(f'FACT [t] {words} | "{words}"', words)
    assert [(row.id, row.content) for row in await stores.learnings()] == [(1, "It is 5."), (3, "It is 6.")]


async def test_curator_sees_open_learnings_nearest_to_turns(stores: Stores) -> None:
    await stores.learn('FACT [t] Tax reports are in EUR. | "reports are in EUR"', "reports are in EUR")
    await stores.learn('CORRECTION [t] supersedes L1: Tax reports are in SEK. | "in SEK"', "no, reports are in SEK")
    await stores.learn('FACT [t] Ada keeps bees. | "keep bees"', "I keep bees")
    prompt = await stores.prompt(await stores.turn("Which currency do the reports use?"))
    day = datetime.now().astimezone().strftime("%Y-%m-%d")
    learning = f'<learning id="2" type="CORRECTION" from="user" on="{day}">Tax reports are in SEK.</learning>'
    assert learning in prompt.user
    assert 'id="1"' not in prompt.user
