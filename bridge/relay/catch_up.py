"""Bring one client up to date over a separate connection, with the client's own resume point.

It ends when the sprite has answered completely: with a replay up to the newest event, or a state. The caller has
later events from the live stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.relay.sprite_connection import LinkError, Pace, Reach, SpriteConnection
from sprite.protocol.frames import (
    encode,
)
from sprite.protocol.messages import (
    AuthOk,
    Gap,
    Resume,
    StateSync,
)

if TYPE_CHECKING:
    from bridge.relay.subscriber import Subscriber

#: Connecting, and 5,000 events at the pace of a slow phone.
_SECONDS = 60.0


async def caught_up(reach: Reach, member: Subscriber, welcome: AuthOk | None, pace: Pace) -> int:
    """Return the newest event that the member then has. Raise HostError, LinkError, OSError or TimeoutError.

    `welcome` is the link's; LinkError if the sprite has another epoch by now. On an error the member's `resume` marks
    the events it already has, so that the next try continues there.
    """
    async with asyncio.timeout(_SECONDS):
        resume = _resume(member)
        connection, now = await SpriteConnection.open(reach, lambda *_: None, resume, pace)
        try:
            if welcome is None or now.epoch != welcome.epoch:
                raise LinkError("The sprite has begun anew.")
            member.drop_transient()
            if not _goes_on(resume, member, now):
                member.greet(now)
            if resume is None or resume.epoch != now.epoch or resume.last_seq != now.last_seq:
                await _copy(connection, member, now)
            member.has_got(now.epoch, now.last_seq)
            return now.last_seq
        finally:
            await connection.close()


def _resume(member: Subscriber) -> Resume | None:
    asked = member.resume
    if asked is None or asked.epoch is None or asked.last_seq is None:
        return None
    return Resume(epoch=asked.epoch, last_seq=asked.last_seq)


def _goes_on(resume: Resume | None, member: Subscriber, welcome: AuthOk) -> bool:
    """Return whether the member was greeted and a replay continues where an earlier one was cut off."""
    return resume is not None and resume.epoch == welcome.epoch == member.told_epoch


async def _copy(connection: SpriteConnection, member: Subscriber, welcome: AuthOk) -> None:
    """Forward every event up to the newest one of the welcome."""
    reached = 0
    while True:
        message = await connection.message()
        if isinstance(message.payload, StateSync):
            member.put(encode(message.payload)[:-1])
            return
        if isinstance(message.payload, Gap):
            member.say(welcome)
            member.say(message.payload)
        elif message.seq is not None and message.reply_to is None and reached < message.seq <= welcome.last_seq:
            reached = message.seq
            member.put(encode(message.payload, message_id=message.id, seq=reached, timestamp=message.timestamp)[:-1])
            member.has_got(welcome.epoch, reached)
            await member.keeps_up()
            if reached == welcome.last_seq:
                return
