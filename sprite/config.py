"""Settings: one frozen value, made once from flags and the environment. The only reader of os.environ."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from sprite.errors import OperatorError

#: The code's folder; in a checkout, the bridge's data is beside it.
_ROOT = Path(__file__).resolve().parent.parent
PermissionMode = Literal["ask", "bypass"]
#: Everything, the package index only, or the bridge only. A VM's host enforces this, not this program.
Egress = Literal["open", "packages", "bridge"]
_EGRESS: tuple[Egress, ...] = get_args(Egress)

#: The newest Haiku that `anthropic` 2.11 lists.
DEFAULT_CURATOR_MODEL = "claude-haiku-5-5"
#: Name shown to people for the fake model that answers if the bridge has no key.
STAND_IN = "offline stand-in, not Claude"
NO_KEY = "set ANTHROPIC_API_KEY where the sprite is started, or use `make run`, which needs none"
DEFAULT_BATCH_TURNS = 25
#: Fewer turns are not worth a curator call: the next session's first prompt contains them unchanged. An explicit
#: flush and a compaction curate them in any case.
LEAST_TURNS = 5
DEFAULT_PORT = 8765
#: Long enough for a build or an overnight download, short enough that an unattended machine goes idle.
DEFAULT_BACKGROUND_TIMEOUT = 2 * 3600
DEFAULT_PREWARM_SECONDS = 600
DEFAULT_IDLE_FLUSH_SECONDS = 600
DEFAULT_SCHEDULE_SHARE = 0.25
DEFAULT_SHIP_FILES_MB = 2048
#: Smaller ids are system users.
_FIRST_PERSON = 1000
#: A socket that only a Sprites VM has; the VM is then the sandbox of the agent. SPRITE_VM_SOCKET overrides it.
VM_SOCKET = Path("/.sprite/api.sock")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the sprite. Money is in US dollars."""

    workspace: Path
    permissions: PermissionMode = "ask"
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)
    base_url: str | None = None
    #: Overrides the token file.
    token: str | None = field(default=None, repr=False)
    #: None leaves the choice to the CLI.
    model: str | None = None
    curator_model: str = DEFAULT_CURATOR_MODEL
    batch_turns: int = DEFAULT_BATCH_TURNS
    #: Daily limit for the cost of curation; None for no limit.
    daily_usd: float | None = None
    #: Part of this limit that turns begun by schedules may cost in addition.
    schedule_share: float = DEFAULT_SCHEDULE_SHARE
    #: Whether the bridge's fake model answers instead of Claude; then nothing has a cost.
    is_offline: bool = False
    #: Limit for a turn that the agent begins by itself, and for keeping a VM awake for background work.
    background_timeout: int = DEFAULT_BACKGROUND_TIMEOUT
    #: Time for which a prewarmed agent process waits for its first message; 0 disables prewarming.
    prewarm_seconds: int = DEFAULT_PREWARM_SECONDS
    #: Idle time after which the waiting turns of a conversation are curated, if they are worth a call.
    idle_flush_seconds: int = DEFAULT_IDLE_FLUSH_SECONDS
    #: Limit for the person's files that are replicated to a bridge that follows this sprite.
    ship_files_bytes: int = DEFAULT_SHIP_FILES_MB * 1024 * 1024
    #: Network access that the operator allows.
    egress: Egress = "open"
    #: Socket of the surrounding VM's API, if any.
    vm_socket: Path = VM_SOCKET
    #: Data folder of the bridge on this machine, whether it exists or not: hidden from the agent.
    bridge_data: Path | None = None

    @property
    def least_turns(self) -> int:
        """Number of waiting turns that justifies a curator call when a session is idle or ends."""
        return min(LEAST_TURNS, self.batch_turns)

    @property
    def system(self) -> Path:
        """`.os/`: all files of Sprite."""
        return self.workspace / ".os"

    @property
    def memory(self) -> Path:
        """The log, the projection and the six memory files."""
        return self.system / "memory"

    @property
    def run(self) -> Path:
        """Files of the running process: lock, token, address, and the CLI's folder."""
        return self.system / "run"

    @property
    def transcript_db(self) -> Path:
        """The log."""
        return self.memory / "transcript.db"

    @property
    def memory_db(self) -> Path:
        """The projection."""
        return self.memory / "memory.db"

    @property
    def workspace_db(self) -> Path:
        """The canvas, the chat and the inbox."""
        return self.system / "workspace.db"

    @property
    def lock(self) -> Path:
        """Lock file held by the process that owns the workspace."""
        return self.run / "lock"

    @property
    def token_file(self) -> Path:
        """File with the token that clients must send."""
        return self.run / "token"

    @property
    def address_file(self) -> Path:
        """File with HOST:PORT of the running sprite."""
        return self.run / "address"

    @property
    def follow(self) -> Path:
        """State of a follower of session logs: its read position."""
        return self.system / "follow"

    @property
    def boot_prompt(self) -> Path:
        """Boot prompt of the agent's newest session."""
        return self.run / "boot.md"

    @property
    def boot_files(self) -> Path:
        """Boot prompts for sessions of other programs: one file per project."""
        return self.run / "boot"

    @property
    def own_project(self) -> str:
        """Key under which other programs know this workspace. Its turns are the person's own."""
        return str(self.workspace.resolve())

    @property
    def documents(self) -> Path:
        """Folder of uploaded files."""
        return self.workspace / "documents"

    @property
    def skills(self) -> Path:
        """Instructions for particular kinds of work: one folder each, with its SKILL.md."""
        return self.workspace / "skills"

    @property
    def cli_state(self) -> Path:
        """The CLI's folder with its conversations; it has none of the person's settings."""
        return self.run / "claude"

    @property
    def has_credentials(self) -> bool:
        """Whether there are credentials for a model."""
        return bool(self.api_key or self.auth_token)


def from_environment(
    workspace: Path,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    permissions: PermissionMode | None = None,
) -> Settings:
    """Return the settings from the environment. Raises OperatorError naming an invalid variable."""
    return Settings(
        workspace=workspace.resolve(),
        permissions=permissions or ("bypass" if inside_vm() else "ask"),
        host=host,
        port=port,
        api_key=os.environ.get("ANTHROPIC_API_KEY") or None,
        auth_token=os.environ.get("ANTHROPIC_AUTH_TOKEN") or None,
        base_url=os.environ.get("ANTHROPIC_BASE_URL") or None,
        token=os.environ.get("SPRITE_TOKEN") or None,
        model=os.environ.get("SPRITE_MODEL") or None,
        curator_model=os.environ.get("SPRITE_CURATOR_MODEL") or DEFAULT_CURATOR_MODEL,
        batch_turns=_whole("SPRITE_BATCH_TURNS", DEFAULT_BATCH_TURNS),
        daily_usd=_dollars("SPRITE_DAILY_USD"),
        schedule_share=_share("SPRITE_SCHEDULE_SHARE", DEFAULT_SCHEDULE_SHARE),
        is_offline=os.environ.get("SPRITE_OFFLINE") == "1",
        background_timeout=_whole("SPRITE_BACKGROUND_TIMEOUT", DEFAULT_BACKGROUND_TIMEOUT),
        prewarm_seconds=_whole("SPRITE_PREWARM_SECONDS", DEFAULT_PREWARM_SECONDS, least=0),
        idle_flush_seconds=_whole("SPRITE_IDLE_FLUSH_SECONDS", DEFAULT_IDLE_FLUSH_SECONDS),
        ship_files_bytes=_whole("SPRITE_SHIP_FILES_MB", DEFAULT_SHIP_FILES_MB, least=0) * 1024 * 1024,
        egress=_egress(),
        vm_socket=_vm_socket(),
        bridge_data=_bridge_data(),
    )


def claude_code_logs() -> Path:
    """Return the folder of Claude Code's session logs on this machine."""
    chosen = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(chosen) if chosen else Path.home() / ".claude") / "projects"


def state_home() -> Path:
    """Return the folder for program state of users without a workspace here."""
    chosen = os.environ.get("XDG_STATE_HOME")
    return Path(chosen) if chosen and Path(chosen).is_absolute() else Path.home() / ".local/state"


def home_folders() -> list[Path]:
    """Return this user's home directories from $HOME and the user database; for root, those of all people."""
    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    if is_root():
        homes += [user.pw_dir for user in pwd.getpwall() if user.pw_uid >= _FIRST_PERSON]
    return [Path(home) for home in dict.fromkeys(homes) if home not in {"", "/"}]


def xdg_folders() -> dict[str, Path]:
    """Return the folders that XDG variables move, by their default place below a home directory."""
    names = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}
    return {usual: Path(chosen) for usual, name in names.items() if (chosen := os.environ.get(name))}


def bridge_token() -> str | None:
    """Return the person's token for a remote bridge, or None."""
    return os.environ.get("BRIDGE_TOKEN") or None


def _bridge_data() -> Path:
    """Return the default data folder of a bridge, as in bridge/config.py."""
    if chosen := os.environ.get("SPRITE_DATA", "").strip():
        return Path(chosen).expanduser().resolve()
    if (_ROOT / "pyproject.toml").exists() or (_ROOT / "data").is_dir():
        return (_ROOT / "data").resolve()
    data_home = os.environ.get("XDG_DATA_HOME", "").strip() or Path(os.environ.get("HOME", "/"), ".local/share")
    return Path(data_home, "sprite").resolve()


def _egress() -> Egress:
    text = os.environ.get("SPRITE_EGRESS") or "open"
    for known in _EGRESS:
        if text == known:
            return known
    raise OperatorError(f"SPRITE_EGRESS must be open, packages or bridge, not {text!r}.")


def inside_vm() -> bool:
    """Return whether the machine itself is the sandbox of the agent."""
    return os.environ.get("IS_SANDBOX") == "1" or _vm_socket().exists()


def _vm_socket() -> Path:
    return Path(os.environ.get("SPRITE_VM_SOCKET") or VM_SOCKET)


def is_root() -> bool:
    """Return whether this process is root; the CLI must then be told that it is in a sandbox."""
    return os.geteuid() == 0


def _whole(name: str, default: int, *, least: int = 1) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise OperatorError(f"{name} must be a whole number{' above 0' if least else ''}, not {text!r}.")
    return int(text)


def _share(name: str, default: float) -> float:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise OperatorError(f"{name} must be a part from 0 to 1 such as 0.25, not {text!r}.")
    return share


def _dollars(name: str) -> float | None:
    text = os.environ.get(name)
    if not text or text.strip().lower() == "none":
        return None
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise OperatorError(f"{name} must be an amount in US dollars such as 0.50, not {text!r}.")
    return amount
