"""The snapshot for a client that cannot be updated by replay."""

from __future__ import annotations

from sprite.agent.permissions import PermissionDesk
from sprite.agent.runtime import AgentRuntime
from sprite.database.workspace import WorkspaceDB
from sprite.feed import Feed
from sprite.memory.actions import Actions
from sprite.protocol.frames import encode
from sprite.protocol.messages import (
    CHAT_LIMIT,
    CHAT_TEXT_CHARS,
    MAX_FRAME_BYTES,
    StateSync,
)
from sprite.protocol.shapes import ChatMessage, MemoryState


async def state_sync(
    workspace: WorkspaceDB,
    feed: Feed,
    desk: PermissionDesk,
    runtime: AgentRuntime,
    actions: Actions,
    memory: MemoryState,
) -> StateSync:
    """Return the state that a client displays, cut to fit one frame."""
    stacks, cards, chat = await workspace.stacks(), await workspace.cards(), await workspace.chat(CHAT_LIMIT)
    next_due, tz = await actions.next_due(), await actions.zone()
    # No await from here on, so that all parts are of one moment.
    sync = StateSync(
        stacks=stacks,
        cards=cards,
        chat=shown(chat),
        session=runtime.session_state(),
        memory=memory,
        permissions=desk.questions(),
        running=feed.underway.shown(),
        queued=runtime.queued(),
        model=runtime.model,
        next_due=next_due,
        tz=tz,
    )
    # Drop old chat lines first, then archived cards, then the oldest cards: the visible parts stay longest.
    while len(encode(sync)) > MAX_FRAME_BYTES:
        if len(sync.chat) > 1:
            sync.chat = sync.chat[(len(sync.chat) + 1) // 2 :]
        elif sync.running is not None and sync.running.events:
            sync.running.events = sync.running.events[(len(sync.running.events) + 1) // 2 :]
        elif any(card.archived for card in sync.cards):
            sync.cards = [card for card in sync.cards if not card.archived]
        elif sync.cards:
            sync.cards = sync.cards[(len(sync.cards) + 1) // 2 :]
        else:
            break
    return sync


def shown(chat: list[ChatMessage]) -> list[ChatMessage]:
    """Return chat lines as sent: very long ones are cut."""
    for message in chat:
        if len(message.text) > CHAT_TEXT_CHARS:
            message.text = f"{message.text[:CHAT_TEXT_CHARS]} […]"
    return chat
