"""The language of rules: reading, writing and matching, for any text in bounded time."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.errors import PeerError
from sprite.rules.check import Book, Facts
from sprite.rules.condition import KEYS, MAX_VALUES, fits, fits_path, fits_time, parse, shown
from sprite.rules.shell import MAX_CHARS, UncertainError, read

NOON = datetime(2026, 12, 1, 12, 0)  # noqa: DTZ001 - the person's own wall clock

#: Words of people, without the quotes that end a value.
VALUES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters='"“”'), min_size=1, max_size=20
).filter(lambda value: not value.startswith("-") and value != "...")
CLAUSES = st.lists(
    st.tuples(
        st.booleans(), st.sampled_from([key for key in KEYS if key != "time"]), st.lists(VALUES, min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=5,
)
PIECES = (
    r"""git commit ' " \ $( ) ` ; && | ( { } < > -c sh bash env xargs A=b $A ${A} $' # eval é cd .. 2>&1 sudo""".split()
)
SHELL = st.lists(st.sampled_from([*PIECES, " ", " ", "<<E", "\nE\n", "\0"]), max_size=60).map("".join)


def is_about(rule: str, name: str = "Bash", folder: str | None = "/work", /, **tool_input: Any) -> bool | None:
    found = Book([(1, parse(rule))]).find(Facts(name, tool_input, folder, NOON))
    return (found[0].is_certain or None) if found else False


@given(CLAUSES, st.sampled_from(["stop", "ask"]))
def test_written_rule_reads_as_same(clauses: list[tuple[bool, str, list[str]]], action: str) -> None:
    parts = [
        f"{'not ' * is_not}{key} " + " or ".join(f'"{each}"' for each in values) for is_not, key, values in clauses
    ]
    try:
        rule = parse(f"{action} when {' and '.join(parts)}: because")
    except PeerError:
        keys = {key for is_not, key, _ in clauses if not is_not}
        counts = [sum(len(v) for n, k, v in clauses if (n, k) == clause[:2]) for clause in clauses]
        assert keys.isdisjoint({"tool", "command", "path", "host", "connection"}) or max(counts) > MAX_VALUES
        return
    assert (rule.action, rule.reason) == (action, "because")
    assert parse(f"{shown(rule)}: because") == rule


@given(st.text(max_size=300))
def test_any_text_is_rule_or_refused(text: str) -> None:
    for written in (text, f"stop when {text}", f'ask when command "git" and {text}'):
        try:
            parse(written)
        except PeerError:
            continue


@given(SHELL | st.text(max_size=200))
def test_any_command_is_read_or_refused(text: str) -> None:
    try:
        commands = read(text, "/work")
    except UncertainError:
        return
    assert all(command.words for command in commands)


@given(SHELL, CLAUSES)
def test_any_call_is_told_or_uncertain(text: str, clauses: list[tuple[bool, str, list[str]]]) -> None:
    parts = " and ".join(f"{'not ' * is_not}{key} " + " or ".join(f'"{v}"' for v in vs) for is_not, key, vs in clauses)
    try:
        rules = Book([(1, parse(f"stop when {parts}"))])
    except PeerError:
        return
    for facts in (
        Facts("Bash", {"command": text}, "/nowhere", NOON),
        Facts("Write", {"file_path": text, "content": text}, None, NOON),
        Facts(
            "mcp__connections__use_tool", {"connection": "mail", "tool": "send", "arguments": {"to": [text]}}, "/", NOON
        ),
    ):
        assert len(rules.find(facts)) <= 1


@pytest.mark.parametrize(
    "text",
    ["(" * 50_000, "$(" * 3_000, "sudo " * 6_000 + "git", "a;" * 20_000, "\\\n" * 16_000, "<<E\n" * 8_000, "`" * 9_999],
    ids=str.__len__,
)
def test_large_command_is_refused_or_read(text: str) -> None:
    try:
        assert len(read(text)) <= 400
    except UncertainError:
        assert len(text) > 400


def test_long_command_is_uncertain() -> None:
    assert is_about('stop when command "git"', command="git " + "x" * MAX_CHARS) is None
    assert is_about('stop when tool "Edit" and path "git/**"', command="git " + "x" * MAX_CHARS) is False
    assert is_about('stop when command "hg"', command="git " + "x" * MAX_CHARS) is False


@given(st.lists(st.sampled_from(["a", "b", "*", "ab"]), max_size=12).map("".join), st.text("ab", max_size=12))
def test_pattern_fits_like_fnmatch(pattern: str, value: str) -> None:
    from fnmatch import fnmatchcase

    assert fits(pattern, value) == fnmatchcase(value, pattern)


@pytest.mark.parametrize(
    ("pattern", "path", "is_fit"),
    [
        ("tests/**", "/work/shop/tests/unit/test_a.py", True),
        ("tests/**", "/work/shop/src/a.py", False),
        ("tests/*", "/work/tests/unit/test_a.py", False),
        ("*.lock", "/work/a/poetry.lock", True),
        ("/etc/**", "/etc/ssh/sshd_config", True),
        ("/etc/**", "/work/etc/a", False),
        ("~/Letters/*", f"{Path.home()}/Letters/a.md", True),
        ("a/**/z", "/a/b/c/z", True),
        ("a/**/z", "/a/b/c/y", False),
    ],
)
def test_path_pattern(pattern: str, path: str, is_fit: bool) -> None:
    assert fits_path(pattern, path) is is_fit


@pytest.mark.parametrize(
    ("span", "moment", "is_fit"),
    [
        ("Mon-Fri 09:00-17:00", "2026-12-01T12:00", True),
        ("Mon-Fri 09:00-17:00", "2026-12-05T12:00", False),
        ("22:00-06:00", "2026-12-01T23:00", True),
        ("Fri 22:00-06:00", "2026-12-05T05:00", True),
        ("Fri 22:00-06:00", "2026-12-04T05:00", False),
        ("Sat-Mon", "2026-11-30T00:00", True),
        ("Sunday", "2026-11-30T00:00", False),
    ],
)
def test_time_span(span: str, moment: str, is_fit: bool) -> None:
    assert fits_time(span, datetime.fromisoformat(moment)) is is_fit


@pytest.mark.parametrize(
    "text",
    [
        *(
            "stop everything",
            "stop when",
            'stop when branch "main"',
            'stop when time "Mon"',
            'stop when not tool "Bash"',
        ),
        *('stop when command "... commit"', 'stop when command "-f"', 'stop when tool "x" and time "25:00-26:00"'),
        *('stop when tool "Bash" and code "x"', 'stop when tool "a" or "' + "b" * 200 + '"', 'stop when regex "a+"'),
        'stop when tool "a" ' + 'or "b" ' * 20,
    ],
)
def test_wide_or_unknown_condition_is_refused(text: str) -> None:
    with pytest.raises(PeerError):
        parse(text)


def test_exception_needs_every_address() -> None:
    rule = 'stop when tool "mcp__mail__send" and not host "tilda@oxna.example"'
    send = "mcp__mail__send"
    assert not is_about(rule, send, to="Tilda <tilda@oxna.example>")
    assert is_about(rule, send, to=["tilda@oxna.example", "ceo@client.example"])
    assert is_about(rule, send, to="tilda@oxna.example", cc="ceo@client.example")
    assert is_about(rule, send, subject="no address")
    arguments = {"to": "ceo@client.example"}
    inner = {"connection": "mail", "tool": "send", "arguments": arguments}
    assert is_about(rule, "mcp__connections__use_tool", **inner)
    assert is_about('stop when connection "mail"', "mcp__connections__use_tool", **inner)
    assert is_about(rule, "mcp__connections__mail__send", **arguments)
    assert is_about('stop when connection "mail"', "mcp__connections__mail__send", **arguments)


def test_home_folder_has_two_spellings() -> None:
    for pattern in ("~/Letters/**", f"{Path.home()}/Letters/**"):
        for path in ("~/Letters/a", f"{Path.home()}/Letters/a"):
            assert is_about(f'stop when path "{pattern}"', command=f"rm {path}")
            assert is_about(f'stop when path "{pattern}"', "Edit", file_path=path)


def test_only_new_word_begins_comment() -> None:
    for text in ("echo \\ # && git commit", "echo $(true)# && git commit", "echo a\\\n# && git commit"):
        assert is_about('stop when command "git commit"', command=text)
    assert not is_about('stop when command "git commit"', command="echo x # && git commit")


def test_quote_in_path_changes_nothing() -> None:
    assert is_about("""stop when path "ada's/**\"""", "Edit", file_path="/work/ada's/a.md")
    assert is_about("""stop when path "ada's/**\"""", command='rm "ada\'s/a.md"')


def test_link_to_forbidden_path_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "link").symlink_to("tests")
    rule = 'stop when tool "Edit" and path "tests/**"'
    assert is_about(rule, "Edit", str(tmp_path), file_path=str(tmp_path / "link/a.py"))
    assert is_about(rule, "Edit", str(tmp_path), file_path="src/../tests/a.py")
    assert not is_about(rule, "Edit", str(tmp_path), file_path=str(tmp_path / "src/a.py"))


@pytest.fixture(name="repository")
def _repository(tmp_path: Path) -> Path:
    for name, branch in (("main", "main"), ("other", "feature/x")):
        (tmp_path / name / ".git/refs/heads/feature").mkdir(parents=True)
        (tmp_path / name / ".git/HEAD").write_text(f"ref: refs/heads/{branch}\n")
        (tmp_path / name / ".git/refs/heads/feature/x").write_text("0\n")
        (tmp_path / name / "src").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git commit", True),
        ("cd ../../other && git commit", False),
        ("git -C ../../other commit", False),
        ("cd ../../other; git -C ../main commit", True),
        ("git checkout -qb own && git commit", False),
        ("git switch feature/x && git commit", False),
        ("git switch absent && git commit", True),
        ("git checkout src/a.py && git commit", True),
        ("git -C ../../other checkout -b own; git commit", True),
        ("cd ../../other && git switch main && git commit", True),
        ("git commit -m 'main'", True),
        ("cd $SOMEWHERE && git commit", None),
        ("git --git-dir=/x commit", None),
        ("GIT_DIR=/x git commit", None),
        ("cd /nowhere && git commit", False),
    ],
)
def test_branch_is_that_of_command(repository: Path, command: str, expected: bool | None) -> None:
    rule, folder = 'stop when command "git commit" and branch "main"', str(repository / "main/src")
    assert is_about(rule, "Bash", folder, command=command) is expected
    worktree = repository / "tree"
    worktree.mkdir(exist_ok=True)
    (worktree / ".git").write_text(f"gitdir: {repository}/main/.git\n")
    assert is_about(rule, "Bash", str(worktree), command="git commit")


def test_unreadable_branch_is_uncertain(repository: Path) -> None:
    (repository / "main/.git/HEAD").unlink()
    (repository / "main/.git/HEAD").mkdir()
    book = Book([(1, parse('stop when command "git commit" and branch "main"'))])
    (match,) = book.find(Facts("Bash", {"command": "git commit"}, str(repository / "main"), NOON))
    assert not match.is_certain


def test_stopping_rules_come_before_asking_ones() -> None:
    rules = [parse(f'{action} when command "git"') for action in ("ask", "stop")]
    found = Book(list(enumerate(rules))).find(Facts("Bash", {"command": "git status"}, os.sep, NOON))
    assert [match.rule for match in found] == [1, 0]
