"""workspace.db (cards, stacks, chat, events) and the person's files."""
