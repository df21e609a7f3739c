"""A real OpenID provider on loopback (npm: oidc-provider)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.harness import PATIENCE, ROOT

#: The provider's secret for its only client.
SECRET = "a secret: with/signs"
_NODE = ROOT / ".venv/bin/node"


@asynccontextmanager
async def provider_for(callback: str) -> AsyncIterator[str]:
    """Run a provider and yield its issuer; it redirects browsers to `callback`."""
    provider = await asyncio.create_subprocess_exec(
        str(_NODE),
        str(ROOT / "tests/oidc_provider.mjs"),
        callback,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert provider.stdout is not None
        async with asyncio.timeout(PATIENCE):
            yield (await provider.stdout.readline()).decode().strip()
    finally:
        # The script in .venv/bin only starts the real one.
        with suppress(ProcessLookupError):
            os.killpg(provider.pid, signal.SIGKILL)
        await provider.wait()
