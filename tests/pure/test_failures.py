"""The table of model failures."""

from __future__ import annotations

import pytest

from sprite.common.failures import Failure, failure

#: Words of the CLI and the API that no person should read.
RAW = ("API Error", "Request ID", "ede_", "CLAUDE_CODE_MAX", "req_", "try again", "127.0.0.1", "https:", "{")


@pytest.mark.parametrize(
    ("text", "status", "code", "words", "action"),
    [
        ("Not logged in · Please run /login", None, "unauthorized_model", "set ANTHROPIC_API_KEY", "settings"),
        ("Invalid API key", 401, "unauthorized_model", "check ANTHROPIC_API_KEY", "settings"),
        ("Not logged in · Please run /login", 401, "unauthorized_model", "CLAUDE_CODE_OAUTH_TOKEN", "settings"),
        ("Failed to authenticate: OAuth token revoked.", 403, "unauthorized_model", "OAUTH_TOKEN", "settings"),
        ("Login expired · Please run /login", None, "unauthorized_model", "OAUTH_TOKEN", "settings"),
        ("Your org has disabled Claude subscription access", 403, "unauthorized_model", "OAUTH_TOKEN", "settings"),
        ("API Error: 400 This organization has been disabled.", 400, "no_credit", "console", "settings"),
        ("API Error: 400 You have reached your specified API usage limits.", 400, "no_credit", "limit", "settings"),
        ("API Error: 402 Billing", 402, "no_credit", "no credit", "settings"),
        ("Credit balance is too low", 400, "no_credit", "no credit", "settings"),
        ("API Error: Opus 5's safeguards flagged this. Request ID: req_1", None, "declined", "another way", "change"),
        (
            "API Error: Claude's response exceeded the 128000 output token maximum. Set CLAUDE_CODE_MAX_OUTPUT_TOKENS.",
            *(None, "answer_too_long", "in parts", "change"),
        ),
        ("API Error: The model has reached its context window limit.", None, "context_full", "longer", "new_session"),
        ("Prompt is too long", 400, "context_full", "new session", "new_session"),
        (
            "Prompt is too long · automatic compaction failed: API Error: 529 Overloaded. Try again",
            *(None, "overloaded", "overloaded", "retry"),
        ),
        (
            "Prompt is too long · automatic compaction failed: Invalid API key",
            None,
            "unauthorized_model",
            "",
            "settings",
        ),
        ("Error during compaction: API Error: 400 Bad", None, "invalid_request", "invalid", "new_session"),
        ("Not enough messages to compact.", None, "bad_request", "nothing", "change"),
        ("[ede_diagnostic] result_type=assistant stop_reason=pause_turn", None, "agent_error", "continue", "change"),
        ("[ede_diagnostic] result_type=user last=tool_result", None, "agent_error", "could not finish", "retry"),
        ("API Error: Connection dropped (ECONNRESET). Check ANTHROPIC_BASE_URL", None, "model_error", "broke", "retry"),
        ("API Error: Overloaded", None, "overloaded", "overloaded", "retry"),
        ("API Error: 529 busy. Check your inference gateway (127.0.0.1:4).", 529, "overloaded", "moment", "retry"),
        ("API Error: 502 The model's API refused the bridge's key.", 502, "unauthorized_model", "needs", "settings"),
        ("API Error: 401 The token is unknown or was revoked.", 401, "unauthorized_model", "restart", "settings"),
        ("API Error: 429 Calls in flight reserve the rest of it.", 429, "rate_limited", "Other calls", "retry"),
        ("API Error: 429 This sprite has used its 60 calls for this minute.", 429, "rate_limited", "many", "retry"),
        ("You've hit your 5-hour limit · resets 6am (UTC)", 429, "plan_limit", "Claude plan", "settings"),
        ("You're out of extra usage · add more", 429, "plan_limit", "Claude plan", "settings"),
        ("Your org is out of usage · contact your admin", 429, "plan_limit", "Claude plan", "settings"),
        (
            "API Error: 403 This sprite may not use the model 'x'.",
            403,
            "forbidden_model",
            "for this session",
            "settings",
        ),
    ],
)
def test_failure_is_told_by_table(text: str, status: int | None, code: str, words: str, action: str) -> None:
    found = failure(text, status)
    assert (found.code, found.action, found.details) == (code, action, "")
    assert words in found.message
    assert not any(raw in found.message for raw in RAW)


def test_budget_refusal_keeps_amount_and_day() -> None:
    words = (
        "The day's budget of $5.00 is used up ($5.01 spent). It resets on 2026-11-24 at 00:00 UTC; "
        "you can raise it for today."
    )
    found = failure(f"API Error: 402 {words} Request ID: req_1", 402)
    assert found == Failure("budget_used_up", words, "raise_limit")


def test_month_budget_refusal_offers_no_raise() -> None:
    words = (
        "The month's budget of $50.00 is used up ($50.01 spent). It resets on 2026-12-01 at 00:00 UTC; "
        "whoever runs this bridge can raise it."
    )
    found = failure(f"API Error: 402 {words} Request ID: req_1", 402)
    assert found == Failure("budget_used_up", words, "settings")


def test_unknown_failure_is_short_with_details() -> None:
    text = (
        'API Error: 418 Teapots are short {"type":"error"} Request ID: req_011C. Try again in a moment. '
        "Set CLAUDE_CODE_X=1 (127.0.0.1:80)."
    )
    found = failure(text, 418)
    assert (found.message, found.action) == ("The model failed: Teapots are short.", "change")
    assert found.details == text
    assert failure("Odd end", None).message == "The model failed: Odd end. Send it again in a moment."
    assert failure("", 418).message == "The model failed: it gave no reason."
