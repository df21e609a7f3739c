"""Run an MCP server in a sandbox: `python -m sprite.sandbox.local_server FOLDER [--host HOST]... -- COMMAND...`.

The bridge starts it with an empty folder, and removes the folder after it has killed the server. The server sees no
workspace, no home directory and no data of a bridge, gets the variables in SERVER_ENVIRONMENT (JSON) only, and reaches
the named hosts through a proxy. Its standard streams are this process's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from sprite.config import from_environment
from sprite.sandbox.egress import EgressProxy
from sprite.sandbox.hosts import WEB_PORTS, Answer, HostGate, HostRefusedError, HostTables, Moment, Place, Reason
from sprite.sandbox.sandbox import server_command


class _NamedHosts(HostGate):
    """Allow only the hosts that were named for this MCP server, without asking a person."""

    def __init__(self, hosts: list[str]) -> None:
        super().__init__("packages", _NoTables(), lambda: Moment(None, None), _nobody)
        self._hosts = frozenset(hosts)

    async def admit(self, place: Place) -> Reason:
        """Return "always" for a named host, else raise HostRefusedError."""
        if place.key not in self._hosts or place.port not in WEB_PORTS:
            raise HostRefusedError(f"{place.key} is not among the hosts of this connection.")
        return "always"


async def _nobody(_host: str, _turn: str | None) -> Answer:
    return "deny"


class _NoTables(HostTables):
    """Log no connections: this process has no database."""

    def __init__(self) -> None:
        pass

    async def began(self, _place: Place, _decision: str, _mission_id: str | None) -> int:
        return 0

    async def ended(self, _number: int, _sent: int, _received: int, _decision: str) -> None:
        pass


async def run(folder: Path, hosts: list[str], command: list[str], environment: dict[str, str]) -> int:
    """Run the MCP server until it ends. Return its exit status."""
    path = folder / "egress.sock"
    proxy = EgressProxy(path, _NamedHosts(hosts))
    await proxy.start()
    try:
        arguments, variables = server_command(from_environment(folder, {}), path)
        places = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}  # noqa: TID251
        process = await asyncio.create_subprocess_exec(
            *arguments, *command, env={**places, **variables, **environment}, cwd="/"
        )
        return await process.wait()
    finally:
        await proxy.stop()


def main() -> int:
    """Run the server that the arguments name."""
    end = sys.argv.index("--")
    environment = json.loads(os.environ.pop("SERVER_ENVIRONMENT", "{}"))  # noqa: TID251 - from the bridge, no setting
    return asyncio.run(run(Path(sys.argv[1]), sys.argv[3:end:2], sys.argv[end + 1 :], environment))


if __name__ == "__main__":
    sys.exit(main())
