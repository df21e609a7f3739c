"""State of replication: pending rows, unconfirmed forgets, and missing files."""

from __future__ import annotations

import msgspec

from sprite.database.transcript import TranscriptDB
from sprite.database.workspace import WorkspaceDB
from sprite.shipping.files import MOST_FILE_BYTES, Omitted
from sprite.shipping.looks import MANIFEST, omitted_in
from sprite.userfiles.changes import size_in_words

#: Text for a forget that the replica received and has not yet carried out.
NOT_RID_OF_IT = "Forgotten here; the copy at the bridge is not yet rid of it"


class ShippingReport(msgspec.Struct, frozen=True):
    """State of the replica. `followed`: one has data of this sprite; `acked_at` is its last acknowledgement (Unix s).

    `waiting` is the number of pending rows, `unshipped_forgets` of unconfirmed forgets.
    """

    followed: bool
    acked_at: float | None
    waiting: int
    unshipped_forgets: int
    files_left_out: Omitted

    def words(self) -> list[str]:
        """Return the problems, one line each."""
        left_out = self.files_left_out
        lines = [f"{NOT_RID_OF_IT} ({self.unshipped_forgets} forget(s))"] if self.unshipped_forgets else []
        if left_out.over_limit:
            lines.append(
                f"{left_out.over_limit} file(s), {size_in_words(left_out.bytes)}, are not in the copy at the bridge: "
                f"it holds {size_in_words(MOST_FILE_BYTES)} at most"
            )
        if left_out.unkept:
            lines.append(
                f"{left_out.unkept} file(s) or folder(s) are in no copy and no archive, for their names or since they "
                "cannot be read: `python -m sprite export` names them"
            )
        return lines


async def shipping_report(transcript: TranscriptDB, workspace: WorkspaceDB) -> ShippingReport:
    """Return the state of replication."""
    state = workspace.ship_state
    followed = await state.followed()
    return ShippingReport(
        followed=followed.acked_at is not None,
        acked_at=followed.acked_at,
        waiting=await transcript.changes.count() + await workspace.changes.count(),
        unshipped_forgets=await state.tombstones(),
        files_left_out=omitted_in(await state.rows(MANIFEST)),
    )
