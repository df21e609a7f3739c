"""The agent's memory: capture of turns, curation, projection, search and forgetting."""

__all__ = [
    "action_rows",
    "actions",
    "answers",
    "apply",
    "database",
    "decision",
    "files",
    "folders",
    "hand_changes",
    "opening",
    "projection",
    "query",
    "rule_rows",
    "sections",
    "words",
]
