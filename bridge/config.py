"""Settings: one frozen value, built once from flags and the environment. Only this module reads os.environ."""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from bridge.door.oidc.settings import OidcSettings
from bridge.errors import OperatorError
from bridge.llm.exit_names import DEFAULT_MODEL_EXITS, MODEL_EXITS
from bridge.notify.signature import read_key
from bridge.store.key_text import read_keys

Provider = Literal["local", "sprites"]
Egress = Literal["open", "packages", "bridge"]

#: The folder of the code. In a checkout, people's data stands beside it.
_ROOT = Path(__file__).resolve().parent.parent
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
ANTHROPIC_URL = "https://api.anthropic.com"
SPRITES_URL = "https://api.sprites.dev"
#: The local person logs in with the link printed in the terminal that started the bridge.
LOCAL_PERSON = "local"

#: Never passed to a local sprite: the bridge's own secrets, and variables that the bridge sets itself.
_KEPT_FROM_SPRITES = (
    *("ANTHROPIC_", "SPRITES_", "BRIDGE_"),
    *("SPRITE_TOKEN", "SPRITE_MONTHLY_USD", "SPRITE_NOTIFY_"),
)
#: Characters. A guessed secret allows impersonation of every person.
_SHORTEST_SECRET = 12
#: Headers with credentials, and those of a single connection or of the body.
_NEVER_PASSED = frozenset(
    "authorization x-api-key cookie proxy-authorization host connection content-type content-length content-encoding "
    "transfer-encoding te trailer upgrade expect accept-encoding anthropic-beta".split()
)


#: Default model budget of each sprite per day, in US dollars.
DEFAULT_DAILY_USD = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the bridge. Money is in US dollars."""

    data: Path = field(default_factory=lambda: default_data())  # noqa: PLW0108 - it is defined below
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    provider: Provider = "local"
    #: Whether local agents ask before they act; None leaves the choice to the sprite.
    permissions: Literal["ask", "bypass"] | None = None
    #: The model proxy's upstream. Without a credential the built-in offline model answers.
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)
    base_url: str = ANTHROPIC_URL
    #: Models that sprites may use, by name or pattern (`claude-*`). Empty allows every model in the price list.
    models: tuple[str, ...] = ()
    #: Server-side features of the model API that sprites may use, as names in MODEL_EXITS.
    model_exits: frozenset[str] = DEFAULT_MODEL_EXITS
    #: Request headers and betas (lower case) forwarded to the model API in addition to the agent's known ones.
    model_headers: frozenset[str] = frozenset()
    model_betas: frozenset[str] = frozenset()
    #: Per sprite; None for no cap.
    daily_usd: float | None = DEFAULT_DAILY_USD
    monthly_usd: float | None = None
    #: The organisation's token for Sprites VMs, and the URL of their API.
    sprites_token: str | None = field(default=None, repr=False)
    sprites_url: str = SPRITES_URL
    #: Public URL of this bridge for people and VMs, such as https://sprite.example.org; None on one machine.
    public_url: str | None = None
    #: Network access of VMs: `open` everything, `packages` this bridge and the package index, `bridge` this bridge
    #: alone.
    egress: Egress = "open"
    #: Whether browsers may register push services in the bridge's own network.
    push_inside: bool = False
    #: Allows remote scrapers to read /metrics.
    operator_token: str | None = field(default=None, repr=False)
    #: The operator's webhook for notifications and its signing key (None: the bridge generates one).
    notify_url: str | None = field(default=None, repr=False)
    notify_key: bytes | None = field(default=None, repr=False)
    #: The file in which the Claude Code plugin looks up this machine's memory; None leaves no note.
    memory_note: Path | None = None
    #: Folder of Claude Code session logs to import into the local person's memory, or None.
    follow: Path | None = None
    #: Database shared by several bridges (postgresql://...); None uses this bridge's own file.
    database_url: str | None = field(default=None, repr=False)
    #: Address at which other bridges reach this one, if not its own host and port; and their shared secret.
    address: str | None = None
    cluster_secret: str | None = field(default=None, repr=False)
    #: Encryption keys of the replica store (None: a key file in the data folder), and the limit for each sprite in
    #: bytes.
    store_keys: tuple[bytes, ...] | None = field(default=None, repr=False)
    store_bytes: int = 4096 * 2**20
    #: The single sign-on provider of a company, if any.
    oidc: OidcSettings | None = None
    #: Environment that local processes inherit, without keys and tokens.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def database(self) -> Path | str:
        """Return the database of people, token hashes and spending: this bridge's own file or the shared URL."""
        return self.database_url or self.database_file

    @property
    def database_file(self) -> Path:
        """Return the path of this bridge's own database file."""
        return self.data / "bridge.db"

    @property
    def run(self) -> Path:
        """Return the folder of the running bridge's lock and control socket."""
        return self.data / "run"

    @property
    def store(self) -> Path:
        """Return the folder of encrypted replicas, one subfolder per sprite."""
        return self.data / "store"

    @property
    def store_key(self) -> Path:
        """Return the path of the store's key file, used if the environment has no key."""
        return self.data / "store.key"

    @property
    def log_file(self) -> Path:
        """Return the log file of a bridge that was started in a terminal."""
        return self.run / "bridge.log"

    @property
    def workspaces(self) -> Path:
        """Return the folder with one workspace per local sprite."""
        return self.data / "workspaces"

    @property
    def secrets(self) -> tuple[str | bytes | None, ...]:
        """Return every secret in these settings, for redaction. Unset ones are None."""
        return (
            *(self.api_key, self.auth_token, self.sprites_token, self.operator_token, self.cluster_secret),
            *(self.notify_key, self.notify_url, *(self.store_keys or ())),
            None if self.oidc is None else self.oidc.client_secret,
            None if self.database_url is None else urlsplit(self.database_url).password,
            urlsplit(self.base_url).password,
        )

    @property
    def for_sprites(self) -> dict[str, str]:
        """Return the environment of local sprites: the inherited one, the daily budget and the offline flag."""
        daily = "" if self.daily_usd is None else str(self.daily_usd)
        offline = "1" if self.uses_offline_model else ""
        return {**self.environment, "SPRITE_DAILY_USD": daily, "SPRITE_OFFLINE": offline}

    @property
    def uses_offline_model(self) -> bool:
        """Return whether the built-in offline model answers instead of Claude."""
        return not (self.api_key or self.auth_token)

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can connect."""
        return is_loopback(self.host)


def from_environment(
    *,
    data: Path | None = None,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    provider: Provider = "local",
    permissions: Literal["ask", "bypass"] | None = None,
    daily_usd: float | None = None,
    monthly_usd: float | None = None,
    model_exits: str | None = None,
    follow: Path | None = None,
) -> Settings:
    """Return settings from flags and the environment; flags win. OperatorError names an invalid variable."""
    return Settings(
        data=(data or default_data()).resolve(),
        host=host,
        port=port,
        provider=provider,
        permissions=permissions,
        api_key=_text("ANTHROPIC_API_KEY"),
        auth_token=_text("ANTHROPIC_AUTH_TOKEN"),
        base_url=_address("ANTHROPIC_BASE_URL") or ANTHROPIC_URL,
        models=tuple(_names("BRIDGE_MODELS")),
        model_exits=exits(_text("BRIDGE_MODEL_EXITS"), "BRIDGE_MODEL_EXITS")
        if model_exits is None
        else exits(model_exits, "--model-exits"),
        model_headers=_headers(),
        model_betas=frozenset(name.lower() for name in _names("BRIDGE_MODEL_BETAS")),
        daily_usd=_cap(daily_usd, "SPRITE_DAILY_USD", DEFAULT_DAILY_USD),
        monthly_usd=_cap(monthly_usd, "SPRITE_MONTHLY_USD", math.inf),
        sprites_token=_text("SPRITES_TOKEN"),
        sprites_url=_address("SPRITES_URL") or SPRITES_URL,
        public_url=_address("BRIDGE_PUBLIC_URL"),
        egress=_egress(),
        push_inside=_yes("BRIDGE_PUSH_INSIDE"),
        operator_token=_text("BRIDGE_OPERATOR_TOKEN"),
        notify_url=_address("SPRITE_NOTIFY_URL", may_have_query=True),
        follow=follow,
        notify_key=_notify_key(),
        memory_note=_memory_note(),
        database_url=_database_url(),
        address=_address("BRIDGE_ADDRESS"),
        cluster_secret=_cluster_secret(),
        store_keys=_store_keys(),
        store_bytes=_megabytes("BRIDGE_STORE_MB", 4096) * 2**20,
        oidc=_oidc(),
        environment=_for_processes(),
    )


def default_data() -> Path:
    """Return the default data folder, which does not depend on the current directory.

    The order is SPRITE_DATA, `data/` in the checkout of the code, then the XDG data folder.
    """
    if (chosen := _text("SPRITE_DATA")) is not None:
        return Path(chosen).expanduser().resolve()
    if (_ROOT / "pyproject.toml").exists() or (_ROOT / "data").is_dir():
        return (_ROOT / "data").resolve()
    return Path(f"{_text('XDG_DATA_HOME') or Path.home() / '.local/share'}/sprite").resolve()


def person_token() -> str | None:
    """Return a person's token for a remote bridge. It has no flag, because other processes can read command lines."""
    return _text("BRIDGE_TOKEN")


def is_loopback(host: str) -> bool:
    """Return whether an address or name is loopback, unreachable from other machines."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _memory_note() -> Path | None:
    """Return the path where integrations/claude-code/scripts/this-machine looks for the note."""
    folder = _text("XDG_CONFIG_HOME") or (f"{home}/.config" if (home := _text("HOME")) else None)
    return None if folder is None else Path(folder, "sprite/claude-code")


def _for_processes() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_FROM_SPRITES)}


def claude_code_logs() -> Path:
    """Return the folder of Claude Code's session logs on this machine."""
    chosen = _text("CLAUDE_CONFIG_DIR")
    return (Path(chosen) if chosen else Path.home() / ".claude") / "projects"


def _text(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None


def _yes(name: str) -> bool:
    text = (_text(name) or "0").lower()
    if text not in {"0", "1", "no", "yes"}:
        raise OperatorError(f"{name} must be yes or no.")
    return text in {"1", "yes"}


def _egress() -> Egress:
    match _text("BRIDGE_EGRESS"):
        case None | "open":
            return "open"
        case "packages":
            return "packages"
        case "bridge":
            return "bridge"
        case other:
            raise OperatorError(f"BRIDGE_EGRESS must be open, packages or bridge, not {other!r}.")


def exits(text: str | None, name: str) -> frozenset[str]:
    """Parse names of MODEL_EXITS, or `none`. OperatorError shows `name`, the flag or variable."""
    if text is None:
        return DEFAULT_MODEL_EXITS
    named = frozenset(text.lower().replace(",", " ").split())
    unknown = sorted(named - {*MODEL_EXITS, "none"})
    if unknown or (len(named) > 1 and "none" in named):
        raise OperatorError(f"{name} must be `none` or some of {', '.join(MODEL_EXITS)}, not {text!r}.")
    return named - {"none"}


def _headers() -> frozenset[str]:
    named = frozenset(name.lower() for name in _names("BRIDGE_MODEL_HEADERS"))
    if kept := sorted(named & _NEVER_PASSED):
        raise OperatorError(f"BRIDGE_MODEL_HEADERS cannot have {kept[0]}: the bridge says that itself, or to nobody.")
    return named


def _names(name: str) -> list[str]:
    return (_text(name) or "").replace(",", " ").split()


def _oidc() -> OidcSettings | None:
    issuer = _address("BRIDGE_OIDC_ISSUER", keeps_slash=True)
    if issuer is None:
        return None
    if not issuer.startswith("https:") and not is_loopback(urlsplit(issuer).hostname or ""):
        raise OperatorError("BRIDGE_OIDC_ISSUER must begin with https: who logs in is told by it.")
    identity = _text("BRIDGE_OIDC_CLIENT_ID")
    if identity is None:
        raise OperatorError("BRIDGE_OIDC_ISSUER needs BRIDGE_OIDC_CLIENT_ID: what the provider calls this bridge.")
    public = _address("BRIDGE_PUBLIC_URL")
    if public is None:
        raise OperatorError(
            "BRIDGE_OIDC_ISSUER needs BRIDGE_PUBLIC_URL: the provider sends browsers back to BRIDGE_PUBLIC_URL"
            "/oidc/callback."
        )
    if not public.startswith("https:") and not is_loopback(urlsplit(public).hostname or ""):
        raise OperatorError(
            "BRIDGE_OIDC_ISSUER needs a BRIDGE_PUBLIC_URL that begins with https: whoever sees what a browser brings "
            "back from the provider could come in by it."
        )
    scopes = dict.fromkeys(["openid", *(_names("BRIDGE_OIDC_SCOPES") or ["profile", "email"])])
    return OidcSettings(
        issuer,
        identity,
        _secret("BRIDGE_OIDC_CLIENT_SECRET", "BRIDGE_OIDC_CLIENT_SECRET_FILE"),
        tuple(scopes),
        _text("BRIDGE_OIDC_GROUPS_CLAIM") or "groups",
        _groups(_text("BRIDGE_OIDC_OPERATORS")),
        _groups(_text("BRIDGE_OIDC_PEOPLE")),
    )


def _groups(text: str | None) -> frozenset[str]:
    """Split group names at commas. Names may contain spaces."""
    return frozenset(name.strip() for name in (text or "").split(",")) - {""}


def _secret(name: str, file_name: str) -> str | None:
    """Read a secret from the environment, or from the file that `file_name` points to."""
    path = os.environ.get(file_name, "").strip()
    if not path:
        return _text(name)
    if _text(name) is not None:
        raise OperatorError(f"Set {name} or {file_name}, not both.")
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise OperatorError(f"{file_name} names a file that cannot be read: {path}") from error
    if not secret:
        raise OperatorError(f"{file_name} names a file with nothing in it: {path}")
    return secret


def _address(name: str, *, may_have_query: bool = False, keeps_slash: bool = False) -> str | None:
    text = _text(name)
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.fragment or (parts.query and not may_have_query):
        # The message leaves the value out: an address can hold a password.
        without = "a fragment" if may_have_query else "a query"
        raise OperatorError(f"{name} must be an address such as https://example.org, without {without}.")
    return text if may_have_query or keeps_slash else text.rstrip("/")


def _database_url() -> str | None:
    text = _text("BRIDGE_DATABASE_URL")
    # The message leaves the value out: it can hold a password.
    if text is not None and urlsplit(text).scheme not in {"postgresql", "postgres"}:
        raise OperatorError("BRIDGE_DATABASE_URL must be like postgresql://USER:PASSWORD@HOST/DATABASE.")
    return text


def _cluster_secret() -> str | None:
    text = _text("BRIDGE_CLUSTER_SECRET")
    if text is not None and len(text) < _SHORTEST_SECRET:
        raise OperatorError(
            f"BRIDGE_CLUSTER_SECRET must have {_SHORTEST_SECRET} characters or more, such as `openssl rand -hex 32` "
            "prints, the same for each bridge."
        )
    return text


def _store_keys() -> tuple[bytes, ...] | None:
    try:
        return read_keys(_text("BRIDGE_STORE_KEY") or "") or None
    except ValueError:
        # The message leaves the key out.
        raise OperatorError(
            "BRIDGE_STORE_KEY must be 32 random bytes in base64, such as `openssl rand -base64 32` makes; or several, "
            "each as NAME:KEY, with spaces between: the first one seals, all of them unseal."
        ) from None


def _megabytes(name: str, default: int) -> int:
    text = _text(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text)):  # noqa: PLR2004 - a petabyte
        raise OperatorError(f"{name} must be a number of megabytes such as {default}, not {text!r}.")
    return int(text)


def _notify_key() -> bytes | None:
    text = _text("SPRITE_NOTIFY_KEY")
    try:
        return None if text is None else read_key(text)
    except ValueError:
        raise OperatorError(
            "SPRITE_NOTIFY_KEY must be `whsec_` and 24 to 64 random bytes in base64, such as "
            "`echo whsec_$(openssl rand -base64 32)` makes. Without it the bridge makes one: "
            "python -m bridge notify key"
        ) from None


def _cap(flag: float | None, name: str, default: float) -> float | None:
    text = _text(name)
    cap = flag if flag is not None else default if text is None else dollars(text, name)
    return None if math.isinf(cap) else cap


def dollars(text: str, name: str) -> float:
    """Parse an amount in US dollars, infinite for "none". OperatorError shows `name`, the flag or variable."""
    if text.strip().lower() == "none":
        return math.inf
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise OperatorError(f"{name} must be an amount in US dollars such as 0.50, or none, not {text!r}.")
    return amount
