"""The agent and the curator against every answer of the Messages API: stop reasons, errors and broken streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sprite.config import Settings
from sprite.curation.model import Answer, Asked, CuratorModel, RefusedError, UnusableAnswerError
from sprite.curation.prompt import CuratorPrompt
from sprite.errors import ModelError
from tests import api_grammar
from tests.harness import Client, Message
from tests.inspection import SharedSprite, observation_of, shared_sprite
from tests.scripted_model import OfflineModel, Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = str(api_grammar.TEXT["text"])
#: End of a turn by stop reason: text of the answer, or (error code, retryable).
ENDS: dict[str, str | tuple[str, bool]] = {
    "end_turn": TEXT,
    "max_tokens": ("answer_too_long", False),
    "stop_sequence": TEXT,
    "tool_use": "done",
    "pause_turn": ("agent_error", False),
    "refusal": ("declined", False),
    "refusal at once": ("declined", False),
    "model_context_window_exceeded": ("context_full", False),
    "fallback": TEXT,
    "empty": ("no_answer", True),
    "thinking": ("no_answer", True),
}
#: End of a turn by type of API error: (error code, retryable).
FAILS = {
    "invalid_request_error": ("invalid_request", False),
    "authentication_error": ("unauthorized_model", False),
    "billing_error": ("no_credit", False),
    "permission_error": ("forbidden_model", False),
    "not_found_error": ("unknown_model", False),
    "conflict_error": ("model_error", True),
    "request_too_large": ("request_too_large", False),
    "rate_limit_error": ("rate_limited", True),
    "api_error": ("model_error", True),
    "timeout_error": ("model_error", True),
    "overloaded_error": ("overloaded", True),
}
#: Internal words of the CLI and the API that no person should see.
INTERNAL = ("API Error", "ede_", "CLAUDE_CODE_MAX", "ANTHROPIC_BASE", "gateway", "req_", "msg_", "127.0.0.1", "/login")
ASKED = Asked(1, 2, 0, again=False)
PROMPT = CuratorPrompt("You are Sprite's memory curator", "<turn id=1>Hello</turn>", tokens=20, turns=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("answers")) as home:
        yield home


async def turn(home: SharedSprite, client: Client, step: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
    """Run a mission answered by this step; return its end event and its row in the log."""
    home.model.script = Script(agent=[{"for": "any", **step}])
    mission = client.send("mission", {"text": "Say something"})
    end = await client.end_of(mission)
    home.model.script = Script()
    told = [{**each["payload"], "details": ""} for each in client.received if each["type"] != "state_sync"]
    assert not any(word in str(told) for word in INTERNAL), told
    assert [event["event"] for event in client.events(mission)].count(end["event"]) == 1
    kept = observation_of(home.workspace, mission)
    assert kept["outcome"] == end["event"]
    shown = "".join(event["text"] for event in client.events(mission) if event["event"] == "text_delta")
    whole = "".join(event["text"] for event in client.events(mission) if event["event"] == "text")
    assert shown in whole, "the shown text is missing from the final text"
    return end, kept


@pytest.mark.parametrize("stop", api_grammar.STOPS)
async def test_agent_ends_turn_by_stop_reason(home: SharedSprite, stop: str) -> None:
    step = api_grammar.STOPS[stop]
    async with home.client() as client:
        end, kept = await turn(home, client, {**step, "times": 1 if stop == "tool_use" else -1})
    expected = ENDS[stop]
    if isinstance(expected, str):
        assert expected in end["text"]
    else:
        assert (end["code"], end["retryable"]) == expected
    assert (TEXT in kept["agent_response"]) is (api_grammar.TEXT in step["blocks"])


@pytest.mark.parametrize("kind", api_grammar.ERRORS)
async def test_agent_ends_turn_by_api_error(home: SharedSprite, kind: str) -> None:
    async with home.client() as client:
        end, _ = await turn(home, client, {"error": api_grammar.ERRORS[kind], "type": kind, "times": -1})
    assert (end["code"], end["retryable"]) == FAILS[kind]


#: A selection of breaks and places, retried and permanent; `make soak` runs them all.
BROKEN = {
    1: (
        "cut in_block",
        "ended after_delta",
        "between_blocks overloaded_error",
    ),
    -1: (
        "cut before_start",
        "ended in_block",
        "before_start api_error",
    ),
}


@pytest.mark.parametrize(
    ("broken", "times"),
    [
        pytest.param(broken, times, marks=[] if broken in BROKEN[times] else pytest.mark.soak)
        for times in BROKEN
        for broken in api_grammar.BREAKS
    ],
)
async def test_agent_survives_broken_stream(home: SharedSprite, broken: str, times: int) -> None:
    """Visible text is in the log even if the turn fails, and the next mission completes."""
    step = api_grammar.BREAKS[broken]
    async with home.client() as client:
        end, kept = await turn(home, client, {**step, "times": times})
        after = await client.mission("Hello again")
        assert after["event"] == "complete", after
    if end["event"] == "error":
        assert end["retryable"], end
    else:
        assert kept["agent_response"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"error": 529, "type": "overloaded_error"}, "The model is overloaded."),
        ({"error": 401, "message": "invalid x-api-key"}, "check ANTHROPIC_API_KEY"),
        ({"text": "No", "stop_reason": "refusal"}, "The model declined to answer."),
    ],
)
async def test_failed_subagent_has_same_words(home: SharedSprite, step: dict[str, Any], words: str) -> None:
    job = {"description": "greet", "prompt": "say hello", "run_in_background": False}
    home.model.script = Script(
        agent=[
            {"for": "subagent", "times": -1, **step},
            {"tool": "Agent", "input": job, "on": "prompt"},
            {"text": "It failed.", "on": "result"},
        ]
    )
    async with home.client() as client:
        mission = client.send("mission", {"text": "Say hello by another agent"})
        assert (await client.end_of(mission))["event"] == "complete"
    home.model.script = Script()
    (said,) = [event["summary"] for event in client.events(mission) if event["event"] == "tool_result"]
    assert words in said
    assert not any(word in said for word in (*INTERNAL, "HTTP", "https:"))


# --- the curator ---


async def asked(model: OfflineModel, step: dict[str, Any]) -> tuple[Answer | ModelError, list[str]]:
    """Return the result of one curator call, and the reasons of the failed calls."""
    lost: list[str] = []

    async def on_lost(_answer: Answer, reason: str, _asked: Asked | None) -> int:
        lost.append(reason)
        return len(lost)

    model.script = Script(curator=[{**step, "times": -1}])
    curator = CuratorModel(Settings(Path("/nowhere"), base_url=model.url, api_key="key"), on_lost)
    try:
        return await curator.ask(PROMPT, ASKED), lost
    except ModelError as error:
        return error, lost
    finally:
        await curator.close()


@pytest.mark.parametrize("stop", api_grammar.STOPS)
async def test_curator_accepts_only_complete_answers(home: SharedSprite, stop: str) -> None:
    facts = {"type": "text", "text": "FACT [t1]: a thing"}
    step = api_grammar.STOPS[stop]
    blocks = [facts if block is api_grammar.TEXT else block for block in step["blocks"]]
    came, lost = await asked(home.model, {**step, "blocks": blocks})
    if stop in {"end_turn", "stop_sequence", "fallback"}:
        assert isinstance(came, Answer)
        assert (came.text, lost) == (facts["text"], ["not logged"])
    else:
        assert isinstance(came, UnusableAnswerError)
        assert isinstance(came, RefusedError) is stop.startswith("refusal")
        reasons = {"refusal": "declined", "refusal at once": "declined", "empty": "empty", "thinking": "empty"}
        assert lost == [reasons.get(stop, "cut off")]


@pytest.mark.parametrize("kind", api_grammar.ERRORS)
async def test_curator_distinguishes_outage_from_refusal(home: SharedSprite, kind: str) -> None:
    came, lost = await asked(home.model, {"error": api_grammar.ERRORS[kind], "type": kind})
    assert isinstance(came, ModelError)
    is_about_turns = kind in {"invalid_request_error", "request_too_large"}
    assert isinstance(came, UnusableAnswerError) is is_about_turns
    assert bool(lost) is is_about_turns
    if not is_about_turns:
        assert came.retryable is FAILS[kind][1]


async def test_curator_retries_truncated_answer(home: SharedSprite) -> None:
    came, lost = await asked(home.model, {"text": "FACT", "cut": True})
    assert isinstance(came, ModelError)
    assert (isinstance(came, UnusableAnswerError), came.retryable, lost) == (False, True, [])
