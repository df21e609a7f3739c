"""Commands that change memory: forget, edit, and accept or reject drift."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group

from bridge.chat import drawing, memory_views
from bridge.chat.command import LOOK_SECONDS, MODEL_SECONDS, Command
from bridge.chat.untrusted import one_line
from sprite.protocol.memory import (
    AcceptRequest,
    AcceptResult,
    EditRequest,
    EditResult,
    FileRequest,
    FileResult,
    FilesRequest,
    FilesResult,
    ForgetRequest,
    ForgetResult,
    RejectRequest,
    RejectResult,
)
from sprite.protocol.messages import Status, System

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bridge.chat.command import Asking
    from bridge.chat.conversation import Conversation
    from bridge.chat.screen import Screen


class MemoryCommands:
    """The commands of one conversation; `table` maps names to commands."""

    def __init__(self, conversation: Conversation, screen: Screen, asking: Asking) -> None:
        self._conversation = conversation
        self._screen = screen
        self._asking = asking
        self.table = {
            "/edit": Command("/edit FILE", "opens a memory file in your editor", self._edit),
            "/drift": Command(
                "/drift [accept FILE | reject FILE]", "what changed behind memory's back; your word on it", self._drift
            ),
            "/forget": Command("/forget TEXT", "takes words out of everything, for good; asks first", self._forget),
        }

    async def _forget(self, text: str) -> None:
        if not text:
            await self._screen.show(drawing.problem("Forget what?", "/forget TEXT, word by word as it was said."))
            return
        preview = await self._asking.look(ForgetRequest(text=text, preview=True), ForgetResult)
        if preview is None:
            return
        await self._screen.show(memory_views.forgetting(preview.forgotten))
        with self._conversation.busy("yes or no"):
            said = await self._screen.ask("Forget it? It cannot be undone. Type yes; anything else is a no.")
        if said.lower() != "yes":
            await self._screen.line(drawing.note("Nothing was forgotten."))
            return
        # A running turn is finished first.
        sure = ForgetRequest(text=text, yes=True)
        done = await self._asking.look(sure, ForgetResult, "forgetting", MODEL_SECONDS)
        if done is not None:
            self._screen.forget(text)
            await self._screen.show(memory_views.forgotten(done.forgotten))

    async def _edit(self, name: str) -> None:
        if not name:
            await self._screen.show(drawing.problem("Which file?", "/edit FILE; /memory lists them."))
            return
        files = await self._asking.look(FilesRequest(), FilesResult)
        found = await self._asking.look(FileRequest(name), FileResult) if files is not None else None
        if files is None or found is None:
            return
        if found.drift is not None:
            problem = f"{one_line(name)} has a change that waits for your word."
            await self._screen.show(drawing.problem(problem, "/drift shows it; accept or reject it first."))
        elif not any(file.name == name and file.managed == "curated" for file in files.files):
            problem = f"{one_line(name)} cannot be edited here: it is deployed, not learned."
            await self._screen.show(drawing.problem(problem, "Change it where it is deployed from."))
        else:
            await self._edited(found)

    async def _edited(self, file: FileResult) -> None:
        copy = Path(tempfile.mkdtemp(prefix="sprite-edit-")) / Path(file.name).name
        copy.write_text(file.content, encoding="utf-8")
        is_safe = False
        try:
            is_safe = await self._saved(file, copy)
        finally:
            # Keep the person's text unless memory has it, even if this is cancelled.
            if is_safe or _content(copy) in {None, file.content}:
                shutil.rmtree(copy.parent, ignore_errors=True)
        if not is_safe:
            await self._screen.line(drawing.note(f"  what you wrote is kept in {copy}"))

    async def _saved(self, file: FileResult, copy: Path) -> bool:
        """Return whether no unsaved text is left."""
        try:
            status = await self._screen.edit(copy)
        except (OSError, ValueError) as error:
            problem = f"The editor cannot be started ({error})."
            await self._screen.show(drawing.problem(problem, "Set VISUAL or EDITOR to yours, and try again."))
            return True
        content = _content(copy)
        if content is None:
            await self._screen.show(drawing.problem("What the editor left is not readable as text."))
            return True
        if content == file.content:
            await self._screen.line(drawing.note(f"{file.name} is as it was"))
            return True
        if status != 0:
            await self._screen.show(drawing.problem(f"The editor ended with status {status}: nothing was saved."))
            return False
        request = EditRequest(file.name, content, file.version)
        saved = await self._asking.look(request, EditResult, "saving", LOOK_SECONDS)
        if saved is not None:
            await self._screen.line(drawing.note(f"{file.name} is saved as version {saved.version}"))
        return saved is not None

    async def _drift(self, rest: str) -> None:
        word, _, name = rest.partition(" ")
        name = name.strip()
        if not rest:
            await self._show_drift()
        elif word == "accept" and name:
            if await self._asking.look(AcceptRequest(name), AcceptResult) is not None:
                words = f"{name} is now as it stands on disk; what memory had is kept as a version"
                await self._screen.line(drawing.note(words))
        elif word == "reject" and name:
            if await self._asking.look(RejectRequest(name), RejectResult) is not None:
                words = f"{name} is again as memory has it; what stood on disk is kept in the log"
                await self._screen.line(drawing.note(words))
        else:
            advice = "/drift shows what changed; /drift accept FILE or /drift reject FILE decides."
            await self._screen.show(drawing.problem("Which file, and what about it?", advice))

    async def _show_drift(self) -> None:
        status = await self._asking.ask(System(action="status"), "looking", LOOK_SECONDS)
        if not isinstance(status, Status):
            return
        shown: list[RenderableType] = []
        for name in status.memory.drift:
            found = await self._asking.look(FileRequest(name), FileResult)
            if found is None:
                return
            if found.drift is not None:
                shown.append(memory_views.difference(name, found.content, found.drift))
        if not shown:
            await self._screen.line(drawing.note("nothing waits for your word"))
            return
        advice = "/drift accept FILE takes it over as your own edit; /drift reject FILE puts it away."
        await self._screen.show(Group(*shown, drawing.note(advice)))


def _content(copy: Path) -> str | None:
    try:
        return copy.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
