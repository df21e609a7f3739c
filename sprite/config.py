"""Settings: one frozen value, made once from flags and the environment. The only reader of os.environ."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from sprite.errors import OperatorError

#: Where the code stands; in a checkout, the bridge's data stands beside it.
_ROOT = Path(__file__).resolve().parent.parent
PermissionMode = Literal["ask", "bypass"]
#: All of the network; the package index; or nothing but the bridge. A VM's host sees to it, not this program.
Egress = Literal["open", "packages", "bridge"]
_EGRESS: tuple[Egress, ...] = get_args(Egress)

#: The newest Haiku that `anthropic` 2.11 lists.
DEFAULT_CURATOR_MODEL = "claude-haiku-5-5"
#: What answers where the bridge has no key, as people are told.
STAND_IN = "offline stand-in, not Claude"
NO_KEY = "set ANTHROPIC_API_KEY where the sprite is started, or use `make run`, which needs none"
DEFAULT_BATCH_TURNS = 25
#: Fewer turns are worth no call to the curator: the next session's first prompt has them as they are. Whoever asks for
#: a flush, and an agent that is about to lose sight of them, get them curated all the same.
LEAST_TURNS = 5
DEFAULT_PORT = 8765
#: Long enough for a build or a night's download, short enough that a machine nobody looks at comes to rest.
DEFAULT_UNATTENDED_SECONDS = 2 * 3600
DEFAULT_SPARE_SECONDS = 600
DEFAULT_REST_SECONDS = 600
DEFAULT_SCHEDULE_SHARE = 0.25
DEFAULT_SHIP_FILES_MB = 2048
#: Smaller ids are the system's own users.
_FIRST_PERSON = 1000
#: A socket that only a Sprites VM has: there, the VM is the boundary around the agent. SPRITE_VM_SOCKET overrides it.
VM_SOCKET = Path("/.sprite/api.sock")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the sprite can be told. Money in US dollars."""

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
    #: What curation may cost a day; None for no cap.
    daily_usd: float | None = None
    #: The part of it that turns begun by schedules may cost beside.
    schedule_share: float = DEFAULT_SCHEDULE_SHARE
    #: Whether the bridge's built-in stand-in answers instead of Claude: then nothing costs anything.
    is_offline: bool = False
    #: How long a turn that the agent begins by itself may take, and work in the background keeps a VM awake.
    unattended_seconds: int = DEFAULT_UNATTENDED_SECONDS
    #: How long an agent's process that was started ahead waits for its first message; 0 loads and starts
    #: nothing ahead.
    spare_seconds: int = DEFAULT_SPARE_SECONDS
    #: After so long without a turn a conversation rests: what waits of it is curated, if it is worth a call.
    rest_seconds: int = DEFAULT_REST_SECONDS
    #: So much of the person's files is shipped to a store elsewhere, where one follows this sprite.
    ship_files_bytes: int = DEFAULT_SHIP_FILES_MB * 1024 * 1024
    #: What of the network an operator left open.
    egress: Egress = "open"
    #: The API of the VM around us, where there is one.
    vm_socket: Path = VM_SOCKET
    #: The data folder of the bridge on this machine, there or not: hidden from the agent.
    bridge_data: Path | None = None

    @property
    def least_turns(self) -> int:
        """With so many turns waiting, a rest or a session's end is reason enough for a call to the curator."""
        return min(LEAST_TURNS, self.batch_turns)

    @property
    def system(self) -> Path:
        """`.os/`: everything that is ours."""
        return self.workspace / ".os"

    @property
    def memory(self) -> Path:
        """The log, the projection and the six files."""
        return self.system / "memory"

    @property
    def run(self) -> Path:
        """What belongs to the running process: lock, token, address, the CLI's own folder."""
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
        """Held by the one process that owns the workspace."""
        return self.run / "lock"

    @property
    def token_file(self) -> Path:
        """What a client has to know."""
        return self.run / "token"

    @property
    def address_file(self) -> Path:
        """HOST:PORT of the running sprite."""
        return self.run / "address"

    @property
    def follow(self) -> Path:
        """What a follower of session logs keeps: how far it read."""
        return self.system / "follow"

    @property
    def boot_prompt(self) -> Path:
        """What the newest session of the agent was told at its start."""
        return self.run / "boot.md"

    @property
    def boot_files(self) -> Path:
        """What sessions elsewhere begin with: a file a project."""
        return self.run / "boot"

    @property
    def own_project(self) -> str:
        """The key under which other programs know this workspace: what is of it is the person's own."""
        return str(self.workspace.resolve())

    @property
    def documents(self) -> Path:
        """What people upload."""
        return self.workspace / "documents"

    @property
    def skills(self) -> Path:
        """How particular kinds of work are done: a folder each, with its SKILL.md."""
        return self.workspace / "skills"

    @property
    def cli_state(self) -> Path:
        """The CLI's own folder: its conversations, none of the person's settings."""
        return self.run / "claude"

    @property
    def has_credentials(self) -> bool:
        """Whether a model can be asked at all."""
        return bool(self.api_key or self.auth_token)


def from_environment(
    workspace: Path,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    permissions: PermissionMode | None = None,
) -> Settings:
    """Settings from the environment; OperatorError names the variable that is not as it must be."""
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
        unattended_seconds=_whole("SPRITE_UNATTENDED_SECONDS", DEFAULT_UNATTENDED_SECONDS),
        spare_seconds=_whole("SPRITE_SPARE_SECONDS", DEFAULT_SPARE_SECONDS, least=0),
        rest_seconds=_whole("SPRITE_REST_SECONDS", DEFAULT_REST_SECONDS),
        ship_files_bytes=_whole("SPRITE_SHIP_FILES_MB", DEFAULT_SHIP_FILES_MB, least=0) * 1024 * 1024,
        egress=_egress(),
        vm_socket=_vm_socket(),
        bridge_data=_bridge_data(),
    )


def claude_code_logs() -> Path:
    """Where Claude Code keeps its sessions' logs on this machine."""
    chosen = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(chosen) if chosen else Path.home() / ".claude") / "projects"


def state_home() -> Path:
    """Where programs keep what they need again, for who has no workspace here."""
    chosen = os.environ.get("XDG_STATE_HOME")
    return Path(chosen) if chosen and Path(chosen).is_absolute() else Path.home() / ".local/state"


def home_folders() -> list[Path]:
    """Return the home directories of this user, by $HOME and by the list of users; root's are those of all people."""
    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    if is_root():
        homes += [user.pw_dir for user in pwd.getpwall() if user.pw_uid >= _FIRST_PERSON]
    return [Path(home) for home in dict.fromkeys(homes) if home not in {"", "/"}]


def xdg_folders() -> dict[str, Path]:
    """Return the folders that XDG's variables move elsewhere, by their usual place below a home directory."""
    names = {".config/": "XDG_CONFIG_HOME", ".local/share/": "XDG_DATA_HOME"}
    return {usual: Path(chosen) for usual, name in names.items() if (chosen := os.environ.get(name))}


def bridge_token() -> str | None:
    """A person's token for a bridge elsewhere."""
    return os.environ.get("BRIDGE_TOKEN") or None


def _bridge_data() -> Path:
    """Return where a bridge keeps everything that is not told otherwise, as bridge/config.py has it."""
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
    """Whether the machine itself is the boundary around the agent."""
    return os.environ.get("IS_SANDBOX") == "1" or _vm_socket().exists()


def _vm_socket() -> Path:
    return Path(os.environ.get("SPRITE_VM_SOCKET") or VM_SOCKET)


def is_root() -> bool:
    """Whether this process is root: the CLI wants to be told that it is in a sandbox then."""
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
