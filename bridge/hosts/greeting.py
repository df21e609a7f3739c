"""Ask a sprite whether it accepts the bridge and whether it is busy. Its answers are untrusted."""

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
#: A state contains the whole canvas.
_MAX_BYTES = 16 * 1024 * 1024


async def greet(channel: Channel, token: str) -> None:
    """Return once the sprite accepts us. Raise HostError if it does not, or not in time. Closes the channel."""
    await _ask(channel, token, 1)


async def is_at_work(channel: Channel, token: str) -> bool:
    """Return whether the sprite says that a mission runs or waits.

    Raise HostError without an answer. Closes the channel.
    """
    messages = await _ask(channel, token, 2)
    states = [message.payload for message in messages if isinstance(message.payload, StateSync)]
    return any(state.session.running_mission_id is not None or state.session.queued > 0 for state in states)


async def _ask(channel: Channel, token: str, count: int) -> list[ServerMessage]:
    """Return the first messages after the token: the welcome, then the state."""
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
