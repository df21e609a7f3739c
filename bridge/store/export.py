"""Choose the source of an archive: the agent's machine if it is awake, otherwise its replica."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from bridge.cluster.ownership import NotOwnedError, OwnedElsewhere, Ownership
from bridge.hosts.host import Host, HostError, Report, checked_name
from bridge.store.archive import LeftOut

if TYPE_CHECKING:
    from bridge.store.restore import Restorer

Source = Literal["machine", "store"]
#: States of a machine that would have to be woken, is gone, or does not answer.
_NOT_AWAKE: Final = frozenset({"absent", "warm", "cold", "unknown"})


@dataclass(frozen=True, slots=True)
class Exported:
    """An archive. `as_of` is set for a replica's (Unix seconds), `left_out` lists its missing parts."""

    chunks: AsyncIterator[bytes]
    as_of: float | None = None
    left_out: LeftOut = field(default_factory=LeftOut)


async def exported(
    host: Host,
    restorer: Restorer,
    sprite: str,
    report: Report,
    *,
    source: Source | None = None,
    as_of: float | None = None,
    leave_out_damaged: bool = False,
) -> Exported:
    """Return an archive whose first bytes have arrived, so that most errors are known. Raise HostError or StoreError.

    Without a `source`, use the newer one that needs no wake. An archive `as_of` a time always comes from the replica.
    """
    kept_at = await restorer.kept_at(checked_name(sprite))
    is_asked = source == "store" or as_of is not None
    if is_asked or (source is None and kept_at is not None and (await host.state(sprite)).state in _NOT_AWAKE):
        return await _of_store(restorer, sprite, report, as_of, kept_at, leave_out_damaged)
    try:
        chunks = await host.export(sprite, report)
        return Exported(_with_first(await anext(chunks, b""), chunks))
    except HostError as error:
        if source is not None or kept_at is None:
            raise
        report("connecting", f"Its machine gives no archive. {error}")
        return await _of_store(restorer, sprite, report, None, kept_at, leave_out_damaged)


async def _of_store(
    restorer: Restorer,
    sprite: str,
    report: Report,
    as_of: float | None,
    kept_at: float | None,
    leaves_out_damaged: bool,
) -> Exported:
    left_out = [LeftOut()]
    chunks = await restorer.export(sprite, as_of, report, left_out.append, leaves_out_damaged=leaves_out_damaged)
    first = await anext(chunks, b"")
    return Exported(_with_first(first, chunks), kept_at if as_of is None else as_of, left_out[-1])


async def exported_as_owner(
    ownership: Ownership,
    host: Host,
    restorer: Restorer,
    sprite: str,
    report: Report,
    *,
    source: Source | None = None,
    as_of: float | None = None,
    leave_out_damaged: bool = False,
) -> Exported:
    """Like `exported`, but ask the machine only under this bridge's lease, because that may wake and update it.

    If another bridge has the sprite, use the replica. Raise HostError, for operators, if that was not asked for, or
    if there is no replica.
    """
    if source != "store" and as_of is None:
        try:
            await ownership.own(checked_name(sprite))
        except OwnedElsewhere as error:
            if source == "machine" or await restorer.kept_at(sprite) is None:
                raise HostError(error.for_operators) from error
            source = "store"
        except NotOwnedError as error:
            raise HostError(str(error)) from error
    return await exported(
        host, restorer, sprite, report, source=source, as_of=as_of, leave_out_damaged=leave_out_damaged
    )


async def _with_first(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield first
        async for chunk in others:
            yield chunk
    finally:
        if isinstance(others, AsyncGenerator):
            # If the reader stops in the middle, the command ends now.
            await others.aclose()
