"""The curation benchmark: its metrics, and its mutations of answers."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.answer_slips import SLIPS, full_stops, lost_line, seeded, wrong_words
from benchmarks.curation_score import Memory, Run, Score, said_lines, score
from benchmarks.history import Closable, History, Question, Turn, Unwanted, Wanted
from benchmarks.recordings import NotRecordedError, Recording, Recordings, Request
from sprite.memory.files import CURATED, template

AT = datetime(2026, 9, 7, tzinfo=UTC)
HISTORY = History(
    about="",
    turns=[Turn(n, "s1", AT, "said", [], "", "complete", "user", "") for n in (1, 2, 3)],
    wanted=[
        Wanted("w1", "the cat is Biscuit", ["user.md"], ["cat", "biscuit"]),
        Wanted("w2", "scans need ocrmypdf", ["tools.md"], ["ocrmypdf"]),
        Wanted("w3", "a dentist on the 24th", ["context.md", "actions"], ["dentist", "24"]),
        Wanted("w4", "was at Orchard", ["learnings"], ["orchard"]),
    ],
    unwanted=[Unwanted("u1", "the door code", ["4471"]), Unwanted("u2", "lives in Larch Row", ["larch row"])],
    questions=[Question("Which cat?", [1], "biscuit"), Question("Which dentist?", [2], "vermeer")],
    closable=[
        Closable("rename the letters", 1, 2, "renam", "command"),
        Closable("ring the bank", 1, 3, "bank", "person"),
    ],
)
ANSWER = """FACT [t1] The cat is Biscuit. | "our cat is called Biscuit and she lives in the piano mostly"
FACT [t2] Short. | "a few words"

USER_MD_UPDATE:
# User

- The cat is Biscuit.
- Vermeer is the dentist.
"""


def memory(**more: object) -> Memory:
    empty = {"actions": (), "all_actions": (), "learnings": (), "superseded": 0, "versions": (), "reports": ()}
    files = {name: template(name) for name in CURATED} | dict(more.pop("files", {}))  # type: ignore[call-overload]
    return Memory(files=files, **{**empty, **more})  # type: ignore[arg-type]


def counted(**more: object) -> Score:
    return score(HISTORY, Run(memory(**more), [[(1, "her cat")], [(1, "dr. Vermeer")]], [], 0.0))


def test_fact_is_held_by_line_or_action() -> None:
    found = counted(
        files={"context.md": "- The cat is Biscuit.\n- A dentist.\n- On the 24th.\n"},
        actions=["Run ocrmypdf."],
        learnings=["Worked at Orchard."],
    )
    assert [item.id for item in found.missing] == ["w3", "w4"]
    assert [item.id for item in found.missing_in_place] == ["w1", "w2", "w3"]
    assert [item.id for item in found.missing_anywhere] == ["w3"]


def test_default_file_text_holds_nothing() -> None:
    for name in CURATED:
        assert list(said_lines(template(name), template(name))) == []


def test_line_is_read_with_added_heading() -> None:
    shipped = "# User\n## Profile\n"
    assert list(said_lines("# User\n### Orchard\n- English only\n## Profile\n- Ada\n", shipped)) == [
        "Orchard: English only",
        "Ada",
    ]


def test_unwanted_fact_is_reported_with_its_line() -> None:
    found = counted(files={"user.md": "- The door's code is 4471.\n"}, learnings=["She lives in Larch Row."])
    assert [(item.id, line) for item, line in found.unwanted] == [("u1", "The door's code is 4471.")]
    assert [item.id for item, _ in found.unwanted_learnings] == ["u2"]


@pytest.mark.parametrize(("learnings", "lost"), [([], 1), (["Worked at Orchard."], 0)])
def test_refused_line_for_archive_is_lost_without_learning(learnings: list[str], lost: int) -> None:
    reports = [(1, "line_refused", "context.md: nobody here said this: - She was at Orchard.")]
    assert len(counted(reports=reports, learnings=learnings).refused_lost) == lost


def test_refused_line_is_wanted_repeated_or_lost() -> None:
    """It is true if wanted or stored later, and lost if nothing holds it."""
    reports = [
        (1, "line_refused", "tools.md: nobody here said this: - Scans: ocrmypdf --deskew."),
        (1, "line_refused", "user.md: nobody here said this: - The cat is Biscuit."),
        (1, "line_refused", "files.md: nobody here said this: - ~/Flat: the tenancy."),
        (1, "line_refused", "files.md: nobody here said this: - Nonsense."),
        (2, "file_refused", "user.md: it loses 9 of 10 lines; the old file stays"),
        (2, "supersede_refused", "L3 stands"),
        (2, "unverified", "its evidence is not there"),
    ]
    versions = [(2, "files.md", "- ~/Flat: the tenancy.\n"), (1, "files.md", "- Nonsense.\n")]
    found = counted(files={"user.md": "- Biscuit is the cat.\n"}, reports=reports, versions=versions)
    assert len(found.refused) == 4
    assert [said.rpartition(": ")[2] for said in found.refused_true] == [
        "ocrmypdf --deskew.",
        "- The cat is Biscuit.",
        "the tenancy.",
    ]
    assert [said.rpartition(": ")[2] for said in found.refused_lost] == ["ocrmypdf --deskew."]
    assert (len(found.files_refused), len(found.supersede_refused)) == (1, 1)
    assert found.other_reports == {"unverified": 1}


def test_action_is_closed_without_similar_open_one() -> None:
    found = counted(actions=["Ring the bank on Monday."], all_actions=["Ring the bank on Monday.", "Rename letters."])
    assert [action.what for action in found.left_open] == ["ring the bank"]
    assert found.never_opened == []
    assert len(counted().never_opened) == 2


def test_question_is_answered_by_turn_hit_or_file() -> None:
    found = counted(files={"user.md": "- The cat is Biscuit.\n"})
    assert (found.turn_found, found.answer_found, found.answer_known) == (1, 1, 2)


def test_mutations_are_correct_and_deterministic() -> None:
    rng = random.Random(1)  # noqa: S311 - no secret
    assert '| "a few words."' in full_stops(ANSWER, rng)
    first, *rest = ANSWER.split("\n")
    spoilt = wrong_words(ANSWER, rng).split("\n")
    assert sum(a != b for a, b in zip(spoilt[0].split(), first.split(), strict=True)) == 1
    assert spoilt[1:] == rest
    lost = {first, *rest} - set(lost_line(ANSWER, rng).split("\n"))
    assert len(lost) == 1
    assert lost <= {"- The cat is Biscuit.", "- Vermeer is the dentist."}
    for name in SLIPS:
        if (slip := seeded(name)) is not None:
            assert slip(ANSWER, "t1-t3") == slip(ANSWER, "t1-t3")
    assert lost_line("NONE", rng) == "NONE"


def test_unanswered_request_is_exported_and_answer_imported(tmp_path: Path) -> None:
    request = Request(1, "t1-t3", "the rules", "the turns")
    with pytest.raises(NotRecordedError, match=r"01\.answer\.txt"):
        Recordings.of_folder(tmp_path).answer(request)
    assert (tmp_path / "01.system.txt").read_text() == "the rules"
    assert (tmp_path / "01.user.txt").read_text() == "the turns"
    (tmp_path / "01.answer.txt").write_text("NONE")
    with pytest.raises(NotRecordedError, match="--answered-by"):
        Recordings.of_folder(tmp_path).answer(request)
    made = Recordings.of_folder(tmp_path, answered_by="by hand", model="m").answer(request)
    assert made == Recording(request.sha256, "by hand", "m", "t1-t3", "NONE")
    assert [path.name for path in tmp_path.iterdir()] == ["01.json"]
    assert Recordings.of_folder(tmp_path).answer(request) == made


def test_answer_to_old_request_is_replayed_by_default(tmp_path: Path) -> None:
    old = Request(1, "t1-t3", "the rules", "the turns")
    (tmp_path / "01.answer.txt").write_text("NONE")
    (tmp_path / "01.system.txt").write_text(old.system)
    (tmp_path / "01.user.txt").write_text(old.user)
    made = Recordings.of_folder(tmp_path, answered_by="by hand", model="m").answer(old)
    new = Request(1, "t1-t3", "other rules", "the turns")
    assert Recordings.of_folder(tmp_path).answer(new) == made
    with pytest.raises(NotRecordedError):
        Recordings.of_folder(tmp_path, fresh=True).answer(new)
