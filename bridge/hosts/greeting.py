"""What a host asks of a sprite itself: whether it lets us in, and whether it is at work. A sprite may say anything."""

from __future__ import annotations

import asyncio

from bridge.hosts.host import (
    Channel,
    HostError,
)
from sprite.protocol.frames import (
    FrameDecoder,
    PeerError,
    ServerMessage,
    decode_server,
    encode,
)
from sprite.protocol.messages import (
    Auth,
    AuthOk,
    StateSync,
)

_GREETING_SECONDS = 10.0
#: A state carries the whole canvas.
_MAX_BYTES = 16 * 1024 * 1024


async def greet(channel: Channel, token: str) -> None:
    """Returns once the sprite lets us in; HostError if it does not, in time. The channel is used up."""
    await _ask(channel, token, 1)


async def is_at_work(channel: Channel, token: str) -> bool:
    """Whether a mission runs or waits, by the sprite's own word; HostError if it has none. The channel is used up."""
    messages = await _ask(channel, token, 2)
    states = [message.payload for message in messages if isinstance(message.payload, StateSync)]
    return any(state.session.running_mission_id is not None or state.session.queued > 0 for state in states)


async def _ask(channel: Channel, token: str, count: int) -> list[ServerMessage]:
    """The first messages after the token: the welcome, then the state."""
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            channel.write(encode(Auth(token=token, client="deploy")))
            await channel.drain()
            messages = await _messages(channel, count)
    except (OSError, TimeoutError, PeerError) as error:
        raise HostError("The sprite does not greet as it should.") from error
    finally:
        await channel.close()
    if not messages or not isinstance(messages[0].payload, AuthOk):
        raise HostError("The sprite does not greet as it should.")
    return messages


async def _messages(channel: Channel, count: int) -> list[ServerMessage]:
    decoder = FrameDecoder(_MAX_BYTES)
    messages: list[ServerMessage] = []
    while len(messages) < count and (data := await channel.read()):
        decoder.feed(data)
        while len(messages) < count and (frame := decoder.next_frame()) is not None:
            messages.append(decode_server(frame))
    return messages
