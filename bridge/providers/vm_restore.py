"""Restore a VM's workspace from an archive: upload it, check it, and replace the earlier workspace.

The earlier workspace stays on the VM in its own folder. The caller ensures that no other program works on the VM, and
that a sprite is not used before its restore has finished.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.providers import vm_scripts
from bridge.providers.errors import is_full_disk
from bridge.providers.machine import CommandError, Machine

if TYPE_CHECKING:
    from bridge.providers.provider import Begin, Report


_SHORT_SECONDS = 60.0
_LONGEST_COUNT = 15
#: The import indexes every turn again.
_IMPORT_SECONDS = 1800.0


async def restore_on(machine: Machine, archive: Path, report: Report, *, begin: Begin, is_new: bool) -> str:
    """Replace the workspace of a VM that has our code; return the folder of the earlier one on the VM.

    On a VM that `is_new` no earlier workspace is kept. The sprite does not run afterwards. HostError: nothing was
    changed unless `begin` was called.
    """
    report("updating", "Sending what is kept to the VM.")
    await machine.upload(vm_scripts.ARCHIVE, archive)
    report("updating", "Looking it through there.")
    await _run(machine, vm_scripts.LOOK_THROUGH, "looking the archive through", _IMPORT_SECONDS)
    await begin()
    report("updating", "Stopping what runs there.")
    await machine.stop(vm_scripts.SERVICE)
    aside = f"before-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    script = vm_scripts.OWN + vm_scripts.PUT_ASIDE.format(aside=aside)
    is_kept = bool((await _run(machine, script, "putting the workspace aside", _SHORT_SECONDS)).strip())
    report("updating", "Making the workspace of what is kept.")
    await _run(machine, vm_scripts.IMPORT, "making the workspace", _IMPORT_SECONDS)
    if is_new or not is_kept:
        await _run(machine, f"rm -rf {vm_scripts.SYSTEM}/{aside}", "removing what nobody used", _SHORT_SECONDS)
        return ""
    return f"{vm_scripts.SYSTEM}/{aside} on the VM"


async def _run(machine: Machine, script: str, what: str, seconds: float) -> bytes:
    try:
        return await machine.run(script, what, seconds=seconds)
    except CommandError as error:
        if is_full_disk(str(error)):
            raise CommandError(f"The VM's disk is full. {error}", retryable=False) from error
        raise


async def turns_of(machine: Machine) -> int | None:
    """Return the number of turns in the VM's log, None if unknown."""
    try:
        said = await machine.run(vm_scripts.COUNT_TURNS, "counting the turns", seconds=_SHORT_SECONDS)
    except CommandError:
        return None
    # A VM may send a number of a million digits.
    said = said.strip()
    return int(said) if said.isdigit() and len(said) <= _LONGEST_COUNT else None
