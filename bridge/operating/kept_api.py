"""Handlers of the control socket for archives (of an agent now, or of its replica) and restores."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from aiohttp import web

from bridge.config import LOCAL_PERSON
from bridge.door import messages
from bridge.errors import OperatorError
from bridge.hosts.host import Host, HostError, Report
from bridge.operating.audit import CLI, EXPORT, of_what
from bridge.operating.steps import told_in_steps
from bridge.store.export import Source
from bridge.store.restore import SAY_OVER, Asked
from bridge.store.store import StoreError

if TYPE_CHECKING:
    from bridge.door.people import People
    from bridge.door.restoring import Restoring
    from bridge.operating.audit import Audit

log = logging.getLogger(__name__)

#: Header with the time of an archive of a replica (Unix seconds).
AS_OF: Final = "X-Archive-As-Of"
#: Header with a description of its missing parts, percent-encoded.
LEFT_OUT: Final = "X-Archive-Left-Out"


class KeptApi:
    """Handlers of `export` and `restore`."""

    def __init__(self, people: People, host: Host, restoring: Restoring, audit: Audit) -> None:
        self._people = people
        self._audit = audit
        self._host = host
        self._restoring = restoring

    def table(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/export/{name}", self._export, allow_head=False),
            web.post("/restore", self._restore_own),
            web.post("/restore/{name}", self._restore),
        ]

    async def _restore(self, request: web.Request) -> web.StreamResponse:
        name, query = request.match_info["name"], request.query
        asked = Asked(
            CLI,
            _moment(query.get("as_of")),
            over="over" in query,
            anew="anew" in query,
            advice=SAY_OVER,
            leave_out_damaged="leave_out_damaged" in query,
        )

        async def restore(report: Report) -> str:
            return (await self._restoring.restore(name, asked, report)).words

        return await told_in_steps(request, f"restore for {name}", restore)

    async def _restore_own(self, request: web.Request) -> web.StreamResponse:
        person = request.query.get("person", LOCAL_PERSON)
        await self._people.require(person)
        return await self._restoring.answer(request, person, actor=person if person == LOCAL_PERSON else CLI)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        headers = {"Content-Type": "application/zip"}
        async with AsyncExitStack() as stack:
            stack.enter_context(self._restoring.using(name))
            try:
                export = await self._restoring.exported(
                    self._host,
                    name,
                    _source(request.query.get("from")),
                    _moment(request.query.get("as_of")),
                    leave_out_damaged="leave_out_damaged" in request.query,
                )
                chunks = export.chunks
                if isinstance(chunks, AsyncGenerator):
                    # If the client disconnects in the middle, the command ends now.
                    stack.push_async_callback(chunks.aclose)
                chunk = await anext(chunks, None)
            except (HostError, StoreError) as error:
                return messages.page(request, 503, str(error), code="unavailable")
            if export.as_of is not None:
                headers |= {AS_OF: f"{export.as_of:.3f}", LEFT_OUT: quote(export.left_out.words())}
            response = web.StreamResponse(headers=headers)
            # The log must record the export before the client can have all of it.
            said = of_what(export.as_of, request.query.get("into", ""), export.left_out.names())
            async with self._audit.act(CLI, EXPORT, name, **said):
                await response.prepare(request)
                try:
                    while chunk is not None:
                        # An empty chunk would end the response.
                        if chunk:
                            await response.write(chunk)
                        chunk = await anext(chunks, None)
                except (HostError, StoreError) as error:
                    log.warning("an archive could not be written to its end", extra={"person": name})
                    # Abort, because a regular end would look like a complete archive.
                    if request.transport is not None:
                        request.transport.abort()
                    raise ConnectionResetError(str(error)) from error
            await response.write_eof()
            return response


def _source(text: str | None) -> Source | None:
    match text:
        case None | "machine" | "store":
            return text
        case _:
            raise OperatorError("from must be machine or store.")


def _moment(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise OperatorError("as_of is no time.") from None
