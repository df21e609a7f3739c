"""What operators do with people, each act in the audit log: for the command line, the control socket and the page.

`actor` is who acts: an operator's name, or `cli`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bridge.door.passkeys.store import SHORT_ID, named

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from bridge.cluster.ownership import Ownership
    from bridge.door.admission import Admission
    from bridge.door.oidc.identities import Identities
    from bridge.door.passkeys.store import Passkeys
    from bridge.door.people import People, Person, Role
    from bridge.door.tokens import Token
    from bridge.door.visitors import Visitors
    from bridge.hosts.host import Host, Report
    from bridge.operating.audit import Audit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inside:
    """What is open and going on for people, in a bridge that runs; `revoke_sprite` ends what their sprite may call."""

    admission: Admission
    visitors: Visitors
    revoke_sprite: Callable[[str], Awaitable[None]]

    async def end_person(self, name: str) -> None:
        """Ends all of it for somebody who may no longer come in."""
        self.admission.end_person(name)
        await self.visitors.end_person(name)
        await self.revoke_sprite(name)

    async def end_token(self, name: str, key: bytes) -> None:
        """Ends what came in by one token, or by one browser's session."""
        self.admission.revoked(key)
        await self.visitors.end_way_in(name, key.hex())


class LinkedIdentity(msgspec.Struct, frozen=True):
    """Who a person is at a provider, since when (Unix seconds)."""

    issuer: str
    subject: str
    created_at: float


class NamedPasskey(msgspec.Struct, frozen=True):
    """A passkey by how its id begins (hex), and what its person calls it; times in Unix seconds."""

    id: str
    label: str
    created_at: float
    used_at: float | None


class WaysIn(msgspec.Struct, frozen=True):
    """What a person logs in by, beside links."""

    identities: list[LinkedIdentity]
    passkeys: list[NamedPasskey]


class Acts:
    """Acts on people; without `inside` no bridge runs, and nothing is open."""

    def __init__(
        self, people: People, identities: Identities, passkeys: Passkeys, audit: Audit, inside: Inside | None = None
    ) -> None:
        self._people = people
        self._identities = identities
        self._passkeys = passkeys
        self._inside = inside
        self.audit = audit

    async def everyone(self) -> list[Person]:
        """All people, which is no act."""
        return await self._people.everyone()

    async def tokens_of(self, name: str) -> list[Token]:
        """A person's tokens, which is no act either."""
        return await self._people.tokens.of(name)

    async def add(self, actor: str, name: str) -> tuple[str, str]:
        """Adds a person; a login link's token and a Bearer token."""
        made = await self._people.add(name)
        await self._done(actor, "users add", name)
        return made

    async def restore(self, actor: str, name: str) -> tuple[str, str]:
        """Lets a revoked person in again; a login link's token and a Bearer token."""
        made = await self._people.restore(name)
        await self._done(actor, "users restore", name)
        return made

    async def link(self, actor: str, name: str) -> str:
        """A new login link's token."""
        made = await self._people.link(name)
        await self._done(actor, "users link", name)
        return made

    async def revoke(self, actor: str, name: str) -> None:
        """Shuts a person out, at once."""
        await self._people.revoke(name)
        if self._inside is not None:
            await self._inside.end_person(name)
        await self._done(actor, "users revoke", name)

    async def change_role(self, actor: str, name: str, role: Role) -> bool:
        """Makes a person an operator, or one no more; False where they were that already."""
        has_changed = await self._people.change_role(name, role)
        if has_changed:
            await self._done(actor, "users role", name, role=role)
        return has_changed

    async def link_identity(self, actor: str, name: str, issuer: str, subject: str) -> str | None:
        """Says who somebody at a provider is here; who they were before, if anybody."""
        before = await self._identities.link(issuer, subject, name, moves=True)
        await self._done(actor, "users link-identity", name, identity=subject, before=before or "nobody")
        return before

    async def ways_in(self, name: str) -> WaysIn:
        """What a person logs in by, beside links; which is no act."""
        await self._people.require_known(name)
        return WaysIn(
            [LinkedIdentity(each.issuer, each.subject, each.created_at) for each in await self._identities.of(name)],
            [
                NamedPasskey(each.credential_id.hex()[:SHORT_ID], each.label, each.created_at, each.used_at)
                for each in await self._passkeys.of(name)
            ],
        )

    async def unlink_identity(self, actor: str, name: str, subject: str, issuer: str | None) -> str:
        """Takes an identity at a provider off a person; returns the provider. Their browsers are logged out.

        PeopleError where they have none such.
        """
        await self._people.require_known(name)
        identity = await self._identities.unlink(name, subject, issuer)
        await self._log_out(name)
        await self._done(actor, "users unlink-identity", name, identity=subject)
        return identity.issuer

    async def remove_passkey(self, actor: str, name: str, passkey: str) -> str:
        """Ends a person's passkey; returns its label. Their browsers are logged out. PeopleError, PasskeyError."""
        await self._people.require_known(name)
        found = named(await self._passkeys.of(name), passkey)
        await self._passkeys.remove(name, found.credential_id)
        await self._log_out(name)
        await self._done(actor, "users remove-passkey", name, passkey=found.label)
        return found.label

    async def _log_out(self, name: str) -> None:
        """Which browser came in by what is not kept: all of them log in again."""
        for key in await self._people.end_sessions(name):
            if self._inside is not None:
                await self._inside.end_token(name, key)

    async def make_token(
        self, actor: str, name: str, label: str | None, scopes: Iterable[str] | None
    ) -> tuple[str, Token]:
        """A new token for a program, and what it is."""
        secret, token = await self._people.tokens.make(name, label, scopes)
        opens = "everything" if token.scopes is None else " ".join(token.scopes)
        await self._done(actor, "users token", name, token=token.label, opens=opens)
        return secret, token

    async def revoke_token(self, actor: str, name: str, label: str) -> None:
        """Ends a token, and at once whatever goes on with it."""
        key = await self._people.tokens.revoke(name, label)
        if self._inside is not None:
            await self._inside.end_token(name, key)
        await self._done(actor, "users revoke-token", name, token=label)

    async def deploy(self, actor: str, ownership: Ownership, host: Host, name: str, report: Report) -> None:
        """Brings a sprite to what it should be.

        HostError where it cannot be, NotOwnedError where another bridge has the sprite.
        """
        log.info("an operator acted: deploy", extra={"person": name})
        async with self.audit.act(actor, "deploy", name):
            await ownership.own(name)
            with ownership.using(name):
                await host.deploy(name, report)

    async def _done(self, actor: str, action: str, subject: str, **detail: str) -> None:
        log.info("an operator acted: %s", action, extra={"person": subject})
        await self.audit.note(actor, action, subject, **detail)
