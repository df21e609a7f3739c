"""File edits in a curator answer: parsed leniently, logged with the lines that they target, and applied to those."""

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
    """Return a file after an answer that was given for `shown`."""
    logged = with_lines_meant(f"CONTEXT_MD_EDIT:\n{answer}\n", {"context.md": shown})
    response = parse_response(logged)
    assert response.unparsed == ()
    assert response.usable
    return apply_edits(now, response.edits["context.md"])


def test_lines_are_deleted_replaced_and_added() -> None:
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
def test_line_numbers_are_parsed_in_every_form(answer: str) -> None:
    assert edited(answer).content == CONTEXT.replace("- Send the invoices.\n- Call the bank.\n", "")


def test_lines_are_merged_and_split() -> None:
    assert "## Active tasks\n- Both are done.\n\n" in edited("REPLACE 5-6 | - Both are done.").content
    assert "- a\n- b\n- Call" in edited("REPLACE 5\n- a\n- b").content
    assert "dentist.\n- a\n- b\n" in edited("ADD Reminders\n- a\n- b").content
    assert edited("ADD Reminders | a").content.endswith("dentist.\n- a\n")


def test_project_lines_stay_grouped_under_heading() -> None:
    """The heading is removed with its last line."""
    added = edited("ADD Projects > shop | - Deploy: make ship\nADD Projects > bakery | - Rust.").content
    assert "- Branch: main only\n- Deploy: make ship\n### site" in added
    assert "- Served by nginx.\n### bakery\n- Rust.\n\n## Reminders" in added
    assert "### shop" not in edited("DELETE 10-11 | it ended").content
    assert "### shop" not in edited("DELETE 9-11 | it ended").content
    assert "### shop\n- Branch" in edited("DELETE 10 | wrong").content


def test_missing_heading_is_created() -> None:
    assert edited("ADD Decisions | - Use tea.").content.endswith("\n\n## Decisions\n- Use tea.\n")
    both = edited("ADD Decisions > shop | - a\nADD Decisions > shop | - b").content
    assert both.endswith("\n## Decisions\n### shop\n- a\n- b\n")


def test_added_line_survives_removal_of_its_anchor() -> None:
    done = edited("ADD Reminders | - 2026-12-01: tax.\nDELETE 16 | past")
    assert done.content.endswith("## Reminders\n- 2026-12-01: tax.\n")


def test_title_and_main_headings_stay() -> None:
    done = edited("DELETE 1-4 | away")
    assert done.content == CONTEXT
    assert len(done.missed) == 3


def test_edit_follows_its_line_when_moved() -> None:
    now = CONTEXT.replace("- Send the invoices.\n", "- New by hand.\n- Another.\n- Send the invoices.\n")
    assert edited("DELETE 5 | done", now=now).content == now.replace("- Send the invoices.\n", "")
    gone = edited("DELETE 5 | done", now=CONTEXT.replace("- Send the invoices.\n", ""))
    assert gone.content == CONTEXT.replace("- Send the invoices.\n", "")
    assert gone.missed == ("delete 5: the line is not there any more",)


def test_replacement_is_kept_when_its_line_is_gone() -> None:
    now = CONTEXT.replace("- Call the bank.\n", "")
    assert "- Call the bank on Monday.\n" in edited("REPLACE 6 | - Call the bank on Monday.", now=now).content


def test_bare_number_moves_nothing() -> None:
    (edits,) = parse_response("CONTEXT_MD_EDIT:\nDELETE 5 | done").edits.values()
    assert apply_edits(CONTEXT, edits) == Edited(CONTEXT, frozenset(), (), ("delete 5: there is no such line",))
    assert edited("DELETE 99 | done").missed == ("delete 99: there is no such line",)


def test_model_cannot_forge_edit_target() -> None:
    forged = "DELETE 5 | done\n< - Call the bank."
    assert edited(forged).content == CONTEXT.replace("- Send the invoices.\n", "")


def test_malformed_edit_is_reported_and_not_learned() -> None:
    response = parse_response("USER_MD_EDIT:\nADD Profile | - Ada.\nFACT [t1] The moon is cheese.\nI hope this helps!")
    assert response.learnings == ()
    assert response.unparsed == ("FACT [t1] The moon is cheese.", "I hope this helps!")
    (edit,) = response.edits["user.md"]
    assert (edit.path, edit.content) == (("Profile",), ("- Ada.",))


def test_full_file_overrides_edits_and_headers_combine() -> None:
    """One header may hold several edits."""
    response = parse_response("USER_MD_EDIT:\nADD Profile | - a\nUSER_MD_UPDATE:\n# User\n- b\n")
    assert (dict(response.files), dict(response.edits)) == ({"user.md": "# User\n- b\n"}, {})
    twice = parse_response("USER_MD_EDIT:\nADD Profile | - a\nUSER_MD_EDIT: ADD Profile | - b\n")
    assert [edit.content for edit in twice.edits["user.md"]] == [("- a",), ("- b",)]


def test_full_file_drops_copied_line_numbers() -> None:
    numbered = "".join(f"{at}| {line}\n" for at, line in enumerate(CONTEXT.splitlines(), start=1))
    logged = with_lines_meant(f"CONTEXT_MD_UPDATE:\n{numbered}- new\n", {"context.md": CONTEXT})
    assert parse_response(logged).files["context.md"] == f"{CONTEXT}- new\n"


LINES = st.sampled_from(
    ["DELETE 5 | x", "REPLACE 6-9 | - y", "ADD Projects > z | - w", "ADD New | v", "< - Call", "- more", "DELETE 1-400",
     "REPLACE 17", "ADD |", "## H", "NONE", "```", "\x00", "REPLACE 3 | <!-- pin -->"]
)  # fmt: skip


@given(st.lists(LINES | st.text(max_size=40), max_size=30).map("\n".join))
def test_arbitrary_answer_keeps_file_valid(answer: str) -> None:
    logged = with_lines_meant(f"CONTEXT_MD_EDIT:\n{answer}\n", {"context.md": CONTEXT})
    for edits in parse_response(logged).edits.values():
        done = apply_edits(CONTEXT, edits)
        assert done.content.startswith("# Context\n*What is going on.*\n")
        assert [line for line in CONTEXT.splitlines() if line.startswith("## ")] == [
            line for line in done.content.splitlines() if line in CONTEXT.splitlines() and line.startswith("## ")
        ][:3]
        assert all(line in CONTEXT for line in done.explained([]))
