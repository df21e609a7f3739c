"""Change sets of turns: the files that each turn changed, with their contents, and their undo."""

__all__ = ["contents", "held", "scan", "tracker", "undo"]
