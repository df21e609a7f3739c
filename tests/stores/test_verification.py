"""Verdicts of the verifier: applied, refused, kept unverified, off the record; and a verifier that is off or fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sprite.curation.decide import Judge
from sprite.log.curations import Curation
from sprite.memory.files import CURATED, template
from tests.memory_stores import Stores, added, call, find, names, object_to, open_stores, rebuilt

TEA = "I prefer tea in the morning"


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.projection.settle()
        yield opened


def unsure(line: str) -> str:
    return "yes" if line.startswith("keep") else "unsure"


def forget(line: str) -> str:
    return "no" if line.startswith("keep") else "yes"


OTHER = "22222222-2222-4222-8222-222222222222"
KINDS = ["PREFERENCE", "CORRECTION", "FACT", "ACTION"]


@pytest.mark.parametrize("kind", KINDS)
async def test_refused_line_is_not_stored(kind: str, stores: Stores) -> None:
    answer = f'{kind} [t] Prefers tea. | "{TEA}"\n' + added("user.md", TEA)
    await stores.learn(answer, TEA, verify=object_to)
    assert await stores.learnings() == []
    assert await stores.memory.actions() == []
    assert stores.files.read("user.md") == template("user.md")
    assert await stores.reports() == [
        ("not_verified", "they did not say it: Prefers tea."),
        ("line_refused", f"user.md: refused, because they did not say it: - {TEA}"),
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_unsure_line_is_kept_unverified_in_search_alone(kind: str, stores: Stores) -> None:
    answer = f'{kind} [t] Prefers tea. | "{TEA}"\n' + "".join(added(name, "Prefers tea") for name in CURATED)
    await stores.learn(answer.replace(' - Prefers tea | "Prefers tea"', " - Prefers tea"), TEA, verify=unsure)
    (learning,) = await stores.learnings()
    assert (learning.type, learning.origin, learning.confidence) == ("FACT", "none", 0.1)
    assert ("unsure", "is this right?: Prefers tea.") in await stores.reports()
    assert await stores.memory.actions() == []
    assert "L1" in names(await find(stores, "tea"))
    assert all(stores.files.read(name) == template(name) for name in CURATED)


async def test_message_that_person_wants_forgotten_is_off_record(stores: Stores) -> None:
    kept = await stores.turn("I drink coffee at noon")
    turn = await stores.turn(f"{TEA}, but do not note that")
    answer = (
        f'FACT [t{kept}] Drinks coffee. | "coffee at noon"\nPREFERENCE [t{turn}] Prefers tea. | "{TEA}"\n'
        f"FACT [t{turn}] Drinks tea often.\nDIGEST [t{turn}] Talked of tea.\nDONE L1 | [t{turn}] tea is over\n"
        + "".join(added(name, "prefer tea", turn=turn) for name in CURATED)
    )
    await stores.batch(answer, kept, turn, verify=lambda line: forget(line) if f"t{turn}" in line else "yes")
    await stores.projection.settle()
    assert [learning.content for learning in await stores.learnings()] == ["Drinks coffee."]
    assert all("tea" not in stores.files.read(name) for name in CURATED)
    assert [turn.processed for turn in await stores.observations()] == [1, 3]
    assert names(await find(stores, "morning")) == []
    assert names(await find(stores, "noon")) == ["T1"]
    assert await stores.transcript.waiting_count() == 0
    assert not any("tea" in detail for _, detail in await stores.reports())


@pytest.mark.parametrize(("verify", "processed"), [(forget, [1, 3]), (lambda _: "yes", [1, 1])])
async def test_curator_names_turn_off_record(
    verify: Callable[[str], str], processed: list[int], stores: Stores
) -> None:
    kept = await stores.turn("I drink coffee at noon")
    turn = await stores.turn("Dies bleibt unter uns: Ada trinkt Tee")
    await stores.batch(f"OFF_RECORD [t{turn}]", kept, turn, verify=verify)
    await stores.projection.settle()
    assert [turn.processed for turn in await stores.observations()] == processed
    assert names(await find(stores, "Tee")) == [f"T{turn}"][: processed.count(1) - 1]


async def test_log_has_no_words_of_message_off_record(tmp_path: Path, stores: Stores) -> None:
    """The other parts of the answer stay, and learnings keep their numbers."""
    kept = await stores.turn("I drink coffee at noon")
    turn = await stores.turn(f"{TEA}, but do not note that")
    answer = (
        f'PREFERENCE [t{turn}] Prefers tea. | "{TEA}"\nPREFERENCE [t{kept}] Prefers tea at dawn. | "{TEA}"\n'
        f'FACT [t{kept}] Drinks coffee. | "coffee at noon"\nDONE L1 | [t{turn}] tea is over\nThey like tea.\n'
        + added("user.md", "drink coffee", turn=kept)
        + added("context.md", TEA, turn=kept)
    )
    await stores.batch(answer, kept, turn, verify=lambda line: "no tea" if line == f"keep: t{turn}" else "yes")
    await stores.projection.settle()
    (row,) = await stores.transcript.curations.after(0)
    logged = f"{row.response}{row.verification_json}{row.decision_json}"
    assert "tea" not in logged.casefold()
    assert "coffee at noon" in row.response
    assert "drink coffee" in stores.files.read("user.md")
    learnings = await stores.learnings()
    assert [(learning.id, learning.content) for learning in learnings] == [(3, "Drinks coffee.")]
    await rebuilt(tmp_path, without_files=True)
    async with open_stores(tmp_path) as again:
        assert await again.learnings() == learnings
        assert "drink coffee" in again.files.read("user.md")


async def test_superseding_learning_may_keep_parts_of_old_one(stores: Stores) -> None:
    """Its numbers may stand in the superseded learning, which the verifier sees beside it."""
    await stores.learn(
        'FACT [t] The team meets on Tuesdays at 10:15 in room 7. | "10:15"', "we meet at 10:15 in room 7"
    )
    await stores.transcript.start_session(OTHER)
    asked: list[str] = []

    def verify(line: str) -> str:
        asked.append(line)
        return "yes"

    answer = 'FACT [t] supersedes L1: The team meets on Fridays at 10:15 in room 7. | "Fridays now"'
    await stores.learn(answer, "it is Fridays now", session=OTHER, verify=verify)
    assert [learning.superseded_by for learning in await stores.learnings()] == [2, None]
    change = (
        "The team meets on Fridays at 10:15 in room 7. (instead of: The team meets on Tuesdays at 10:15 in room 7.)"
    )
    assert asked[:2] == [f"fact: {change}", f"supersede: {change}"]


async def test_line_may_keep_parts_of_superseded_learning(stores: Stores) -> None:
    """A line that rests on the new learning of the same turn may; another line may not."""
    await stores.learn('FACT [t] Ada moves to 3 Weir Lane. | "3 Weir Lane"', "we move to 3 Weir Lane")
    await stores.transcript.start_session(OTHER)
    asked: list[str] = []

    def verify(line: str) -> str:
        asked.append(line)
        return "yes"

    answer = 'FACT [t] supersedes L1: Ada lives at 3 Weir Lane. | "we are in"\nUSER_MD_EDIT:\n'
    answer += 'ADD Profile | [t] - Lives at 3 Weir Lane. | "we are in"\nADD Profile | [t] - Owns 3 cats. | "we are in"'
    await stores.learn(answer, "we are in!", session=OTHER, verify=verify)
    user = stores.files.read("user.md")
    assert ("3 Weir Lane" in user, "cats" in user) == (True, False)
    assert "line: - Lives at 3 Weir Lane. (instead of: Ada moves to 3 Weir Lane.)" in asked


async def test_work_may_have_numbers_of_messages_before(stores: Stores) -> None:
    await stores.turn("load test it with 50 planners")
    await stores.learn('FACT [t] With 50 planners the p95 is 214. | "p95=214"', "go", calls=[call("Bash", "p95=214")])
    assert [learning.origin for learning in await stores.learnings()] == ["tool"]


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [("Pay by 15 December", True), ("Pay to ada@kilns.example", False), ("Call 5550 123 456", False)],
)
async def test_pick_from_led_question_has_its_numbers_only(line: str, is_kept: bool, stores: Stores) -> None:
    question = "By 15 December, to ada@kilns.example or 5550 123 456. Shall I remind you?"
    await stores.turn("When is it due?", question, calls=[call("WebFetch", "15 December")])
    await stores.learn(f'ACTION [t] {line} | "yes"', "yes")
    assert len(await stores.learnings()) == is_kept


async def test_persons_learning_ends_without_shared_word(stores: Stores) -> None:
    await stores.learn('FACT [t] Bo gets the rota on Fridays. | "Bo gets the rota"', "Bo gets the rota on Fridays")
    await stores.learn('FACT [t] supersedes L1: Noor left the practice. | "I left"', "I left the practice")
    assert [learning.superseded_by for learning in await stores.learnings()] == [2, None]


@pytest.mark.parametrize("verdict", ["yes", "no", "unsure"])
async def test_learning_behind_replaced_line_ends_by_verdict(verdict: str, stores: Stores) -> None:
    await stores.learn(f'PREFERENCE [t] {TEA}. | "{TEA}"\n' + added("user.md", TEA), TEA)
    change = 'USER_MD_EDIT:\nREPLACE "- I prefer tea" | [t] - I prefer coffee | "prefer coffee"'
    verify = {"supersede": verdict}
    await stores.learn(change, "now I prefer coffee", verify=lambda line: verify.get(line.partition(":")[0], "yes"))
    assert "- I prefer coffee" in stores.files.read("user.md")
    (learning,) = await stores.learnings()
    assert learning.superseded_by == (1 if verdict == "yes" else None)


@pytest.mark.parametrize("is_told", [True, False])
async def test_learning_behind_replaced_work_line_ends_with_new_one(is_told: bool, stores: Stores) -> None:
    old, new = "dev server listens on port 8000", "dev server listens on port 8090"
    calls = [call("Bash", "ok", {"command": f"echo {old}"})]
    await stores.learn(f'PATTERN [t] The {old}. | "{old}"\n' + added("tools.md", old), "go", calls=calls)
    learned = f'PATTERN [t] The {new}. | "{new}"\n' if is_told else ""
    change = f'TOOLS_MD_EDIT:\nREPLACE "- dev server" | [t] - {new} | "{new}"'
    calls = [call("Bash", "ok", {"command": f"echo {new}"})]
    await stores.learn(learned + change, "go on", calls=calls)
    assert f"- {new}" in stores.files.read("tools.md")
    assert (await stores.learnings())[0].superseded_by == (2 if is_told else None)


@pytest.mark.parametrize(
    ("verdict", "is_strangers", "is_there"), [("yes", True, True), ("unsure", True, False), ("unsure", False, True)]
)
async def test_line_of_message_and_work_needs_one_of_them(
    verdict: str, is_strangers: bool, is_there: bool, stores: Stores
) -> None:
    """The person's word is asked first; the work carries a line that no stranger said first."""
    line = "Opening on Friday in the museum"
    page = [call("WebFetch", "The opening in the museum")] if is_strangers else []
    calls = [*page, call("Bash", "ok", {"command": f"echo '{line.lower()}' >> ~/calendar"})]
    answer = added("context.md", line).replace(f'"{line}"', '"moved to Friday"')
    await stores.learn(answer, "it is moved to Friday", calls=calls, verify=lambda _: verdict)
    assert (f"- {line}" in stores.files.read("context.md")) == is_there


async def test_decision_is_made_again_after_change_of_memory(stores: Stores) -> None:
    turn = await stores.turn(TEA)
    judge = stores.judge
    answer = await stores.verified(Curation("batch", added("user.md", TEA, turn=turn), turn, turn), judge=judge)
    await stores.projection.edit("user.md", "# User\n- I hate tea\n")
    await stores.log(await judge.decided(answer))
    await stores.projection.settle()
    assert {"- I hate tea", f"- {TEA}"} <= set(stores.files.read("user.md").split("\n"))


async def test_unverified_answer_is_not_decided_as_rehearsed(stores: Stores) -> None:
    turn = await stores.turn(TEA)
    judge = stores.judge
    answer = Curation("batch", added("user.md", TEA, turn=turn), turn, turn)
    assert await judge.request(answer) is not None
    await stores.log(await judge.decided(answer))
    await stores.projection.settle()
    assert TEA not in stores.files.read("user.md")


@pytest.mark.parametrize("verify", [object_to, unsure])
async def test_persons_learning_is_superseded_by_verdict_alone(verify: object, stores: Stores) -> None:
    await stores.learn('FACT [t] The tax reports are in EUR. | "in EUR"', "tax reports in EUR")
    answer = 'FACT [t] supersedes L1: The tax reports are in SEK. | "in SEK"'

    def only_fact(line: str) -> str:
        assert callable(verify)
        return str(verify(line)) if line.startswith("supersede") else "yes"

    await stores.learn(answer, "what if tax reports were in SEK?", verify=only_fact)
    assert [learning.superseded_by for learning in await stores.learnings()] == [None, None]
    assert [kind for kind, _ in await stores.reports()] == ["supersede_refused"]


@pytest.mark.parametrize(
    ("edit", "verdict", "is_there"),
    [
        ("[t] - Prefers coffee now", "yes", False),
        ("[t] - Prefers coffee now", "no", True),
        ('DELETE "- I prefer tea" | [t] over | "no more tea"', "yes", False),
        ('DELETE "- I prefer tea" | [t] over', "yes", False),
        ('DELETE "- I prefer tea" | [t] over', "no", True),
        ('DELETE "- I prefer tea" | over', "yes", True),
        ('DELETE "- I prefer tea" | [t1] over', "yes", True),
    ],
)
async def test_line_of_person_is_changed_by_verdict(edit: str, verdict: str, is_there: bool, stores: Stores) -> None:
    await stores.note("user.md", TEA)
    change = edit if edit.startswith("DELETE") else f'REPLACE "- I prefer tea" | {edit} | "prefer coffee now"'
    asked: list[str] = []

    def verify(line: str) -> str:
        asked.append(line)
        return "yes" if line.startswith("keep") else verdict

    await stores.learn(f"USER_MD_EDIT:\n{change}", "no more tea: I prefer coffee now", verify=verify)
    assert (TEA in stores.files.read("user.md")) == is_there
    if edit.startswith("[t]"):
        assert asked[0] == f"line: - Prefers coffee now (instead of: - {TEA})"
    elif asked:
        assert asked[0] == f"delete: - {TEA}"


@pytest.mark.parametrize(("line", "is_there"), [(TEA, True), ("Prefers tea in the morning", False)])
async def test_without_verifier_only_literal_sentences_are_filed(line: str, is_there: bool, stores: Stores) -> None:
    turn = await stores.turn(f"Hello! {TEA}.")
    judge = Judge(stores.transcript, stores.memory, verifies=False)
    text = f'PREFERENCE [t{turn}] Prefers tea. | "{TEA}"\nUSER_MD_EDIT:\nADD Notes | [t{turn}] - {line} | "{TEA}"'
    answer = Curation("batch", text, turn, turn, model="offline")
    assert await judge.request(answer) is None
    await stores.log(await judge.decided(answer))
    await stores.projection.settle()
    assert [learning.type for learning in await stores.learnings()] == ["PREFERENCE"]
    assert (line in stores.files.read("user.md")) == is_there


async def test_request_asks_once_for_each_line(stores: Stores) -> None:
    turn = await stores.turn(f"{TEA}, and call Bo tomorrow", "Hi")
    text = (
        f'PREFERENCE [t{turn}] Prefers tea. | "{TEA}"\nACTION [t{turn}] due 2099-12-01: Call Bo. | "call Bo"\n'
        f'FACT [t{turn}] A greeting. | "Hi"\n' + added("user.md", TEA, turn=turn) + added("tools.md", TEA, turn=turn)
    )
    request = await stores.judge.request(Curation("batch", text, turn, turn))
    assert request is not None
    lines = ["preference: Prefers tea.", "action: Call Bo. (due 2099-12-01)", f"line: - {TEA}", f"keep: t{turn}"]
    assert list(request.lines) == lines
    nothing = Curation("batch", f'FACT [t{turn}] A greeting. | "Hi"\n', turn, turn)
    assert await stores.judge.request(nothing) is None


async def test_refused_turn_is_shown_again_and_citable(stores: Stores) -> None:
    first = await stores.learn(f'PREFERENCE [t] Prefers tea. | "{TEA}"', TEA, verify=object_to)
    second = await stores.turn("What next?")
    assert TEA in (await stores.prompt(second)).user
    await stores.batch(f'PREFERENCE [t{first}] Prefers tea at dawn. | "{TEA}"', second)
    await stores.projection.settle()
    (learning,) = await stores.learnings()
    assert (learning.type, learning.source_observation_id) == ("PREFERENCE", first)
    third = await stores.turn("And now?")
    assert TEA not in (await stores.prompt(third)).user
    await stores.batch(f'PREFERENCE [t{first}] Prefers green tea. | "{TEA}"', third)
    await stores.projection.settle()
    assert [learning.origin for learning in await stores.learnings()] == ["user", "none"]


async def test_verification_survives_rebuild(tmp_path: Path, stores: Stores) -> None:
    for number, verify in enumerate((object_to, unsure, forget)):
        await stores.learn(f'FACT [t] Kiln {number} is hot. | "kiln"\n' + added("user.md", "kiln"),
                           f"my kiln {number}", verify=verify)  # fmt: skip
    before = {name: stores.files.read(name) for name in CURATED}
    learnings = await stores.learnings()
    await rebuilt(tmp_path, without_files=True)
    async with open_stores(tmp_path) as again:
        assert await again.learnings() == learnings
        assert {name: again.files.read(name) for name in CURATED} == before
