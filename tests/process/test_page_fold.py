"""The page's fold of wire messages, run in node, agrees with the fold of terminal, editor and API (tests/vectors)."""

from __future__ import annotations

import asyncio
import json

from tests.harness import PATIENCE, ROOT

VECTORS = ROOT / "tests/vectors/turns.json"


async def test_page_fold_matches_other_clients() -> None:
    async with asyncio.timeout(PATIENCE):
        process = await asyncio.create_subprocess_exec(
            *(str(ROOT / ".venv/bin/node"), "--no-warnings", str(ROOT / "tests/page_fold.mjs"), str(VECTORS)),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    wanted = json.loads(VECTORS.read_text())
    folded = json.loads(out)
    assert len(wanted) == len(folded) > 15
    for vector, page in zip(wanted, folded, strict=True):
        assert page == {name: vector[name] for name in page}, vector["name"]
