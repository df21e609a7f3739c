"""File edits in a curator answer: parsed leniently, and applied to the lines that they name by their first words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.curation.answer import parse_response, read_done
from sprite.curation.answer_files import Edit, EditedFile, Line, edits_between

CONTEXT = """\
# Context
*What is going on.*

## Active tasks
- Send the invoices.
- Call the bank.
- Call the plumber.

## Projects
### shop
- Tests: make test
- Branch: main only
### site
- Served by nginx.

<!-- pin -->
- Never call before ten.
<!-- /pin -->

## Reminders
- 2026-11-18: dentist.
"""


def applied(edits: tuple[Edit, ...], now: str = CONTEXT) -> tuple[str, list[str]]:
    """Return a file after edits, and why some were not applied."""
    file, missed = EditedFile(now), []
    for edit in edits:
        if edit.verb == "add":
            for line in edit.lines:
                file.add(edit.path, line.text)
            continue
        try:
            file.put(file.find(edit), [line.text for line in edit.lines])
        except ValueError as error:
            missed.append(str(error))
    return file.content, missed


def edited(answer: str, now: str = CONTEXT) -> str:
    """Return a file after an answer whose edits all apply."""
    response = parse_response(f"CONTEXT_MD_EDIT:\n{answer}\n")
    assert response.unparsed == []
    content, missed = applied(response.edits["context.md"], now)
    assert missed == []
    return content


WITHOUT_BANK = CONTEXT.replace("- Call the bank.\n", "")


@pytest.mark.parametrize(
    "answer",
    [
        'DELETE 6 "- Call the bank" | [t3] done',
        'DELETE "- Call the bank" | done',
        'delete line 6 "call  the BANK.": done',
        '- DELETE L6 "Call the bank…" | done | "it is done"',
        'REMOVE 6 "Call the b"',
        "**DELETE** 6 “- Call the bank” | done",
        # A wrong number beside the right words
        'DELETE 5 "- Call the bank" | done',
        'DELETE 999 "- Call the bank" | done',
        '```\nDELETE "Call the bank" | done\n```',
    ],
)
def test_line_is_named_by_first_words(answer: str) -> None:
    assert edited(answer) == WITHOUT_BANK


def test_number_decides_between_equal_beginnings() -> None:
    assert edited('DELETE 6 "- Call the" | done') == WITHOUT_BANK


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ('DELETE "- Call the" | done', "several lines begin like this"),
        ('DELETE 5 "- Call the" | done', "several lines begin like this"),
        ("DELETE 6 | done", "name the line by its first words, in quotation marks"),
        ('DELETE 6 "…" | done', "name the line by its first words, in quotation marks"),
        ('DELETE 6 "- Call the baker" | done', "no line begins like this"),
        ('DELETE 99 "- Sell the car" | done', "no line begins like this"),
        ('DELETE 1 "# Context" | x', "titles and main headings stay"),
        ('REPLACE 2 "*What is" | *Obey.*', "titles and main headings stay"),
        ('DELETE 9 "## Projects" | x', "titles and main headings stay"),
        ('DELETE 17 "- Never call" | x', "the user pinned this line"),
        ('REPLACE "- Never call" | [t1] - Call at six', "the user pinned this line"),
        ('DELETE 16 "<!-- pin" | x', "the user pinned this line"),
        ('DELETE "<!-- /pin -->" | x', "the user pinned this line"),
    ],
)
def test_edit_of_other_line_is_refused(edit: str, reason: str) -> None:
    response = parse_response(f"CONTEXT_MD_EDIT:\n{edit}")
    assert applied(response.edits["context.md"]) == (CONTEXT, [reason])


def test_line_cannot_be_deleted_twice() -> None:
    response = parse_response('CONTEXT_MD_EDIT:\nDELETE "- Call the bank" | x\nDELETE "- Call the bank" | x')
    assert applied(response.edits["context.md"]) == (WITHOUT_BANK, ["no line begins like this"])


def test_lines_are_replaced_split_and_added() -> None:
    assert edited('REPLACE "- Call the bank" | [t4] Call the bank on Monday. | "Monday"') == CONTEXT.replace(
        "bank.", "bank on Monday."
    )
    assert "- a\n- b\n- Call the b" in edited('REPLACE 5 "- Send"\n- a\n- b')
    assert edited("ADD Reminders\n- a\n- [t4] b").endswith("dentist.\n- a\n- b\n")
    assert edited("ADD ## Reminders: | a").endswith("## Reminders:\n- a\n")
    assert edited("ADD **reminders** | a").endswith("dentist.\n- a\n")


def test_project_lines_stay_grouped_under_heading() -> None:
    """The heading is removed with its last line."""
    added = edited("ADD Projects > shop | - Deploy: make ship\nADD Projects > bakery | - Rust.")
    assert "- Branch: main only\n- Deploy: make ship\n### site" in added
    assert "### bakery\n- Rust.\n\n## Reminders" in added
    assert "### shop" not in edited('DELETE "- Tests:" | it ended\nDELETE "- Branch:" | it ended')
    assert "### shop\n- Branch" in edited('DELETE "- Tests:" | wrong')


def test_missing_heading_is_created() -> None:
    assert edited("ADD Decisions | - Use tea.").endswith("\n\n## Decisions\n- Use tea.\n")
    both = edited("ADD Decisions > shop | - a\nADD Decisions > shop | - b")
    assert both.endswith("\n## Decisions\n### shop\n- a\n- b\n")


def test_added_line_survives_removal_of_its_anchor() -> None:
    done = edited('ADD Reminders | - 2026-12-01: tax.\nDELETE "- 2026-11-18" | past')
    assert done.endswith("## Reminders\n- 2026-12-01: tax.\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[t31] - Prefers tea | "I prefer tea"', Line("- Prefers tea", 31, None, "I prefer tea")),
        ("- [t31] Prefers tea", Line("- Prefers tea", 31)),
        ("[t31, t32] Prefers tea", Line("Prefers tea", 31)),
        ("[turn 31]: Prefers tea", Line("Prefers tea", 31)),
        ("[L12] - Prefers tea", Line("- Prefers tea", None, 12)),
        ("- Prefers tea | or mate", Line("- Prefers tea | or mate")),
        ("- Prefers tea | “tea,\tplease”", Line("- Prefers tea", quote="tea, please")),
        ('- Counts with wc | "cat a | wc -l"', Line("- Counts with wc", quote="cat a | wc -l")),
        ('- Says | "no" | "yes"', Line('- Says | "no"', quote="yes")),
    ],
)
def test_citation_and_quote_of_line_are_read(text: str, line: Line) -> None:
    (edit,) = parse_response(f"USER_MD_EDIT:\nADD Profile | {text}").edits["user.md"]
    assert edit.lines == (line,)


@pytest.mark.parametrize(
    ("line", "ids", "turn", "reason", "quote"),
    [
        ("DONE L61 | [t33] sent", (61,), 33, "sent", None),
        ('- **DONE** L61, L62 and L61: [t33] sent | "I sent both"', (61, 62), 33, "sent", "I sent both"),
        ("done [L61] | sent", (61,), None, "sent", None),
        ("DONE L61", (61,), None, "", None),
        ('DONE L61 "Send the" | [t33] sent | "sent it"', (61,), 33, "sent", "sent it"),
    ],
)
def test_done_line_is_read(line: str, ids: tuple[int, ...], turn: int | None, reason: str, quote: str | None) -> None:
    done = read_done(line)
    assert done is not None
    assert (done.ids, done.why.turn_id, done.why.text, done.why.quote) == (ids, turn, reason, quote)
    for answer in (line, f"CONTEXT_MD_EDIT:\n{line}", f'CONTEXT_MD_EDIT:\nDELETE "x" | y\n{line}'):
        assert parse_response(answer).done == [done]


@pytest.mark.parametrize("line", ["DONE", "DONE with L61", "DONE 61 | sent", "It is DONE L61", "DONE L61 was sent"])
def test_other_text_is_no_done_line(line: str) -> None:
    assert read_done(line) is None


def test_malformed_edit_is_reported_and_not_learned() -> None:
    response = parse_response("USER_MD_EDIT:\nADD Profile | - Ada.\nFACT [t1] The moon is cheese.\nI hope this helps!")
    assert response.learnings == []
    assert response.unparsed == ["FACT [t1] The moon is cheese.", "I hope this helps!"]
    (edit,) = response.edits["user.md"]
    assert (edit.path, edit.lines) == (("Profile",), (Line("- Ada."),))


def test_full_file_overrides_edits_and_headers_combine() -> None:
    """One header may hold several edits."""
    response = parse_response("USER_MD_EDIT:\nADD Profile | - a\nUSER_MD_UPDATE:\n# User\n- b\n")
    assert (dict(response.files), dict(response.edits)) == ({"user.md": "# User\n- b\n"}, {})
    twice = parse_response("USER_MD_EDIT:\nADD Profile | - a\nUSER_MD_EDIT: ADD Profile | - b\n")
    assert [edit.lines[0].text for edit in twice.edits["user.md"]] == ["- a", "- b"]


# Complete files are compared with the present one.


@pytest.mark.parametrize(
    ("new", "edits"),
    [
        (CONTEXT, []),
        (CONTEXT.replace("- Send", "-   Send").replace("## Active tasks", "## Tasks\n\n"), []),
        ("".join(f"{at}| {line}\n" for at, line in enumerate(CONTEXT.splitlines(), start=1)), []),
        (CONTEXT.replace("*What is going on.*\n", ""), []),
        (CONTEXT.replace("the bank.", "the bank on Monday."), ["replace 6 '- Call the bank.'"]),
        (WITHOUT_BANK, ["delete 6 '- Call the bank.'"]),
        (CONTEXT.replace("make test\n", "make test\n- Deploy: ship\n"), ["add Projects > shop"]),
        (CONTEXT.replace("the bank.", "Ida, as agreed."), ["add Active tasks", "delete 6 '- Call the bank.'"]),
        (CONTEXT.replace("- Call the bank.\n", "") + "- Call the bank.\n", []),
        ("- Ride a bicycle.\n" + CONTEXT, ["add Notes"]),
    ],
    ids="same spaces numbers motto reworded deleted added exchanged moved top".split(),
)
def test_complete_file_is_read_as_edits(new: str, edits: list[str]) -> None:
    found = edits_between(CONTEXT, new)
    assert [str(edit) for edit in found] == edits
    content, missed = applied(found)
    assert missed == []
    assert edits_between(content, new) == ()


def test_equal_lines_of_complete_file_are_counted() -> None:
    assert [edit.verb for edit in edits_between("# A\n\n- x one\n- x one\n", "# A\n\n- x one\n")] == ["delete"]


def test_complete_file_cites_turns() -> None:
    (edit,) = edits_between(CONTEXT, f'{CONTEXT}- [t4] Pay the tax. | "pay it"\n')
    assert edit.lines == (Line("- Pay the tax.", 4, None, "pay it"),)


LINES = st.sampled_from(
    ['DELETE 5 "- Send" | x', 'REPLACE 6 "- Call the bank" | - y', "ADD Projects > z | - w", "ADD New | v", "- more",
     'DELETE 1 "# Context"', 'REPLACE 17 "- Never"', "ADD |", "## H", "NONE", "```", "\x00",
     'REPLACE "- Served" | <!-- pin -->']
)  # fmt: skip


@given(st.lists(LINES | st.text(max_size=40), max_size=30).map("\n".join))
def test_arbitrary_answer_keeps_headings_and_pins(answer: str) -> None:
    response = parse_response(f"CONTEXT_MD_EDIT:\n{answer}\n")
    for edits in (response.edits.get("context.md", ()), edits_between(CONTEXT, answer)):
        content, _ = applied(edits)
        assert content.startswith("# Context\n*What is going on.*\n")
        assert "<!-- pin -->\n- Never call before ten.\n<!-- /pin -->\n" in content
        headings = [line for line in CONTEXT.splitlines() if line.startswith("## ")]
        assert [line for line in content.splitlines() if line in headings][: len(headings)] == headings


@pytest.mark.parametrize(
    ("line", "turns"),
    [
        ("OFF_RECORD [t34]", (34,)),
        ("- **OFF_RECORD** t34, t36 | between us", (34, 36)),
        ("OFF_RECORD", ()),
        ("OFF_RECORDS [t34]", ()),
        ("off the record", ()),
    ],
)
def test_turns_off_record_are_read(line: str, turns: tuple[int, ...]) -> None:
    for answer in (line, f"USER_MD_EDIT:\n{line}"):
        response = parse_response(answer)
        assert response.off_record == list(turns)
        assert bool(response.unparsed) is not bool(turns)
