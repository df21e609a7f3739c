"""Time until `sprite serve` accepts, and its memory: at rest, and after turns, curation and search."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import below, line
from tests.harness import ROOT, sprite_environment, sprite_process
from tests.scripted_model import OfflineModel

STARTS = 8
MOST_MIB = 120
#: A person's settings: the tests' own load nothing ahead.
SETTINGS = {"SPRITE_PREWARM_SECONDS": "600", "SPRITE_BATCH_TURNS": "3"}


def imports_ms() -> list[float]:
    """Time of the SDK's import alone, for comparison."""
    samples = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "import claude_agent_sdk"],
            check=True,
            env=sprite_environment(None),
            cwd=ROOT,
        )
        samples.append((time.perf_counter() - started) * 1000)
    return samples


def vendor_mib() -> float:
    """Memory that the vendor's client would add to the SDK, which the curator does without."""
    code = (
        "import claude_agent_sdk, os; from benchmarks.bench_startup import resident_mib\n"
        "before = resident_mib(os.getpid()); import anthropic; print(resident_mib(os.getpid()) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)
    return float(done.stdout)


async def main() -> None:
    """Prints every figure."""
    accepting, idle = [], []
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name) / "workspace"
        workspace.mkdir()
        for _ in range(STARTS):
            started = time.perf_counter()
            async with sprite_process(workspace, None, **SETTINGS) as sprite:
                async with sprite.client() as client:
                    accepting.append((time.perf_counter() - started) * 1000)
                    await client.ask("system", {"action": "status"})
                idle.append(await settled_mib(sprite.process.pid))
    below("start to an authenticated client", accepting, 500)
    print(f"      (importing the SDK alone takes {min(imports_ms()):.0f} ms)")
    line("idle memory without a session", f"{max(idle):.0f} MiB", f"< {MOST_MIB} MiB", ok=max(idle) < MOST_MIB)
    used = await used_mib()
    line("memory after turns, curation and search", f"{used:.0f} MiB", f"< {MOST_MIB} MiB", ok=used < MOST_MIB)
    print(f"      (the vendor's client of the model's API would add {vendor_mib():.0f} MiB)")


async def used_mib() -> float:
    """Resident memory of a server that has done everything once."""
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name) / "workspace"
        workspace.mkdir()
        async with (
            OfflineModel() as model,
            sprite_process(workspace, model.url, **SETTINGS) as sprite,
            sprite.client() as client,
        ):
            for number in range(8):
                await client.mission(f"My plant number {number} is Fern{number}.")
            await client.ask("system", {"action": "flush"})
            await client.ask("memory", {"op": "search", "query": "which plants"})
            await client.mission("search memory for plants")
            return await settled_mib(sprite.process.pid)


def resident_mib(process_id: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS")) / 1024


async def settled_mib(process_id: int) -> float:
    """Resident memory once it has stopped growing: the SDK is imported beside the listener."""
    before = 0.0
    while (now := resident_mib(process_id)) - before > 1:
        before = now
        await asyncio.sleep(1.0)
    return now


if __name__ == "__main__":
    asyncio.run(main())
