"""A person's changes to the canvas without the agent: stacks, places, notes, edits of blocks.

A person's text is redacted like their messages. Every connected client receives each change.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from sprite.agent.tools.blocks import MAX_BLOCKS, BlockError, check_size, read_data, read_each
from sprite.boot.canvas import CanvasContext
from sprite.common.tasks import WORDS, off_loop, size_of
from sprite.errors import PeerError
from sprite.privacy.private_text import PrivateText
from sprite.privacy.redaction import discreet, discreet_value
from sprite.protocol import messages
from sprite.protocol.frames import well_formed
from sprite.protocol.shapes import Block, Card
from sprite.protocol.tools import leaves_of
from sprite.workspace.database import WorkspaceDB
from sprite.workspace.feed import Feed

MAX_NAME_CHARS = 200
UNTITLED = "Note"
#: Limit for a name before it is redacted, because redaction takes time. The result is cut further.
_MOST_READ = 4000
#: The id of a person's card derives from its message, so a resend creates no second card.
_CARDS = uuid.UUID("6f1c1a52-9d0e-4c8e-9a51-6d1c4f1b7a10")


class PersonsCanvas:
    """Handle every `canvas_interaction` message of every client: a person's change of the canvas."""

    def __init__(self, workspace: WorkspaceDB, feed: Feed, private_text: PrivateText, sight: CanvasContext) -> None:
        self._workspace = workspace
        self._feed = feed
        self._private_text = private_text
        #: It receives the person's full text, to tell the agent.
        self._sight = sight

    async def take(self, interaction: messages.CanvasInteraction, message_id: str) -> messages.Ack | messages.Error:
        """Make a person's change of the canvas; an outdated edit gets an error with the current block.

        Raises PeerError if the change is invalid.
        """
        answer: messages.Ack | messages.Error
        async with self._workspace.canvas_lock:
            match interaction:
                case messages.MoveCard() | messages.ArchiveCard() | messages.RestoreCard():
                    answer = await self._put(interaction)
                case messages.CreateCard():
                    answer = await self._create(interaction, message_id)
                case messages.UpdateBlock():
                    answer = await self._update(interaction)
                case (
                    messages.CreateStack() | messages.RenameStack() | messages.ArchiveStack() | messages.RestoreStack()
                ):
                    answer = await self._change_stack(interaction)
        return answer

    # --- stacks ---

    async def _change_stack(
        self, interaction: messages.CreateStack | messages.RenameStack | messages.ArchiveStack | messages.RestoreStack
    ) -> messages.Ack:
        match interaction:
            case messages.CreateStack(name):
                stack_id, found = await self._workspace.create_stack(_name(name)), True
            case messages.RenameStack(name, stack_id):
                found = await self._workspace.change_stack(stack_id, name=_name(name))
            case messages.ArchiveStack(stack_id) | messages.RestoreStack(stack_id):
                archived = isinstance(interaction, messages.ArchiveStack)
                found = await self._workspace.change_stack(stack_id, archived=archived)
        if not found:
            raise PeerError("There is no such stack.", code="not_found")
        return await self._changed_stack(stack_id)

    async def _changed_stack(self, stack_id: str) -> messages.Ack:
        if (stack := await self._workspace.stack(stack_id)) is not None:
            self._feed.publish(messages.StackUpdate(stack_id, stack.name, stack.archived))
        return messages.Ack("done", stack_id=stack_id)

    # --- cards ---

    async def _put(self, interaction: messages.MoveCard | messages.ArchiveCard | messages.RestoreCard) -> messages.Ack:
        card = await self._card(interaction.card_id)
        if isinstance(interaction, messages.MoveCard):
            await self._workspace.move_card(card.card_id, interaction.position, interaction.size)
            card.position, card.size = interaction.position or card.position, interaction.size or card.size
            return self._changed("update_card", card)
        card.archived = isinstance(interaction, messages.ArchiveCard)
        await self._workspace.archive_card(card.card_id, archived=card.archived)
        return self._changed("close_card" if card.archived else "create_card", card)

    async def _create(self, wanted: messages.CreateCard, message_id: str) -> messages.Ack:
        card_id = str(uuid.uuid5(_CARDS, message_id) if message_id else uuid.uuid4())
        if (made := await self._workspace.card(card_id)) is not None:
            # The answer was lost, and perhaps the event, too.
            return self._shown(made)
        if not wanted.blocks:
            raise PeerError("Write something first: a note has at least one block.")
        length = sum(size_of(block.data) for block in wanted.blocks[: MAX_BLOCKS + 1])
        whole, blocks = await off_loop(WORDS * length, self._read, wanted.blocks)
        title = self._said(" ".join(wanted.title[:_MOST_READ].split()))[:MAX_NAME_CHARS] or UNTITLED
        stack_id = await self._stack(wanted.stack_id)
        card = Card(
            card_id, stack_id, well_formed(title), "notes", wanted.position, wanted.size, blocks, archived=False
        )
        await self._workspace.make_card(card)
        self._sight.wrote(card_id, whole)
        return self._changed("create_card", card)

    async def _update(self, edit: messages.UpdateBlock) -> messages.Ack | messages.Error:
        card = await self._card(edit.card_id)
        if card.archived:
            raise PeerError("The card is archived. Restore it first, then change it.", code="archived")
        block = next((block for block in card.blocks if block.id == edit.block_id), None)
        if block is None:
            raise PeerError("The card does not have that block any more.", code="not_found")
        with _refusing():
            whole = read_data(block.type, edit.data)
        data = await off_loop(WORDS * size_of(whole), self._discreet, whole, before=block.data)
        if data == block.data:
            # Also on a resend, because the answer was lost.
            return self._shown(card)
        if edit.seen != block.version:
            return messages.Error("conflict", "This block was changed meanwhile. Your text was not saved.", block=block)
        block.data = data
        with _refusing("too_long"):
            check_size(card.blocks)
        changed = await self._workspace.change_block(edit.card_id, edit.block_id, data, edit.seen)
        if changed is None:
            raise PeerError("The card changed at this very moment. Try again.", code="busy")
        self._sight.wrote(edit.card_id, [Block(block.id, block.type, whole, edit.seen + 1, "person")])
        return self._changed("update_card", changed)

    def _shown(self, card: Card) -> messages.Ack:
        return self._changed("close_card" if card.archived else "update_card", card)

    def _changed(self, command: messages.CanvasCommand, card: Card) -> messages.Ack:
        self._feed.publish(messages.CanvasUpdate.of(command, card))
        return messages.Ack("done", card_id=card.card_id)

    async def _card(self, card_id: str) -> Card:
        card = await self._workspace.card(card_id)
        if card is None:
            raise PeerError("There is no such card.", code="not_found")
        return card

    async def _stack(self, wanted: str | None) -> str:
        """Return the stack of a new card: the named one, which must be open, or else the newest open one."""
        if wanted is not None:
            stack = await self._workspace.stack(wanted)
            if stack is None:
                raise PeerError("There is no such stack.", code="not_found")
            if stack.archived:
                raise PeerError("The stack is archived. Restore it first, or choose another.", code="archived")
            return wanted
        known = {stack.stack_id for stack in await self._workspace.stacks()}
        stack_id = await self._workspace.stack_for(None)
        if stack_id not in known:
            await self._changed_stack(stack_id)
        return stack_id

    # --- words ---

    def _read(self, new: list[messages.NewBlock]) -> tuple[list[Block], list[Block]]:
        """Return new blocks twice: as the person wrote them, and redacted for storage."""
        with _refusing("too_long"):
            whole = read_each(new, _new_block)
            blocks = [msgspec.structs.replace(block, data=self._discreet(block.data, before=None)) for block in whole]
            check_size(blocks)
        return whole, blocks

    def _said(self, words: str) -> str:
        self._private_text.hear(words)
        return self._private_text.person(words)

    def _discreet(self, data: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
        """Return a block's data without private words. Text that was there `before` was not written by the person."""
        known = {text for _, text in leaves_of(before)}
        discreet_data: dict[str, Any] = discreet_value(
            data, lambda words: words if words in known else self._said(words)
        )
        return discreet_data


@contextmanager
def _refusing(code: str | None = None) -> Iterator[None]:
    """Raise PeerError for the BlockError of invalid blocks."""
    try:
        yield
    except BlockError as error:
        raise PeerError(f"Not saved: {error}.", code=code) from error


def _new_block(number: int, new: messages.NewBlock) -> Block:
    with _refusing():
        data = read_data(new.type, new.data, f"blocks[{number}]")
    return Block(str(uuid.uuid4()), new.type, data, by="person")


def _name(value: str) -> str:
    name = discreet(" ".join(value[:_MOST_READ].split()))[:MAX_NAME_CHARS]
    if not name:
        raise PeerError("A stack needs a name.")
    return name
