"""Parse the body of a chat completion into a mission: its last user message (pure).

Earlier messages are a copy of what the agent remembers, and are not sent. Fields that would change the answer's form
are refused; other settings are ignored and listed in a header.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bridge.api.bodies import UnreadableError, decoded
from bridge.auth.admission import DoorError
from sprite.protocol.messages import MAX_MISSION_CHARS
from sprite.protocol.pasted import Marked, joined

MODEL = "sprite"
#: Limit for system messages, which the model reads again with each mission.
MAX_SYSTEM_CHARS = 8_000
_UNDERSTOOD = frozenset({"model", "messages", "stream", "stream_options", "user"})
#: Field names that fit in a header, and how many are listed.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_MAX_NAMED = 30
_FROM_THE_APP = "From the app that sent this, not from me:"


class UnfitError(DoorError):
    """A chat completion request that the agent cannot fulfil; `param` is the field at fault."""

    def __init__(self, param: str | None, words: str, *, status: int = 400, code: str = "unsupported_value") -> None:
        super().__init__(status, code, words)
        self.param = param


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed completion request. `ignored` lists fields without effect.

    `names_user`: the app names the person who typed the message, in the field `user`.
    """

    text: str
    system: str
    is_streamed: bool
    with_usage: bool
    ignored: list[str]
    names_user: bool = False

    def mission(self) -> Marked:
        """Return the mission's text. Raises UnfitError if it is too long.

        Words of the app follow, quoted and marked as pasted: memory must not attribute them to the person.
        """
        own = text = self.text.strip()
        if self.system:
            quoted = "\n".join(f"> {line}".rstrip() for line in self.system.splitlines())
            text = f"{own}\n\n{_FROM_THE_APP}\n{quoted}"
        if (length := len(text)) > MAX_MISSION_CHARS:
            words = f"The message has {length:,} characters, {MAX_MISSION_CHARS:,} are allowed. Put it into a file."
            raise UnfitError("messages", words, code="context_length_exceeded")
        return Marked(text, joined([(len(own), length)]))


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    user: str | None = None


def read(body: bytes) -> Asked:
    """Parse a completion request. Raise UnfitError with a message."""
    fields: dict[str, msgspec.Raw] = _decoded(body, dict[str, msgspec.Raw])
    asked: _Body = _decoded(body, _Body)
    if asked.model != MODEL:
        raise unknown_model()
    for name, is_harmless in _REFUSED.items():
        if name in fields and not is_harmless(_decoded(bytes(fields[name]), Any)):
            raise UnfitError(name, f"{name!r} is not supported, because the agent answers in text. Leave it out.")
    text, system = _messages(asked.messages)
    ignored = [name for name in fields if name not in _UNDERSTOOD | _REFUSED.keys() and bytes(fields[name]) != b"null"]
    return Asked(
        text=text,
        system=system,
        is_streamed=asked.stream is True,
        with_usage=(asked.stream_options or {}).get("include_usage") is True,
        ignored=[name for name in ignored if _NAME.fullmatch(name)][:_MAX_NAMED],
        names_user=bool((asked.user or "").strip()),
    )


def unknown_model() -> UnfitError:
    """Return the error for a request that names a model other than the person's agent."""
    words = f"The only model here is {MODEL!r}, the person's own agent."
    return UnfitError("model", words, status=404, code="model_not_found")


def _decoded(data: bytes, type_: Any) -> Any:
    try:
        return decoded(data, type_)
    except msgspec.ValidationError as error:
        raise UnfitError(None, f"The request is invalid: {str(error)[:300]}.", code="invalid_type") from error
    except UnreadableError as error:
        raise UnfitError(None, f"The body is not valid JSON: {error}.", code="invalid_json") from error


def _is_empty(value: Any) -> bool:
    return not value


#: Fields that would change the answer, each with a check for values that make no difference.
_REFUSED: dict[str, Callable[[Any], bool]] = {
    "tools": _is_empty,
    "functions": _is_empty,
    "tool_choice": lambda value: value in (None, "none", "auto"),
    "function_call": lambda value: value in (None, "none", "auto"),
    "response_format": lambda value: not value or value == {"type": "text"},
    "n": lambda value: value is None or value == 1,
    "audio": _is_empty,
    "modalities": lambda value: not value or value == ["text"],
    "logprobs": _is_empty,
    "top_logprobs": _is_empty,
    "prediction": _is_empty,
    "web_search_options": lambda value: value is None,
}


def _messages(messages: list[_Message]) -> tuple[str, str]:
    """Return the last message's text, which becomes the mission, and the joined system messages. Raise UnfitError."""
    of_app = [_content(message).strip() for message in messages if message.role in {"system", "developer"}]
    system = "\n\n".join(filter(None, of_app))
    if len(system) > MAX_SYSTEM_CHARS:
        words = (
            f"The system messages have {len(system):,} characters; at most {MAX_SYSTEM_CHARS:,} are allowed. The agent "
            "has its own instructions and memory: shorten them in your app, or leave them out."
        )
        raise UnfitError("messages", words, code="context_length_exceeded")
    said = [message for message in messages if message.role not in {"system", "developer"}]
    if not said or said[-1].role != "user":
        words = "The last message must be the person's (role 'user'), because the agent answers it."
        raise UnfitError("messages", words)
    text = _content(said[-1])
    if not text.strip():
        raise UnfitError("messages", "The last message is empty.")
    return text, system


def _content(message: _Message) -> str:
    if not isinstance(message.content, list):
        return message.content or ""
    texts: list[str] = []
    for part in message.content:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": str(kind)}:
                raise UnfitError("messages", f"A message may contain only text, not {kind[:40]!r}.")
            case _:
                raise UnfitError("messages", "A part of the message has no type.")
    return "\n\n".join(texts)
