"""Count the functions between a raw answer and the commit of its decision: `python benchmarks/bench_decision_path.py`.

Each stage is measured by itself with `sys.setprofile`, for an answer with one learning about the person:

- verify: find the lines that need the verifier, and build its request
- decide: the raw answer with its verdicts -> the decision, ready for the log
- commit: append answer and decision to transcript.db
- fold: apply the logged decision to memory.db

Comprehensions and lambdas count as the function around them. `verify` and `decide` share most functions: the request is
found by a rehearsal of the decision.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

from sprite.log.curations import Curation
from tests.memory_stores import open_stores

_PACKAGE = str(Path(__file__).resolve().parents[1] / "sprite") + "/"
_SAID = "I work in Lisbon now."
_ANSWER = f'FACT: [t{{turn}}] The user works in Lisbon. | "{_SAID}"'


class Entered:
    """The product's functions that a stage enters, in any thread that starts after `watch`."""

    def __init__(self) -> None:
        self._codes: set[CodeType] | None = None

    def watch(self) -> None:
        """Watch this thread, and those that start from here on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def stage(self) -> Iterator[set[CodeType]]:
        """Yield the set that the functions of a block are added to."""
        self._codes = codes = set[CodeType]()
        try:
            yield codes
        finally:
            self._codes = None

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(_PACKAGE) and not code.co_name.startswith("<")
        if is_ours and event == "call" and self._codes is not None:
            self._codes.add(code)


def show(stage: str, codes: set[CodeType]) -> None:
    """Print a stage's functions by file."""
    files: dict[str, list[str]] = {}
    for code in codes:
        files.setdefault(code.co_filename.removeprefix(_PACKAGE), []).append(code.co_qualname)
    print(f"{stage}: {len(codes)} functions in {len(files)} files")
    for file, names in sorted(files.items()):
        print(f"    {file}: {', '.join(sorted(names))}")


async def main() -> None:
    """Log and apply one answer, stage by stage."""
    entered = Entered()
    entered.watch()
    with tempfile.TemporaryDirectory() as folder:
        async with open_stores(Path(folder)) as stores:
            turn = await stores.turn(_SAID, "Noted.")
            await stores.projection.settle()
            judge = stores.judge
            answer = Curation("batch", _ANSWER.format(turn=turn), turn, turn, model="offline")
            with entered.stage() as verify:
                assert await judge.request(answer) is not None
            answer = await stores.verified(answer)
            with entered.stage() as decide:
                decided = await judge.decided(answer)
            with entered.stage() as commit:
                await stores.log(decided)
            with entered.stage() as fold:
                (change,) = await stores.projection.settle()
            assert change.learnings, await stores.reports()
    for stage, codes in (("verify", verify), ("decide", decide), ("commit", commit), ("fold", fold)):
        show(stage, codes)
    show("raw answer to commit", decide | commit)
    show("the same with the verifier's request before and the fold after", verify | decide | commit | fold)


if __name__ == "__main__":
    asyncio.run(main())
