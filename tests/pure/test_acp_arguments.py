"""`python -m bridge acp` with invalid arguments: an error on stderr, and no output on stdout."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from bridge.__main__ import main

URL = ("--url", "https://sprite.example.org")


@pytest.fixture(autouse=True)
def nothing_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPRITE_TOKEN", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (URL, "set SPRITE_TOKEN"),
        (("--url", "nonsense"), "such as https://sprite.example.org"),
    ],
)
def test_invalid_arguments_are_reported_on_stderr(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["acp", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_help_states_purpose_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["acp", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("docs/editors.md", "it starts none", "not in the editor's folder", "--url", "--person"):
        assert words in printed
