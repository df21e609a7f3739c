"""Chat completions: parsing a request body into a mission, and rendering a turn as a completion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.api.completion_request import MAX_SYSTEM_CHARS, Asked, UnfitError, read
from bridge.api.completions import GrowingText, problem_of, usage_of
from bridge.api.missions import AskError
from bridge.client.turns import Turns
from sprite.curation.provenance.evidence import own_words
from sprite.protocol.events import (
    AnyAgentEvent,
    Complete,
    Failed,
    Interrupted,
    Started,
    TextDelta,
    ToolUse,
    Usage,
    WholeText,
)
from sprite.protocol.messages import MAX_MISSION_CHARS, LinkState, PermissionRequest


def body(*messages: Any, **fields: Any) -> bytes:
    said = list(messages) or [{"role": "user", "content": "Hello"}]
    return json.dumps({"model": "sprite", "messages": said} | fields).encode()


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def refused(data: bytes) -> UnfitError:
    with pytest.raises(UnfitError) as caught:
        read(data)
    return caught.value


# --- requests ---


def test_last_user_message_becomes_mission() -> None:
    """Earlier messages are not sent again."""
    asked = read(body(user("My name is Ada."), {"role": "assistant", "content": "Hello Ada."}, user("What is it?")))
    assert asked.mission().text == "What is it?"
    assert (asked.is_streamed, asked.with_usage, asked.ignored) == (False, False, [])


def test_lone_surrogate_becomes_question_mark() -> None:
    assert read(b'{"model": "sprite", "messages": [{"role": "user", "content": "so \\ud83d"}]}').text == "so ?"


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "Look"}, {"type": "text", "text": "at this."}]
    assert read(body(user(parts))).mission().text == "Look\n\nat this."


def test_system_message_is_included_as_app_text() -> None:
    """It never counts as the person's words."""
    asked = read(
        body(
            {"role": "system", "content": "Answer like a pirate.\n\nThe user is called Bob."},
            {"role": "developer", "content": [{"type": "text", "text": "Never say please."}]},
            user("What day is it?"),
            {"role": "system", "content": "  "},
        )
    )
    message = asked.mission()
    mission = message.text
    assert message.own == "What day is it?\n"
    assert mission.startswith("What day is it?\n\n")
    for words in ("Answer like a pirate.", "The user is called Bob.", "Never say please."):
        assert f"> {words}" in mission
        assert words not in own_words(mission)[0]
    assert "What day is it?" in own_words(mission)[0]


def test_sampling_and_unknown_parameters_are_ignored_by_name() -> None:
    asked = read(
        body(
            temperature=0.2,
            top_p=1,
            max_tokens=5,
            max_completion_tokens=None,
            stop=["x"],
            seed=1,
            user="ada",
            chat_id="1",
            **{"bad\r\nX-Header: 1": 1, "x" * 100: 1},
        )
    )
    assert asked.ignored == ["temperature", "top_p", "max_tokens", "stop", "seed", "chat_id"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("functions", [{"name": "f"}]),
        ("tool_choice", "required"),
        ("function_call", {"name": "f"}),
        ("response_format", {"type": "json_object"}),
        ("n", 2),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("modalities", ["text", "audio"]),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
    ],
)
def test_parameters_changing_answer_are_refused(field: str, value: Any) -> None:
    error = refused(body(**{field: value}))
    assert (error.status, error.param) == (400, field)
    assert field in str(error)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", []),
        ("tools", None),
        ("tool_choice", "auto"),
        ("response_format", {"type": "text"}),
        ("n", 1),
        ("modalities", ["text"]),
        ("logprobs", False),
    ],
)
def test_default_valued_parameters_are_accepted(field: str, value: Any) -> None:
    assert read(body(**{field: value})).ignored == []


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "assistant", "content": "Hi"}], "must be the person's"),
        ([user("Hello"), {"role": "assistant", "content": "Hel"}], "must be the person's"),
        ([user("Hello"), {"role": "tool", "content": "1", "tool_call_id": "x"}], "must be the person's"),
        ([{"role": "system", "content": "x"}], "must be the person's"),
        ([user("")], "empty"),
        ([user(" \n")], "empty"),
        ([user([])], "empty"),
        ([user([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}])], "not 'input_audio'"),
        ([user([{"type": "file", "file": {"file_id": "x"}}])], "not 'file'"),
        ([user([{"type": "image_url", "image_url": {"url": "data:,"}}])], "not 'image_url'"),
        ([user([{"text": "x"}])], "no type"),
        ([{"role": "system", "content": "x" * (MAX_SYSTEM_CHARS + 1)}, user("Hi")], "system messages"),
    ],
)
def test_invalid_mission_is_refused_in_words(messages: list[Any], words: str) -> None:
    error = refused(body(*messages))
    assert error.status == 400
    assert words in str(error)


def test_unknown_model_is_not_found() -> None:
    error = refused(body(model="gpt-4o"))
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


def test_long_message_is_refused_before_sending() -> None:
    with pytest.raises(UnfitError, match="allowed"):
        read(body(user("x" * (MAX_MISSION_CHARS + 1)))).mission()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b'{"model": "sprite"}',
        b'{"model": 1, "messages": []}',
        b'{"model": "sprite", "messages": {}}',
        b'{"model": "sprite", "messages": [7]}',
        b'{"model": "sprite", "messages": []}',
        b'{"model": "sprite", "messages": [{"role": "user", "content": 1e99999}]}',
        b'{"model": "sprite", "messages": [{"role": "user", "content": ' + b"9" * 100_000 + b"}]}",
        b'{"model": "sprite", "messages": [{"role": "user", "content": "\xff"}]}',
        b'{"model": "sprite", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b', "messages": []}',
        b'{"model": "sprite", "messages": [{"role": "user", "content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        b'{"model": "sprite", "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b', "messages": []}',
        b"\x00" * 1000,
    ],
)
def test_malformed_body_is_refused(data: bytes) -> None:
    assert refused(data).status == 400


def test_many_messages_are_read() -> None:
    assert read(body(*[user("Hello")] * 10_000)).text == "Hello"


# --- responses ---

M = "m"


Heard = AnyAgentEvent | PermissionRequest | LinkState
CUT = LinkState("unavailable", "")


def told(*heard: Heard, tells_questions: bool = True) -> str:
    growing, turns = GrowingText(tells_questions=tells_questions), Turns()
    turn = turns.send(M, "Hello")
    pieces = []
    for message in heard:
        turns.hear(message)
        pieces.append(growing.add(turn))
    return "".join(pieces)


def done(text: str = "", usage: Usage | None = None) -> Complete:
    return Complete(M, text, usage, None, 1)


RUN = (ToolUse(M, "t", "Bash", {"command": "ls"}),)


@pytest.mark.parametrize(
    ("heard", "text"),
    [
        ((TextDelta(M, "Hel"), TextDelta(M, "lo."), WholeText(M, "Hello."), done("Hello.")), "Hello."),
        ((WholeText(M, "Hello."), done("Hello.")), "Hello."),
        ((done("Hello."),), "Hello."),
        ((Started(M), TextDelta(M, "Hel"), WholeText(M, "Hello."), done("Hello.")), "Hello."),
        # Several texts, each in its own paragraph.
        (
            (TextDelta(M, "One."), WholeText(M, "One."), *RUN, TextDelta(M, "Two."), WholeText(M, "Two.")),
            "One.\n\nTwo.",
        ),
        ((WholeText(M, "One."), *RUN, WholeText(M, "Two."), done("Two.")), "One.\n\nTwo."),
        # A gap: the text is withheld until complete, and never repeated.
        ((TextDelta(M, "He"), CUT, TextDelta(M, "o."), WholeText(M, "Hello.")), "Hello."),
        ((CUT, TextDelta(M, "lo."), WholeText(M, "Hello."), *RUN, TextDelta(M, "Two.")), "Hello.\n\nTwo."),
        ((WholeText(M, "One."), CUT, *RUN, TextDelta(M, "Two."), WholeText(M, "Two.")), "One.\n\nTwo."),
        # The stored text may differ from the streamed one.
        ((TextDelta(M, "key 123"), WholeText(M, "key ***"), done("key ***")), "key 123"),
        ((TextDelta(M, "key 1"), CUT, WholeText(M, "key ***")), "key 1***"),
        ((TextDelta(M, "Hel"), Interrupted(M)), "Hel\n\n(The answer was stopped before its end.)"),
    ],
)
def test_streamed_text_grows_without_repeats_or_loss(heard: tuple[Heard, ...], text: str) -> None:
    assert told(*heard) == text


def test_pending_question_is_shown_in_stream_only() -> None:
    heard = (
        WholeText(M, "I look."),
        PermissionRequest("q", M, "Bash", {"command": "ls"}),
        WholeText(M, "Done."),
        done("Done."),
    )
    said = told(*heard)
    assert said.startswith("I look.\n\n[May Sprite run a command? (ls)")
    assert said.endswith("]\n\nDone.")
    assert told(*heard, tells_questions=False) == "I look.\n\nDone."


def test_tokens_are_counted_as_openai_does() -> None:
    usage = Usage(3, 7, cache_creation_input_tokens=2, cache_read_input_tokens=10)
    assert usage_of(done(usage=usage)) == {
        "prompt_tokens": 15,
        "completion_tokens": 7,
        "total_tokens": 22,
        "prompt_tokens_details": {"cached_tokens": 10},
    }
    assert usage_of(done()) is None


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Failed(M, "budget_used_up", "No money.", retryable=False), 429),
        (Failed(M, "crashed", "It crashed.", retryable=True), 500),
        (Failed(M, "declined", "It declined.", retryable=False), 400),
        (AskError("too_long", "Too long."), 400),
        (AskError("queue_full", "Full."), 503),
    ],
)
def test_errors_have_status_and_message(fault: Failed | AskError, status: int) -> None:
    assert problem_of(fault)[0] == status
    assert problem_of(fault)[3] in {"No money.", "It crashed.", "It declined.", "Too long.", "Full."}


def test_parsed_request_contains_all_handler_needs() -> None:
    asked = read(body(stream=True, stream_options={"include_usage": True}))
    assert asked == Asked("Hello", "", is_streamed=True, with_usage=True, ignored=[])
