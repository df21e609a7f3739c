"""The one table of model failures: a code, a sentence and an action for each (pure).

It covers the texts of the CLI, the statuses of the API and the SDK, and the refusals of the bridge's proxy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

#: A remedy: sending it again, other words, a new session, a setting of the operator, or a higher limit for today.
Action = Literal["retry", "change", "new_session", "settings", "raise_limit"]

#: Error code of a turn that ends because the budget is used up.
BUDGET_USED_UP = "budget_used_up"
NO_KEY = "set ANTHROPIC_API_KEY where the sprite is started, or use `make run`, which needs none"
_ADVICE: dict[Action, str] = {"retry": " Send it again in a moment.", "new_session": " Begin a new session."}
_MAX_DETAILS, _MAX_SHORT = 1000, 120


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of the model, for people; `details` is the original text if it is unknown."""

    code: str
    sentence: str
    action: Action
    details: str = ""

    @property
    def message(self) -> str:
        """Return the sentence, followed by what the person can do."""
        return self.sentence + _ADVICE.get(self.action, "")

    @property
    def retryable(self) -> bool:
        """Return whether sending the same message again may succeed."""
        return self.action == "retry"


_OTHER_MODEL = "choose another model for this session, or set SPRITE_MODEL"
_BAD_KEY = "The model's API rejects the key or login: check ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, and restart."
_NO_CREDIT = "The account of the model's API has no credit: add some, or set another ANTHROPIC_API_KEY."
_FULL = "The conversation is longer than the model can read."
_NOT_KNOWN = "The bridge does not know this sprite's token: restart the sprite from the bridge."
NO_ANSWER = Failure("no_answer", "No answer came.", "retry")
#: By a pattern of the text: code, sentence, action; the first match wins. An empty sentence stands for the matched
#: text, which is the bridge's own.
_BY_TEXT: tuple[tuple[str, str, str, Action], ...] = (
    (r"The day's budget of \$[^\n]*? raise it for today\.", BUDGET_USED_UP, "", "raise_limit"),
    (r"The month's budget of \$[^\n]*? raise it\.", BUDGET_USED_UP, "", "settings"),
    (r"Calls in flight reserve the rest", "rate_limited", "Other calls hold the rest of the budget for now.", "retry"),
    (r"calls in flight, the max|calls for this minute|as it can", "rate_limited", "There are too many calls.", "retry"),
    (r"token is unknown or was revoked", "unauthorized_model", _NOT_KNOWN, "settings"),
    (r"the bridge's key", "unauthorized_model", "The bridge needs a valid ANTHROPIC_API_KEY.", "settings"),
    (r"BASE_URL redirects", "model_error", "ANTHROPIC_BASE_URL of the bridge is not the model's address.", "settings"),
    (r"may not use the model", "forbidden_model", f"The bridge does not allow this model: {_OTHER_MODEL}.", "settings"),
    (r"The price of .* is not", "forbidden_model", f"The model has no known price: {_OTHER_MODEL}.", "settings"),
    (r"bridge's database|bridge is stopping", "model_error", "The bridge is not ready.", "retry"),
    (r"messages to compact", "bad_request", "There is nothing to compact yet.", "change"),
    (r"OAuth|Invalid API key|subscription access|ogin (?:expired|reached)", "unauthorized_model", _BAD_KEY, "settings"),
    (
        r"You've (?:hit|reached) your|out of (?:extra )?usage|seat type|usage (?:allocation|credits)|usage limit is",
        "plan_limit",
        "Your Claude plan has no usage left until its limit resets.",
        "settings",
    ),
    (r"[Cc]redit balance|because of billing", "no_credit", _NO_CREDIT, "settings"),
    (
        r"API usage limit|disabled organization|organization has been disabled",
        "no_credit",
        "The account of the model's API is at its limit or disabled: see its console, or set another key.",
        "settings",
    ),
    (
        r"[Ss]afeguards (?:flagged|stopped)|can't (?:help with|respond to) this|Usage Policy|[Oo]utput blocked",
        "declined",
        "The model declined to answer. Say it in another way.",
        "change",
    ),
    (r"output token maximum", "answer_too_long", "The answer grew too long. Ask for it in parts.", "change"),
    (r"context window limit|[Pp]rompt is too long|exceed context", "context_full", _FULL, "new_session"),
    (r"[Ii]mage (?:was|exceeds|dim)|not process|PDF", "bad_attachment", "The model cannot read a file.", "new_session"),
    (r"stop_reason=pause_turn", "agent_error", "The model paused in its answer. Tell it to continue.", "change"),
    (r"^\[ede_diagnostic\]", "agent_error", "The agent could not finish this turn.", "retry"),
    (r"concurrency issues|tool_use|tool_result", "conversation_broken", "The conversation is damaged.", "new_session"),
)
#: As above, where no status says more.
_BY_LOOSE_TEXT: tuple[tuple[str, str, str, Action], ...] = (
    (r"/login|Not logged in", "unauthorized_model", f"There is no key for the model: {NO_KEY}.", "settings"),
    (r"[Oo]verloaded", "overloaded", "The model is overloaded.", "retry"),
    (r"[Rr]ate limit", "rate_limited", "The model's rate limit is reached.", "retry"),
    (r"in time|[Tt]imed out|took too long", "model_error", "The model did not answer in time.", "retry"),
    (r"[Ii]nternal server error|API failed", "model_error", "The model's service has an error.", "retry"),
    (r"mid-response", "model_error", "The model broke off in the middle of its answer.", "retry"),
    (r"[Cc]onnect|reached|broke off|ECONN|[Ss]tream", "model_error", "The connection to the model broke off.", "retry"),
    (r"^$", "agent_error", "The agent could not finish this turn.", "retry"),
)
#: Activity of the CLI when the model failed. The text of the failure follows.
_DOING = re.compile(
    r"^.*?(?:automatic compaction failed|Error during compaction|Agent terminated early due to an API error): ",
    re.DOTALL,
)
_STATUS = re.compile(r"(?:API Error: |HTTP )(\d{3})\b")
_SERVER_FAULT = 500
_BY_STATUS: dict[int, tuple[str, str, Action]] = {
    400: ("invalid_request", "The model's API refused the request as invalid.", "new_session"),
    401: ("unauthorized_model", _BAD_KEY, "settings"),
    402: ("no_credit", _NO_CREDIT, "settings"),
    403: ("forbidden_model", f"The key does not permit this: check ANTHROPIC_API_KEY, or {_OTHER_MODEL}.", "settings"),
    404: ("unknown_model", f"This key cannot use the model: {_OTHER_MODEL}.", "settings"),
    408: ("model_error", "The model did not answer in time.", "retry"),
    413: ("request_too_large", "The conversation is larger than the model accepts.", "new_session"),
    429: ("rate_limited", "The model's rate limit is reached.", "retry"),
    **dict.fromkeys((409, 500, 502, 503), ("model_error", "The model's service has an error.", "retry")),
    504: ("model_error", "The model did not answer in time.", "retry"),
    529: ("overloaded", "The model is overloaded.", "retry"),
}
#: Parts of a text that mean nothing to a person: ids, addresses, settings of the CLI, and advice for its terminal.
_NOISE = re.compile(
    r"API Error:?(?: \d{3})?|\[ede_diagnostic\]|(?:Request|Message) ID:? ?\S*|\b(?:req|msg)_\w+|https?://\S+|\{.*"
    r"|[^.]*\b(?:CLAUDE|ANTHROPIC)_[A-Z_]+[^.]*\.?|[^.·]*\b[Tt]ry again\b[^.]*\.?|\([^)]*\)",
    re.DOTALL,
)


def failure(text: str, status: int | None = None) -> Failure:
    """Return the Failure for an error text of the CLI or the API, and the HTTP status if there is one."""
    cause = _DOING.sub("", text)
    if status is None and (found := _STATUS.search(cause)):
        status = int(found[1])
    row = _found(cause, _BY_TEXT) or _BY_STATUS.get(status or 0)
    if row is None and status is None:
        row = _found(cause, _BY_LOOSE_TEXT)
    if row is not None:
        return Failure(*row)
    short = " ".join(_NOISE.sub(" ", cause).split())[:_MAX_SHORT].strip(" .:·") or "it gave no reason"
    is_refused = status is not None and status < _SERVER_FAULT
    return Failure(
        "model_error", f"The model failed: {short}.", "change" if is_refused else "retry", text.strip()[:_MAX_DETAILS]
    )


def _found(text: str, rows: tuple[tuple[str, str, str, Action], ...]) -> tuple[str, str, Action] | None:
    for pattern, code, sentence, action in rows:
        if found := re.search(pattern, text):
            return code, sentence or found[0], action
    return None
