"""Settings of the sprite: one frozen value. Help and documentation are made from its declarations."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from sprite.common import settings
from sprite.common.settings import setting
from sprite.errors import OperatorError

PermissionMode = Literal["ask", "bypass"]
#: Registries and hosts that the person allows, registries only, everything, or only the model. On a VM, its host
#: enforces this, else the proxy of `sprite/sandbox/egress.py`.
Egress = Literal["ask", "packages", "open", "bridge"]

#: The newest Haiku that `anthropic` 2.11 lists.
DEFAULT_CURATOR_MODEL = "claude-haiku-5-5"
#: Name shown to people for the fake model that answers if the bridge has no key.
STAND_IN = "demo model, not Claude"
#: Fewer turns are not worth a curator call: the next session's first prompt contains them unchanged. An explicit
#: flush and a compaction curate them in any case.
LEAST_TURNS = 5
#: Smaller ids are system users.
_FIRST_PERSON = 1000
#: A socket that only a Sprites VM has; the VM is then the sandbox of the agent.
VM_SOCKET = Path("/.sprite/api.sock")


def embeddings(text: str) -> str:
    """Parse `off`, `bundled` or the address of an endpoint; without encryption only on this machine."""
    if text in {"off", "bundled"}:
        return text
    parts = urlsplit(settings.url(text, may_have_query=True))
    if parts.scheme != "https" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        raise ValueError("must be off, bundled or an https address.")
    return text


class _Below:
    """Attribute of Settings: the path of this name below another path of the settings."""

    def __init__(self, above: str, name: str) -> None:
        self._above = above
        self._name = name

    def __get__(self, settings: Settings, _: type) -> Path:
        return Path(getattr(settings, self._above), self._name)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the sprite. Money is in US dollars."""

    workspace: Path
    permissions: PermissionMode = setting(
        "--permissions",
        settings.choice("ask", "bypass"),
        "ask",
        "whether tool calls are asked for: `ask` or `bypass`; inside a VM the default is `bypass`",
    )
    host: str = setting("--host", str, "127.0.0.1", "address to listen on")
    port: int = setting("--port", settings.port, 8765, "port to listen on, 0 for a free one")
    api_key: str | None = setting("ANTHROPIC_API_KEY", str, None, "API key of the model", secret=True)
    auth_token: str | None = setting(
        "ANTHROPIC_AUTH_TOKEN", str, None, "bearer token of a model gateway, instead of a key", secret=True
    )
    base_url: str | None = setting("ANTHROPIC_BASE_URL", str, None, "URL of the model API, if it is not Anthropic's")
    login: str | None = setting(
        "CLAUDE_CODE_OAUTH_TOKEN",
        str,
        None,
        "your own login of Claude Code (`claude setup-token`) instead of a key, for yourself on your own machine",
        secret=True,
    )
    #: Whether Claude Code reaches the model through the person's own cloud, by its own settings.
    cloud: bool = False
    token: str | None = setting(
        "SPRITE_TOKEN", str, None, "token that clients must send, instead of the generated token file", secret=True
    )
    #: None leaves the choice to the CLI.
    models: tuple[str, ...] = setting(
        "SPRITE_MODEL",
        settings.words,
        (),
        "the agent's model, and then those that answer if it is not available; the Claude Agent SDK chooses if unset",
    )
    curator_model: str = setting(
        "SPRITE_CURATOR_MODEL",
        str,
        DEFAULT_CURATOR_MODEL,
        "the model that curates memory; the bridge sets `offline` if its built-in demo model answers",
    )
    verify: str = setting(
        "SPRITE_VERIFY",
        settings.choice("on", "off"),
        "on",
        "whether a second model call checks what memory says about you against your own words; `off` keeps only your "
        "literal sentences in user.md",
    )
    batch_turns: int = setting("SPRITE_BATCH_TURNS", settings.whole(1), 25, "turns per curation")
    #: None for no limit.
    daily_usd: float | None = setting(
        "SPRITE_DAILY_USD",
        settings.dollars,
        None,
        "daily limit for curation in US dollars (UTC), or `none`; the bridge sets it for its sprites",
    )
    idle_flush_seconds: int = setting(
        "SPRITE_IDLE_FLUSH_SECONDS",
        settings.whole(1),
        600,
        f"idle seconds after which waiting turns are curated, fewer than {LEAST_TURNS} at most once an hour (on a VM, "
        "every ten minutes); a VM stays awake until then, but for 30 seconds only once nobody is connected",
    )
    prewarm_seconds: int = setting(
        "SPRITE_PREWARM_SECONDS",
        settings.whole(0),
        600,
        "seconds that an idle agent process is kept, also before its first message; 0: not started early, never ended",
    )
    #: Long enough for a build or an overnight download, short enough that an unattended machine goes idle.
    background_timeout: int = setting(
        "SPRITE_BACKGROUND_TIMEOUT",
        settings.whole(1),
        2 * 3600,
        "limit in seconds for a turn that the agent begins by itself, and for keeping a VM awake for background work",
    )
    sandbox: str = setting(
        "SPRITE_SANDBOX",
        settings.choice("on", "off"),
        "on",
        "whether the agent runs in a sandbox where one works; without one, it asks before every change",
    )
    egress: Egress = setting(
        "SPRITE_EGRESS",
        settings.choice(*get_args(Egress)),
        "ask",
        "hosts that the agent may reach: `ask` (package registries, and others that you allow when asked), `packages` "
        "(package registries only), `open` (all public hosts) or `bridge` (the model only); inside a VM, whose host "
        "enforces it, the default is `open`",
    )
    #: Whether the agent may reach private addresses, too; only tests set it.
    egress_inside: bool = False
    #: The cost at which the agent begins no further call, and the largest cost of all calls about memory, or None for
    #: no limit; only `doctor --live` sets them.
    agent_usd: float | None = None
    memory_usd: float | None = None
    #: Whether the bridge's fake model answers instead of Claude; then nothing has a cost.
    is_offline: bool = False
    #: Its address can contain a key.
    embeddings: str = setting(
        "SPRITE_EMBEDDINGS",
        embeddings,
        "off",
        "search by meaning beside words: `off`, `bundled` (a model on this machine, from the extra `meaning`), or the "
        "address of an OpenAI-compatible embeddings endpoint, `https://:KEY@example.org/v1?model=NAME`",
        secret=True,
    )
    connections: str | None = setting(
        "SPRITE_CONNECTIONS",
        settings.url,
        None,
        "where the bridge offers the person's connections, `http://connections:KEY@HOST:PORT`; the bridge sets it",
        secret=True,
    )
    #: Data folder of the bridge on this machine, whether it exists or not: hidden from the agent.
    bridge_data: Path | None = setting(
        "SPRITE_DATA",
        settings.folder,
        None,
        "data folder of the bridge on this machine, which is hidden from agents (default: `data/` in a checkout, else "
        "`sprite/` in `$XDG_DATA_HOME`)",
    )
    #: Socket of the surrounding VM's API, if any.
    vm_socket: Path = VM_SOCKET

    #: All files of Sprite.
    system = _Below("workspace", ".os")
    #: The log, the projection and the six memory files.
    memory = _Below("system", "memory")
    #: Files of the running process.
    run = _Below("system", "run")
    egress_socket = _Below("run", "egress.sock")
    #: Leads a sandboxed agent to a model endpoint without encryption.
    model_socket = _Below("run", "model.sock")
    transcript_db = _Below("memory", "transcript.db")
    memory_db = _Below("memory", "memory.db")
    vectors_db = _Below("memory", "vectors.db")
    #: The canvas, the chat and the inbox.
    workspace_db = _Below("system", "workspace.db")
    #: Contents of changed files, to undo turns.
    undo = _Below("system", "undo")
    #: Copies of the log and the chat from before the first start of this version; a forget deletes them.
    backup = _Below("system", "backup")
    #: Lock file held by the process that owns the workspace.
    lock = _Below("run", "lock")
    #: File with the token that clients must send.
    token_file = _Below("run", "token")
    #: File with HOST:PORT of the running sprite.
    address_file = _Below("run", "address")
    #: State of a follower of session logs: its read position.
    follow = _Below("system", "follow")
    #: Boot prompt of the agent's newest session.
    boot_prompt = _Below("run", "boot.md")
    #: Boot prompts for sessions of other programs: one file per project.
    boot_files = _Below("run", "boot")
    #: Folder of uploaded files.
    documents = _Below("workspace", "documents")
    #: The CLI's folder with its conversations; it has none of the person's settings.
    cli_state = _Below("run", "claude")

    @property
    def least_turns(self) -> int:
        """Number of waiting turns from which an idle or ended session justifies a call of the curator."""
        return min(LEAST_TURNS, self.batch_turns)

    @property
    def model_endpoint(self) -> tuple[str, int, bool]:
        """Host and port of the model API, and whether they are encrypted."""
        parts = urlsplit(self.base_url or "https://api.anthropic.com")
        is_https = parts.scheme == "https"
        return parts.hostname or "", parts.port or (443 if is_https else 80), is_https

    @property
    def own_project(self) -> str:
        """Project key by which other programs name this workspace. Turns with this key are the person's own."""
        return str(self.workspace.resolve())

    @property
    def has_credentials(self) -> bool:
        """Whether there are credentials for a model."""
        return bool(self.api_key or self.auth_token or self.login or self.cloud)

    @property
    def on_plan(self) -> bool:
        """Whether the person's Claude plan pays; a key or a cloud comes first."""
        return bool(self.login) and not (self.api_key or self.auth_token or self.cloud)

    @property
    def is_free(self) -> bool:
        """Whether model calls cost no dollars."""
        return self.is_offline or self.on_plan


def from_environment(workspace: Path, flags: Mapping[str, Any]) -> Settings:
    """Return the settings from flags (by field) and the environment. Raise OperatorError naming an invalid one."""
    try:
        given = settings.read(Settings, flags)
    except ValueError as error:
        raise OperatorError(str(error)) from None
    default: dict[str, Any] = {"bridge_data": settings.default_data(), "cloud": settings.has_own_cloud()}
    if given.get("curator_model") == "offline":
        given |= {"curator_model": DEFAULT_CURATOR_MODEL, "is_offline": True}
    if inside_vm():
        default |= {"permissions": "bypass", "egress": "open"}
    return Settings(workspace.resolve(), **{**default, **given})


def home_folders(*, everyone: bool = True) -> list[Path]:
    """Return this user's home directories; as root with `everyone`, those of all people on the machine."""
    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    if everyone and is_root():
        homes += [user.pw_dir for user in pwd.getpwall() if user.pw_uid >= _FIRST_PERSON]
    return [Path(home) for home in dict.fromkeys(homes) if home not in {"", "/"}]


def xdg_folders() -> dict[str, Path]:
    """Return the folders that XDG variables choose, by the usual place below a home directory that they replace."""
    names = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}
    return {usual: Path(chosen) for usual, name in names.items() if (chosen := os.environ.get(name))}


def inside_vm() -> bool:
    """Return whether this machine is a VM that already isolates the agent."""
    return os.environ.get("IS_SANDBOX") == "1" or VM_SOCKET.exists()


def is_root() -> bool:
    """Return whether this process is root; the CLI must then be told that it is in a sandbox."""
    return os.geteuid() == 0
