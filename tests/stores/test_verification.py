"""Verdicts of the verifier: applied, refused, kept unverified, off the record; and a verifier that is off or fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from sprite.config import Settings
from sprite.curation.decide import Judge
from sprite.curation.extraction import Extractor, log_lost_call
from sprite.curation.model import Answer, CuratorModel, Fault
from sprite.curation.verifier import Verification
from sprite.errors import ModelError
from sprite.log.curations import NewCuration
from sprite.memory.files import CURATED, template
from tests.memory_stores import Stores, added, find, names, object_to, open_stores, rebuilt

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
    answer = NewCuration("batch", text, turn, turn, model="offline")
    assert await judge.request(answer) is None
    await stores.transcript.curations.append_batch(await judge.decided(answer))
    await stores.projection.settle()
    assert [learning.type for learning in await stores.learnings()] == ["PREFERENCE"]
    assert (line in stores.files.read("user.md")) == is_there


async def test_request_asks_once_for_each_line(stores: Stores) -> None:
    turn = await stores.turn(f"{TEA}, and call Bo tomorrow", "Hi")
    text = (
        f'PREFERENCE [t{turn}] Prefers tea. | "{TEA}"\nACTION [t{turn}] due 2099-12-01: Call Bo. | "call Bo"\n'
        f'FACT [t{turn}] A greeting. | "Hi"\n' + added("user.md", TEA, turn=turn) + added("tools.md", TEA, turn=turn)
    )
    request = await stores.judge.request(NewCuration("batch", text, turn, turn))
    assert request is not None
    lines = ["preference: Prefers tea.", "action: Call Bo. (due 2099-12-01)", f"line: - {TEA}", f"keep: t{turn}"]
    assert list(request.lines) == lines
    nothing = NewCuration("batch", f'FACT [t{turn}] A greeting. | "Hi"\n', turn, turn)
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


class Script(CuratorModel):
    """A model behind no network: it answers the curator's calls, then the verifier's; None stands for an outage."""

    def __init__(self, settings: Settings, stores: Stores, curator: str, verifier: list[str | None]) -> None:
        super().__init__(settings, partial(log_lost_call, stores.transcript))
        self.calls: list[str] = []
        self._curator, self._verifier = curator, verifier

    async def _call(self, model: str, system: str, *_: object, **__: object) -> tuple[Answer, Fault | None]:
        is_verifier = system.startswith("You verify memory lines.")
        self.calls.append("verifier" if is_verifier else "curator")
        text = self._verifier.pop(0) if is_verifier else self._curator
        if text is None:
            raise ModelError("the model is down", retryable=True)
        return Answer(text, "end_turn", model, {"input_tokens": 1_000, "output_tokens": 100}, model), None


async def test_failed_verification_leaves_batch_waiting(tmp_path: Path, stores: Stores) -> None:
    """The curator is not asked again, and no secret of an answer is logged."""
    turn = await stores.turn(TEA)
    learned = f'PREFERENCE [t{turn}] Prefers tea. | "{TEA}"'
    key = "sk-ant-api03-" + "Ab3dEf9hIjKlMnOpQrStUvWxYz" * 3
    model = Script(Settings(tmp_path), stores, learned, [None, None, f"1 no {key}\n2 yes"])
    extractor = Extractor(stores.transcript, stores.memory, stores.files, model, stores.judge)

    async def extract() -> NewCuration:
        return await extractor.extract(await stores.transcript.waiting(9), 0, lambda _: True)

    for _ in range(2):
        with pytest.raises(ModelError, match="down"):
            await extract()
        assert (await stores.transcript.waiting_count(), await stores.transcript.curations.after(0)) == (1, [])
    curation = await extract()
    await model.close()
    assert model.calls == ["curator", "verifier", "verifier", "verifier"]
    await stores.transcript.curations.append_batch(await stores.judge.decided(curation))
    await stores.projection.settle()
    assert (await stores.learnings(), await stores.transcript.waiting_count()) == ([], 0)
    (logged,) = await stores.transcript.curations.after(0)
    assert logged.verification_json is not None
    verification = msgspec.json.decode(logged.verification_json, type=Verification)
    assert [ruling.verdict for ruling in verification.rulings] == ["no", "yes"]
    assert key not in logged.verification_json
    # Both calls cost once.
    assert logged.cost_usd == pytest.approx(2 * (verification.cost_usd or 0))
    assert await stores.transcript.spending.total() == pytest.approx(logged.cost_usd)
