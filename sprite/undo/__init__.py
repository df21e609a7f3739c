"""Change sets of turns: the files that each turn changed, with their contents, and their undo."""
