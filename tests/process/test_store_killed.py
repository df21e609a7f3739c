"""Kill a bridge that writes replicas: acknowledged rows stay complete, and the next process continues."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from bridge.replicas.keys import key_file
from bridge.replicas.upkeep import verified
from tests.forking import fork_code
from tests.harness import PATIENCE
from tests.shipments import store_at, words

SPRITE = "ada"
#: `make soak` raises this number.
ROUNDS = int(os.environ.get("SOAK_KILLS", "0")) // 10 or 2

#: Append turns to a replica; print each position after its append.
_STORING = """
import asyncio, sys
from pathlib import Path
from bridge.replicas.keys import key_file
from tests.shipments import append, chunk, sha, shipped, store_at, turn

async def main(folder):
    keys = key_file(folder / "store.key", makes=True)
    async with store_at(folder, keys) as store:
        while True:
            at = (await store.position("ada")).through + 1
            content = b"%d" % at * 1000
            file = ("files", f"file {at % 5}", {"chunks": [sha(content)]}, at)
            await append(store, "ada", shipped(file, turn(at, f"turn {at}", at), chunks=[chunk(content)], whole=True))
            print(at, flush=True)
            if at % 20 == 0:
                await append(store, "ada", shipped(("tombstones", at, {"rows": {}}, at + 1), through=at + 1))

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_killed_replica_keeps_acknowledged_rows(tmp_path: Path) -> None:
    chance = random.Random(15)  # noqa: S311 - the same kills each time, as far as the machine allows
    acked = 0
    for _ in range(ROUNDS):
        process = await fork_code(_STORING, str(tmp_path), stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(chance.randrange(5, 40)):
            async with asyncio.timeout(PATIENCE):
                acked = int(await process.stdout.readline())
        await asyncio.sleep(chance.random() * 0.01)
        process.kill()
        acked = int((b"%d\n" % acked + await process.stdout.read()).splitlines()[-1])
        await process.wait()

        keys = key_file(tmp_path / "store.key")
        async with store_at(tmp_path, keys) as store:
            position = await store.position(SPRITE)
            assert position.through >= acked
            assert (await verified(store, SPRITE)).wrong == []
            stored = {int(each.removeprefix("turn ")) for each in await words(store, SPRITE)}
            # Every position belongs to a turn, except those of tombstones.
            assert {at for at in range(1, acked + 1) if at not in stored} <= {at + 1 for at in stored if at % 20 == 0}
