"""`GET /v1/memory/boot?project=`: memory as text for the start of an external session in that project.

Such a session must not wait for a VM to wake: without a link it gets a cached text, while the sprite is asked in the
background. A state sync (which follows a forget or missed events) drops the cache. A forget on the sprite's machine
while the sprite is stopped takes effect at the next link.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from contextlib import AsyncExitStack

from aiohttp import web

from bridge.api.bodies import refusing
from bridge.auth.admission import Admission, DoorError
from bridge.hub.hub import Relay
from bridge.hub.link import LinkDownError
from bridge.hub.room import Observer
from sprite.common.tasks import Service, TaskSet
from sprite.protocol.frames import PeerError, ServerMessage
from sprite.protocol.memory import BootRequest, BootResult
from sprite.protocol.messages import Error, MemoryUpdate, StateSync
from sprite.protocol.observing import project_key

#: Limits of the cache, in total and per person. A text has at most 8,000 tokens; the least recently used is evicted.
_MAX_TEXTS, _MAX_TEXTS_EACH = 1024, 16
#: Texts per person to request again after a memory update: the most recently used. The others are evicted.
_MAX_ANEW = 4
_MAX_ASKING_EACH = 4
#: Time to wait for a connected sprite, or for any sprite if no text is cached.
_SECONDS = 2.0
#: Limit for a request in the background, which may wake a VM.
_BESIDE_SECONDS = 60.0
_RETRY_SECONDS = 2

_Key = tuple[str, str | None]


class Boot(Service, Observer):
    """Serve boot texts from a cache, as an Observer of the relay: `async with Boot(admission, relay) as boot:`."""

    def __init__(self, admission: Admission, relay: Relay, *, seconds: float = _SECONDS) -> None:
        self._admission = admission
        self._relay = relay
        self._seconds = seconds
        #: Texts, and the epochs of ownership in which they arrived, by person and project; least recently used first.
        self._texts: OrderedDict[_Key, tuple[str, int | None]] = OrderedDict()
        #: Messages of each sprite that invalidate earlier answers.
        self._changes: Counter[str] = Counter()
        self._asking: dict[_Key, asyncio.Task[str | DoorError]] = {}
        self._tasks = TaskSet()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._relay.add_observer(self)
        await stack.enter_async_context(self._tasks)

    def table(self) -> list[web.RouteDef]:
        """Return the endpoint's route."""
        return [web.get("/v1/memory/boot", refusing(self._boot), allow_head=False)]

    async def _boot(self, request: web.Request) -> web.StreamResponse:
        async with self._admission.entered(request, "memory:read") as holder:
            text = await self._text((holder.person, _project(request)))
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        headers = {"ETag": f'"{digest}"', "Cache-Control": "private, no-cache", "Vary": "Authorization"}
        if any(known.value == digest for known in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(text=text, content_type="text/plain", charset="utf-8", headers=headers)

    async def _text(self, key: _Key) -> str:
        kept = self._kept(key)
        asking = self._ask(key)
        if kept is not None and not self._relay.is_ready(key[0]):
            return kept
        if asking is None:
            words = "Too many requests for different projects at once. Ask again in a moment."
            raise DoorError(429, "too_many_requests", words, retry_after=1)
        await asyncio.wait({asking}, timeout=self._seconds)
        if not asking.done():
            # It may have been dropped in the meantime.
            if (kept := self._kept(key)) is not None:
                return kept
            raise _unavailable()
        answer = asking.result()
        if isinstance(answer, DoorError):
            raise answer
        return answer

    def _kept(self, key: _Key) -> str | None:
        kept = self._texts.get(key)
        if kept is None:
            return None
        text, epoch = kept
        if epoch != self._relay.epoch(key[0]):
            # The sprite's messages to another bridge were missed here; one may have been a forget.
            del self._texts[key]
            return None
        self._texts.move_to_end(key)
        return text

    def _keep(self, key: _Key, text: str) -> None:
        self._texts[key] = text, self._relay.epoch(key[0])
        self._texts.move_to_end(key)
        own = [other for other in self._texts if other[0] == key[0]]
        if len(own) > _MAX_TEXTS_EACH:
            del self._texts[own[0]]
        elif len(self._texts) > _MAX_TEXTS:
            self._texts.popitem(last=False)

    def _ask(self, key: _Key) -> asyncio.Task[str | DoorError] | None:
        """Return the running or new task that asks the sprite for a boot text, or None if the person has too many."""
        asking = self._asking.get(key)
        if asking is None and sum(person == key[0] for person, _ in self._asking) < _MAX_ASKING_EACH:
            asking = self._asking[key] = self._tasks.start(self._asked(key), "ask for boot memory")
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return asking

    async def _asked(self, key: _Key) -> str | DoorError:
        person, project = key
        try:
            async with asyncio.timeout(_BESIDE_SECONDS):
                with self._relay.held(person) as room:
                    changes = None
                    while changes != self._changes[person]:
                        changes = self._changes[person]
                        answer = await room.ask(BootRequest(project=project))
        except (TimeoutError, LinkDownError):
            return _unavailable()
        if isinstance(answer, BootResult):
            self._keep(key, answer.text)
            return answer.text
        if isinstance(answer, Error) and answer.code in {"bad_request", "bad_project"}:
            return DoorError(400, answer.code, answer.message)
        return _unavailable()

    def heard(self, sprite: str, message: ServerMessage) -> None:
        """Refresh or drop a sprite's cached texts after a change of its memory."""
        if isinstance(message.payload, StateSync | MemoryUpdate):
            self._changes[sprite] += 1
            own = [key for key in self._texts if key[0] == sprite]
            gone = own if isinstance(message.payload, StateSync) else own[:-_MAX_ANEW]
            for key in gone:
                del self._texts[key]
            for key in own[-_MAX_ANEW:]:
                self._ask(key)


def _project(request: web.Request) -> str | None:
    """Return the requested project, or None. Raises DoorError for an invalid key."""
    given = request.query.get("project")
    try:
        return project_key(given) if given else None
    except PeerError as error:
        raise DoorError(400, error.code, str(error)) from error


def _unavailable() -> DoorError:
    words = "The sprite is still waking up. Ask again in a moment."
    return DoorError(503, "unavailable", words, retry_after=_RETRY_SECONDS)
