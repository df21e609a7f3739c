"""Several bridges at rest: what they ask of the Postgres that they share, with many sprites known and some awake.

The bridges' parts that ask by themselves (leases, what is due) run here, three of each; transactions are counted by the
server.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from benchmarks.report import line
from bridge.cluster.leases import Leases
from bridge.db.open import open_database
from bridge.wakeups.waker import DueDates
from tests.postgres import binaries, own_server

REGISTERED, AWAKE, BRIDGES = 10_000, 500, 3
SETTLE_SECONDS, SECONDS = 30.0, 30.0
MOST_A_SECOND = 50.0
_COUNT = "SELECT xact_commit + xact_rollback AS count FROM pg_stat_database WHERE datname = current_database()"


def _died() -> None:
    raise AssertionError("a task died")


async def main() -> None:
    """Counts for a while."""
    print("Bridges at rest")
    if binaries() is None:
        print("  skipped: no Postgres here (Debian: apt-get install postgresql)")
        return
    with own_server() as server:
        url = server.create()
        async with AsyncExitStack() as stack:
            looking = await stack.enter_async_context(open_database(url))
            tomorrow = time.time() + 86_400
            rows = [(f"s{number}", tomorrow, 1, 1.0, 0) for number in range(REGISTERED)]
            await looking.write(lambda tx: tx.executemany("INSERT INTO waking VALUES (?, ?, ?, ?, ?)", rows))
            await looking.statement("ANALYZE")
            bridges = []
            for number in range(BRIDGES):
                database = await stack.enter_async_context(open_database(url))
                leases = await stack.enter_async_context(Leases(database, f"http://b{number}", _died))
                await stack.enter_async_context(DueDates(database, _died, leases))
                bridges.append(leases)
            for number in range(AWAKE):
                owner = bridges[number % BRIDGES]
                await owner.own(f"s{number}")
                stack.enter_context(owner.using(f"s{number}"))
            # Postgres counts a connection's work up to ten seconds after its end, or later on a busy machine. Taking
            # the sprites is not part of rest.
            await asyncio.sleep(SETTLE_SECONDS)
            before = (await looking.statement(_COUNT))[0]["count"]
            await asyncio.sleep(SECONDS)
            after = (await looking.statement(_COUNT))[0]["count"]
            assert all(bridge.holds(f"s{number}") for number, bridge in enumerate(bridges))
    found = (after - before) / SECONDS
    name = f"{BRIDGES} bridges, {AWAKE} of {REGISTERED:,} sprites awake"
    line(name, f"{found:.1f} transactions/s", f"< {MOST_A_SECOND:g} transactions/s", ok=found < MOST_A_SECOND)


if __name__ == "__main__":
    asyncio.run(main())
