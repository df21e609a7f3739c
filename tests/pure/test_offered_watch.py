"""A mission as another program follows it."""

from __future__ import annotations

from sprite.mcp.tools import MissionWatch
from sprite.protocol.events import Complete, Failed, Interrupted, Started, ToolUse, WholeText
from sprite.protocol.messages import CanvasUpdate, PermissionRequest
from sprite.protocol.shapes import Block


def drawing(card_id: str, command: str = "create_card") -> CanvasUpdate:
    blocks = [Block("1", "text", {"content": "x"})]
    return CanvasUpdate(command, card_id, "s", card_id, "notes", blocks)  # type: ignore[arg-type]


def test_watch_reports_progress_of_its_mission_only() -> None:
    watch = MissionWatch("m")
    assert watch.hear(Started("other")) is None
    assert watch.hear(drawing("before")) is None
    assert watch.hear(Started("m")) == "The agent has begun."
    assert watch.hear(ToolUse("m", "t", "Bash", {"command": "ls\n -l"})) == "Bash ls -l"
    assert watch.hear(PermissionRequest("r", "m", "Write", {})) == (
        "The agent waits for the person's permission to use Write."
    )
    assert watch.hear(WholeText("m", "So\nit goes." + "x" * 5_000)) == ("So it goes." + "x" * 289 + "…")
    watch.hear(Complete("other", "Not this one.", None, None, 1))
    assert watch.end is None
    for command in ("create_card", "update_card"):
        watch.hear(drawing("c1", command))
    watch.hear(drawing("c2"))
    watch.hear(drawing("c2", "close_card"))
    watch.hear(Complete("m", "Done.", None, None, 1))
    assert watch.end is not None
    assert (watch.end.outcome, watch.end.text, [card.card_id for card in watch.end.drawn]) == (
        "complete",
        "Done.",
        ["c1"],
    )
    watch.hear(Interrupted("m"))
    assert watch.end.outcome == "complete", "a mission ends once"


def test_mission_end_of_each_kind_is_reported() -> None:
    for ending, outcome, text in (
        (Interrupted("m"), "interrupted", ""),
        (Failed("m", "busy", "The model is busy.", retryable=True), "error", "The model is busy."),
    ):
        watch = MissionWatch("m")
        watch.hear(ending)
        assert watch.end is not None
        assert (watch.end.outcome, watch.end.text) == (outcome, text)
