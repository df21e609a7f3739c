"""The curator's model as a server on loopback that answers from recordings: `Settings.base_url` is its address.

It estimates usage by the product's own rule and counts cached parts where the request marks them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from benchmarks.recordings import NotRecordedError, Recordings, Request
from bridge.fake_model.request import VERIFIER_MARKER
from sprite.memory.files import estimate_tokens
from tests.scripted_model import agree

#: Seconds for which a marked part stays cached after its last use.
CACHE_SECONDS = 300.0
_LARGEST_BODY = 32 << 20
_TURNS = re.compile(r"<turn .*</turn>\n?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Served:
    """One answered request: sizes in bytes, `beside` being the prompt without its turns."""

    turns: str
    prompt: int
    beside: int
    answer: int
    #: Whether the answer was recorded for exactly this request.
    same_request: bool


class RecordedModel:
    """`async with RecordedModel(...) as model:` serves at `model.url`; `missing` says why it could not answer.

    `about` tells which turns wait when a request comes, `now` the time in the history, `slip` what goes wrong with an
    answer on its way. Its verifier agrees to every line.
    """

    def __init__(
        self,
        recordings: Recordings,
        about: Callable[[], Awaitable[str]],
        now: Callable[[], float],
        slip: Callable[[str, str], str] | None,
    ) -> None:
        self.served: list[Served] = []
        self.missing: NotRecordedError | None = None
        self.url = ""
        self._recordings = recordings
        self._about = about
        self._now = now
        self._is_slipping = slip is not None
        self._slip = slip or (lambda answer, _: answer)
        self._cached: dict[str, float] = {}
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_post("/v1/messages", self._messages)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _messages(self, http: web.Request) -> web.Response:
        body: dict[str, Any] = await http.json()
        system, user = _blocks(body["system"]), _blocks(body["messages"][0]["content"])
        verifies = _text(system).startswith(VERIFIER_MARKER)
        if verifies and self._recordings.folder is None:
            # Answers in a history are the curator's alone.
            return self._answered(body["model"], agree(_text(user)), [*system, *user])
        about = f"{await self._about()}{' verified' if verifies else ''}"
        request = Request(len(self.served) + 1, about, _text(system), _text(user))
        if verifies and self._is_slipping:
            return self._answered(body["model"], self._recordings.verdicts(request.user), [*system, *user])
        try:
            record = self._recordings.answer(request)
        except NotRecordedError as error:
            self.missing = error
            # As if there were no key: not asked again, and no turn is to blame.
            return web.json_response({"type": "error", "error": {"message": "not recorded"}}, status=401)
        size = len(request.system.encode()) + len(request.user.encode())
        beside = len(request.system.encode()) + len(_TURNS.sub("", request.user).encode())
        same = record.request_sha256 == request.sha256
        if not verifies:
            answer = self._slip(record.answer, request.turns)
        else:
            answer = record.answer if same else self._recordings.verdicts(request.user)
        self.served.append(Served(request.turns, size, beside, len(answer.encode()), same))
        return self._answered(body["model"], answer, [*system, *user])

    def _answered(self, model: str, answer: str, blocks: list[dict[str, Any]]) -> web.Response:
        return web.json_response(
            {
                "model": model,
                "content": [{"type": "text", "text": answer}],
                "stop_reason": "end_turn",
                "usage": self._usage(blocks) | {"output_tokens": estimate_tokens(answer)},
            }
        )

    def _usage(self, blocks: list[dict[str, Any]]) -> dict[str, int]:
        last = max((place for place, block in enumerate(blocks) if "cache_control" in block), default=-1)
        marked, rest = _text(blocks[: last + 1]), _text(blocks[last + 1 :])
        is_kept = self._now() - self._cached.get(marked, 0.0) < CACHE_SECONDS
        self._cached[marked] = self._now()
        kind = "cache_read_input_tokens" if is_kept else "cache_creation_input_tokens"
        return {"input_tokens": estimate_tokens(rest), kind: estimate_tokens(marked)}


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(blocks: list[dict[str, Any]]) -> str:
    return "".join(block["text"] for block in blocks)
