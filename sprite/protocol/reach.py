"""The agent's reach: hosts, the person's rules about them, and the folders that it may write."""

from __future__ import annotations

from typing import Literal

from sprite.protocol.shapes import Payload


class Reach(Payload):
    """Asks what the agent may reach. `revoke` names a host whose rule is taken back first, with its connections."""

    revoke: str | None = None


class AllowedHost(Payload, omit_defaults=False):
    """A host that the person allowed: for the turn or session, or always. `message` began the turn that asked."""

    host: str
    until: Literal["turn", "session", "always"]
    at: float | None = None
    message: str | None = None


class ReachedHost(Payload, omit_defaults=False):
    """Connections to a host with the same decision; bytes as seen by the agent, `last_at` in Unix seconds.

    `decision` says why: the model's endpoint, a package registry, all hosts are open, the person's answer, or it was
    refused. `open` of them are open now. `message` began the turn of the last one.
    """

    host: str
    port: int
    decision: str
    connections: int
    open: int
    sent: int
    received: int
    last_at: float
    message: str | None


class ReachResult(Payload, omit_defaults=False):
    """The answer to `reach`. `sandbox` says what holds; `holds` is null until the agent's first start has tried it.

    `writable` are the folders that the agent may write. `mode` is that of SPRITE_EGRESS. `registries` are open in the
    modes `ask` and `packages`.
    """

    mode: Literal["ask", "packages", "open", "bridge"]
    holds: bool | None
    sandbox: str
    writable: list[str]
    allowed: list[AllowedHost]
    hosts: list[ReachedHost]
    registries: list[str]
