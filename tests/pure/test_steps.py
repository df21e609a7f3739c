"""Output of `bridge deploy`."""

from __future__ import annotations

from io import StringIO

from bridge.commands.archive import Steps


def test_each_step_is_one_line() -> None:
    screen = StringIO()
    show = Steps(screen)
    for phase, words in (
        ("updating", "Sending the code."),
        ("updating", "Installing the packages."),
        ("updating", "Installing the packages: Collecting mcp"),
        ("updating", "Installing the packages: Collecting [red]tqdm[/red]"),
        ("updating", "Starting it."),
        ("failed", "It does not start."),
        ("done", "[bold]ada[/bold] is deployed."),
    ):
        show(phase, words)
    assert screen.getvalue().splitlines() == [
        "  Sending the code.",
        "  Installing the packages.",
        "  Starting it.",
        "✗ It does not start.",
        "✓ [bold]ada[/bold] is deployed.",
    ]
