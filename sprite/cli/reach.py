"""`reach list|revoke`: the hosts that the agent may reach, and reached."""

from __future__ import annotations

import argparse

from sprite.cli.output import day_and_time, say, show
from sprite.config import Settings
from sprite.errors import OperatorError, WorkspaceLockedError
from sprite.owner import ask_running, owned
from sprite.protocol.framing import one_line
from sprite.protocol.messages import Reach, ReachResult
from sprite.protocol.shapes import counted
from sprite.workspace.database import read_workspace


async def list_hosts(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the hosts that the person always allows, and the hosts of the logged connections."""
    async with read_workspace(settings.workspace_db) as workspace:
        rules, uses = await workspace.hosts.rules(), await workspace.hosts.uses()
    lines = []
    for rule in rules:
        why = f'; asked in "{one_line(rule.message)}"' if rule.message else ""
        lines.append(f"allowed   {rule.host}  (since {day_and_time(rule.at)}{why})")
    for use in uses:
        told = f"{counted(use.connections, 'connection')}, {use.sent:,} bytes sent, {use.received:,} received"
        lines.append(f"{use.decision:<9} {use.host}:{use.port}  ({told}, last {day_and_time(use.last_at)})")
    facts = {"mode": settings.egress, "allowed": rules, "hosts": uses}
    return show(arguments, facts, lines or ["The agent has not connected to any host through Sprite's proxy."])


async def revoke(settings: Settings, arguments: argparse.Namespace) -> int:
    """Revoke the permission for a host that the person allowed. A running sprite closes the host's connections."""
    try:
        async with owned(settings) as own:
            if not await own.workspace.hosts.revoke(arguments.host):
                raise OperatorError(f"{arguments.host} is not a host that you always allow; `reach list` shows them.")
    except WorkspaceLockedError:
        await ask_running(settings, Reach(arguments.host), ReachResult)
    say(f"{arguments.host} is not allowed any more.")
    return 0
