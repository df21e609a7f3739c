"""workspace.db (cards, stacks, chat, events) and the person's files."""

__all__ = ["database", "feed", "file_changes", "user_files"]
