"""The variables with which the CLI starts, for the agent and for calls about memory."""

from __future__ import annotations

from pathlib import Path

from sprite.config import Settings

#: Folder below the CLI's state folder that replaces /tmp, where later agents could read its files.
TEMPORARY = "tmp"
#: The longest answer where the cost of each call is bounded. There, a command adds little to the next prompt, and a
#: failed call is not tried again.
SMALL_ANSWER_TOKENS = 2000
_SMALL_CALLS = {
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(SMALL_ANSWER_TOKENS),
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "BASH_MAX_OUTPUT_LENGTH": "1000",
}
#: Beginning of a shell script that starts the agent's CLI. It gets the person's login from a pipe, since commands can
#: read the environments of the programs around them.
SCRIPT = """#!/bin/sh
if [ "$CLAUDE_CODE_OAUTH_TOKEN" ]; then
exec 9<<END
$CLAUDE_CODE_OAUTH_TOKEN
END
export CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR=9
fi
unset CLAUDE_CODE_OAUTH_TOKEN
"""


def cli_environment(settings: Settings, state: Path) -> dict[str, str]:
    """Return the CLI's environment variables beside this process's; it keeps its state in the folder `state`."""
    env = {
        "CLAUDE_CONFIG_DIR": str(state),
        # In /tmp, outputs of background commands would outlive their session, readable by every later program.
        "CLAUDE_CODE_TMPDIR": str(state / TEMPORARY),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # The CLI would keep a second memory beside ours, and the agent would write to it.
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        # Otherwise our tools are hidden until the model searches for them.
        "ENABLE_TOOL_SEARCH": "false",
        # An agent that is a copy of the whole conversation is nothing the person asked for.
        "CLAUDE_CODE_FORK_SUBAGENT": "0",
        # The agent must not get the server's token, the key of connections or the bridge's data.
        "SPRITE_TOKEN": "",
        "SPRITE_CONNECTIONS": "",
        "SPRITE_DATA": "",
        # The CLI would prefer a login to a key.
        "CLAUDE_CODE_OAUTH_TOKEN": (settings.login or "") if settings.on_plan else "",
    }
    given = {
        "ANTHROPIC_API_KEY": settings.api_key,
        "ANTHROPIC_AUTH_TOKEN": settings.auth_token,
        "ANTHROPIC_BASE_URL": settings.base_url,
    }
    if settings.agent_usd is not None:
        env |= _SMALL_CALLS
    return env | {name: value for name, value in given.items() if value}
