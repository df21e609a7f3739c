"""What a bridge offers beside words on how its link is (see LinkState), as a terminal says it and takes it."""

from __future__ import annotations

from typing import Final

#: What is said of each offer, behind what has happened.
ADVICE: Final = {
    "restore": "/restore makes your agent anew of it.",
    "replace": "/restore new gives the machine up, with whatever is on it alone, and makes your agent anew on another.",
    "choose": "/restore kept takes what is kept, /restore as-it-is goes on with the agent as it is now.",
}
#: What is typed behind `/restore`, and the way that it is for `POST /restore`.
WAYS: Final = {"": "restore", "new": "replace", "kept": "over", "as-it-is": "keep"}
