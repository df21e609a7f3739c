"""A bridge's offers (see LinkState): the terminal's text and commands for them."""

from __future__ import annotations

from typing import Final

#: The text for each offer, shown after the problem.
ADVICE: Final = {
    "restore": "/restore makes your agent anew of it.",
    "replace": "/restore new gives the machine up, with whatever is on it alone, and makes your agent anew on another.",
    "choose": "/restore kept takes what is kept, /restore as-it-is goes on with the agent as it is now.",
}
#: Arguments of `/restore`, with the parameter for `POST /restore`.
WAYS: Final = {"": "restore", "new": "replace", "kept": "over", "as-it-is": "keep"}
