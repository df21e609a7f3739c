"""The agent's memory: capture of turns, curation, projection, search and forgetting."""

__all__ = [
    "action_rows",
    "actions",
    "answers",
    "database",
    "decision",
    "files",
    "folders",
    "hand_changes",
    "learning_index",
    "opening",
    "projection",
    "query",
    "rule_rows",
    "sections",
    "words",
]
