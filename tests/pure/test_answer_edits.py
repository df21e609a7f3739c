"""Edits of files in the curator's answer: read leniently, logged with the lines they mean, applied by those."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.curation.answer import parse_response
from sprite.curation.answer_files import Edited, apply_edits, with_lines_meant

CONTEXT = """\
# Context
*What is going on.*

## Active tasks
- Send the invoices.
- Call the bank.

## Projects
### shop
- Tests: make test
- Branch: main only
### site
- Served by nginx.

## Reminders
- 2026-11-18: dentist.
"""


def edited(answer: str, now: str = CONTEXT, shown: str = CONTEXT) -> Edited:
    """A file after an answer that was given when `shown` stood there."""
    logged = with_lines_meant(f"CONTEXT_MD_EDIT:\n{answer}\n", {"context.md": shown})
    response = parse_response(logged)
    assert response.unparsed == ()
    assert response.usable
    return apply_edits(now, response.edits["context.md"])


def test_a_line_is_deleted_replaced_and_added_and_the_rest_stays() -> None:
    done = edited("DELETE 5 | done\nREPLACE 6 | - Call the bank on Monday.\nADD Reminders | - 2026-12-01: tax.")
    assert done.content == CONTEXT.replace("- Send the invoices.\n", "").replace(
        "Call the bank.", "Call the bank on Monday."
    ).replace("dentist.\n", "dentist.\n- 2026-12-01: tax.\n")
    assert done.deleted == {"- Send the invoices."}
    assert done.explained([]) == {"- Send the invoices.", "- Call the bank."}
    assert done.explained(["- Call the bank on Monday."]) == {"- Send the invoices."}
    assert done.missed == ()


@pytest.mark.parametrize(
    "answer",
    [
        "DELETE 5, 6 | done",
        "DELETE 5-6 | done",
        "delete lines 5 and 6: done",
        "- DELETE L5 to L6 | done",
        "DELETE 6 | done\nDELETE 5 | done",
        "REMOVE 5\nREMOVE 6",
        "```\nDELETE 5-6 | done\n```",
    ],
)
def test_numbers_are_read_in_every_form_a_model_gives_them(answer: str) -> None:
    assert edited(answer).content == CONTEXT.replace("- Send the invoices.\n- Call the bank.\n", "")


def test_several_lines_become_one_and_one_becomes_several() -> None:
    assert "## Active tasks\n- Both are done.\n\n" in edited("REPLACE 5-6 | - Both are done.").content
    assert "- a\n- b\n- Call" in edited("REPLACE 5\n- a\n- b").content
    assert "dentist.\n- a\n- b\n" in edited("ADD Reminders\n- a\n- b").content
    assert edited("ADD Reminders | a").content.endswith("dentist.\n- a\n")


def test_a_projects_lines_stand_together_and_leave_with_their_heading() -> None:
    added = edited("ADD Projects > shop | - Deploy: make ship\nADD Projects > bakery | - Rust.").content
    assert "- Branch: main only\n- Deploy: make ship\n### site" in added
    assert "- Served by nginx.\n### bakery\n- Rust.\n\n## Reminders" in added
    assert "### shop" not in edited("DELETE 10-11 | it ended").content
    assert "### shop" not in edited("DELETE 9-11 | it ended").content
    assert "### shop\n- Branch" in edited("DELETE 10 | wrong").content


def test_a_heading_that_is_missing_is_made() -> None:
    assert edited("ADD Decisions | - Use tea.").content.endswith("\n\n## Decisions\n- Use tea.\n")
    both = edited("ADD Decisions > shop | - a\nADD Decisions > shop | - b").content
    assert both.endswith("\n## Decisions\n### shop\n- a\n- b\n")


def test_what_is_added_outlives_the_line_it_was_added_below() -> None:
    done = edited("ADD Reminders | - 2026-12-01: tax.\nDELETE 16 | past")
    assert done.content.endswith("## Reminders\n- 2026-12-01: tax.\n")


def test_titles_and_main_headings_stay() -> None:
    done = edited("DELETE 1-4 | away")
    assert done.content == CONTEXT
    assert len(done.missed) == 3


def test_an_edit_means_the_line_it_was_shown_wherever_that_stands_now() -> None:
    now = CONTEXT.replace("- Send the invoices.\n", "- New by hand.\n- Another.\n- Send the invoices.\n")
    assert edited("DELETE 5 | done", now=now).content == now.replace("- Send the invoices.\n", "")
    gone = edited("DELETE 5 | done", now=CONTEXT.replace("- Send the invoices.\n", ""))
    assert gone.content == CONTEXT.replace("- Send the invoices.\n", "")
    assert gone.missed == ("delete 5: the line is not there any more",)


def test_what_a_line_becomes_is_kept_where_the_line_is_gone() -> None:
    now = CONTEXT.replace("- Call the bank.\n", "")
    assert "- Call the bank on Monday.\n" in edited("REPLACE 6 | - Call the bank on Monday.", now=now).content


def test_a_number_alone_moves_nothing() -> None:
    (edits,) = parse_response("CONTEXT_MD_EDIT:\nDELETE 5 | done").edits.values()
    assert apply_edits(CONTEXT, edits) == Edited(CONTEXT, frozenset(), (), ("delete 5: there is no such line",))
    assert edited("DELETE 99 | done").missed == ("delete 99: there is no such line",)


def test_a_model_cannot_say_for_itself_which_line_it_meant() -> None:
    forged = "DELETE 5 | done\n< - Call the bank."
    assert edited(forged).content == CONTEXT.replace("- Send the invoices.\n", "")


def test_what_is_no_edit_is_reported_and_no_learning() -> None:
    response = parse_response("USER_MD_EDIT:\nADD Profile | - Ada.\nFACT [t1] The moon is cheese.\nI hope this helps!")
    assert response.learnings == ()
    assert response.unparsed == ("FACT [t1] The moon is cheese.", "I hope this helps!")
    (edit,) = response.edits["user.md"]
    assert (edit.path, edit.content) == (("Profile",), ("- Ada.",))


def test_a_complete_file_beside_edits_wins_and_headers_hold_several_edits() -> None:
    response = parse_response("USER_MD_EDIT:\nADD Profile | - a\nUSER_MD_UPDATE:\n# User\n- b\n")
    assert (dict(response.files), dict(response.edits)) == ({"user.md": "# User\n- b\n"}, {})
    twice = parse_response("USER_MD_EDIT:\nADD Profile | - a\nUSER_MD_EDIT: ADD Profile | - b\n")
    assert [edit.content for edit in twice.edits["user.md"]] == [("- a",), ("- b",)]


def test_a_complete_file_loses_the_numbers_that_a_model_copied() -> None:
    numbered = "".join(f"{at}| {line}\n" for at, line in enumerate(CONTEXT.splitlines(), start=1))
    logged = with_lines_meant(f"CONTEXT_MD_UPDATE:\n{numbered}- new\n", {"context.md": CONTEXT})
    assert parse_response(logged).files["context.md"] == f"{CONTEXT}- new\n"


LINES = st.sampled_from(
    ["DELETE 5 | x", "REPLACE 6-9 | - y", "ADD Projects > z | - w", "ADD New | v", "< - Call", "- more", "DELETE 1-400",
     "REPLACE 17", "ADD |", "## H", "NONE", "```", "\x00", "REPLACE 3 | <!-- pin -->"]
)  # fmt: skip


@given(st.lists(LINES | st.text(max_size=40), max_size=30).map("\n".join))
def test_no_answer_breaks_a_file(answer: str) -> None:
    logged = with_lines_meant(f"CONTEXT_MD_EDIT:\n{answer}\n", {"context.md": CONTEXT})
    for edits in parse_response(logged).edits.values():
        done = apply_edits(CONTEXT, edits)
        assert done.content.startswith("# Context\n*What is going on.*\n")
        assert [line for line in CONTEXT.splitlines() if line.startswith("## ")] == [
            line for line in done.content.splitlines() if line in CONTEXT.splitlines() and line.startswith("## ")
        ][:3]
        assert all(line in CONTEXT for line in done.explained([]))
