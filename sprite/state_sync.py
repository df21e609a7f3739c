"""The snapshot a client gets when it cannot be brought up to date by replay."""

from __future__ import annotations

from sprite.database.workspace import WorkspaceDB
from sprite.memory.view import MemoryView
from sprite.protocol import CHAT_LIMIT, MAX_FRAME_BYTES, ChatMessage, SessionState, StateSync, encode

#: A single chat line is shown whole up to here; the turn in memory has all of it.
CHAT_TEXT_CHARS = 20_000


async def state_sync(workspace: WorkspaceDB, view: MemoryView, session: SessionState) -> StateSync:
    """Stacks, cards, the newest chat, session and memory, cut so that it fits one frame."""
    sync = StateSync(
        stacks=await workspace.stacks(),
        cards=await workspace.cards(),
        chat=[_shown(message) for message in await workspace.chat(CHAT_LIMIT)],
        session=session,
        memory=await view.state(),
    )
    # Old lines go first, then archived cards, then the oldest cards: what is on screen stays longest.
    while len(encode(sync)) > MAX_FRAME_BYTES:
        if len(sync.chat) > 1:
            sync.chat = sync.chat[(len(sync.chat) + 1) // 2 :]
        elif any(card.archived for card in sync.cards):
            sync.cards = [card for card in sync.cards if not card.archived]
        elif sync.cards:
            sync.cards = sync.cards[(len(sync.cards) + 1) // 2 :]
        else:
            break
    return sync


def _shown(message: ChatMessage) -> ChatMessage:
    if len(message.text) > CHAT_TEXT_CHARS:
        message.text = f"{message.text[:CHAT_TEXT_CHARS]} […]"
    return message
