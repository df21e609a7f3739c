"""Output of `bridge deploy`: on a terminal, and in a log."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from bridge.commands.steps import Steps


def shown(*steps: tuple[str, str], is_terminal: bool) -> str:
    screen = StringIO()
    console = Console(file=screen, force_terminal=is_terminal, color_system=None, highlight=False, width=200)
    with Steps(console) as show:
        for phase, words in steps:
            show(phase, words)
    return screen.getvalue()


STEPS = (
    ("updating", "Sending the code."),
    ("updating", "Installing the packages."),
    ("updating", "Installing the packages: Collecting mcp"),
    ("updating", "Installing the packages: Collecting [red]tqdm[/red]"),
    ("updating", "Starting it."),
)


def test_log_gets_one_line_per_step() -> None:
    assert shown(*STEPS, ("done", "ada is deployed."), is_terminal=False).splitlines() == [
        "  Sending the code.",
        "  Installing the packages.",
        "  Starting it.",
        "✓ ada is deployed.",
    ]


def test_terminal_shows_durations_and_failures() -> None:
    screen = shown(*STEPS, ("failed", "It does not start."), is_terminal=True)
    for step in ("✓ Sending the code  0.0 s", "✓ Installing the packages  0.0 s", "✗ Starting it  0.0 s"):
        assert step in screen
    assert "✗ It does not start." in screen


def test_foreign_text_is_shown_verbatim() -> None:
    assert "✗ [bold]not[/bold] ours" in shown(("failed", "[bold]not[/bold] ours"), is_terminal=False)
