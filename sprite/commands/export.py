"""`export`: write a whole workspace as one archive; see docs/archive.md. Works beside a running sprite."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path

from tqdm import tqdm

from sprite.archive.export import Export
from sprite.archive.moving_in import refuse_cut_off
from sprite.archive.snapshot import snapshot
from sprite.archive.walk import LeftOut
from sprite.commands.output import say, say_json, warn
from sprite.commands.owner import owned
from sprite.common.files import whole_file
from sprite.config import Settings
from sprite.errors import MendedAtStartError, OperatorError, WorkspaceLockedError
from sprite.protocol.archive import Manifest
from sprite.protocol.lines import one_line

_STDOUT = "-"


async def export(settings: Settings, target: str, *, without_files: bool, force: bool, as_json: bool) -> int:
    """Write the archive to a file, or for "-" to stdout."""
    refuse_cut_off(settings)
    await _bring_up_to_date(settings)
    with ExitStack() as stack:
        if target == _STDOUT:
            if sys.stdout.isatty():
                raise OperatorError("An archive is no text: name a file, or send it on with `export - > FILE`.")
            stream = sys.stdout.buffer
        else:
            stream = stack.enter_context(whole_file(Path(target), force=force, error=OperatorError))
        async with snapshot(settings) as look:
            made = Export(look, None if without_files else settings.workspace)
            with tqdm(total=made.total(), unit="row", desc="exporting", disable=None) as progress:
                try:
                    for step in made.write(stream):
                        progress.update(step)
                        # Let Ctrl-C be handled.
                        await asyncio.sleep(0)
                    stream.flush()
                except BrokenPipeError as error:
                    raise OperatorError("Whoever was to take the archive has gone; it is not complete.") from error
    if made.manifest is not None and target != _STDOUT:
        _tell(Path(target), made.manifest, as_json=as_json)
    _tell_left_out(made.left_out)
    return 0


async def _bring_up_to_date(settings: Settings) -> None:
    """Migrate databases of an earlier version as the next start of a sprite would; a running sprite has done it."""
    if settings.transcript_db.exists() and not settings.memory_db.exists():
        problem: OperatorError = OperatorError(
            f"There is no memory.db in {settings.memory}. Stop the sprite, and start it again: it is made anew."
        )
    else:
        try:
            async with snapshot(settings):
                return
        except MendedAtStartError as error:
            problem = error
    try:
        async with owned(settings) as stores:
            await stores.projection.replay(lambda _: None)
    except WorkspaceLockedError:
        raise problem from None


def _tell(path: Path, manifest: Manifest, *, as_json: bool) -> None:
    rows = {table.path: table.rows for table in manifest.tables}
    if as_json:
        say_json({"file": str(path), "bytes": path.stat().st_size, "rows": rows, "files": len(manifest.files)})
        return
    say(
        f"Wrote {one_line(path)}: {rows['log/observations.jsonl']} turn(s), {rows['memory/learnings.jsonl']} "
        f"learning(s), {rows['canvas/cards.jsonl']} card(s), {rows['chat/messages.jsonl']} line(s) of chat, "
        f"{len(manifest.files)} file(s)."
    )
    say("Only you can read it. What you have the agent forget later stays in it.")


def _tell_left_out(left_out: LeftOut) -> None:
    for words in left_out.named:
        warn(f"left out: {one_line(words)}")
    if left_out.count > len(left_out.named):
        warn(f"left out: and {left_out.count - len(left_out.named)} more")
