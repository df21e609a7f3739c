"""Settings: one frozen value, made once from flags and the environment. The bridge's only reader of os.environ."""

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

#: Where the code stands; in a checkout, people's data stands beside it.
_ROOT = Path(__file__).resolve().parent.parent
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
ANTHROPIC_URL = "https://api.anthropic.com"
SPRITES_URL = "https://api.sprites.dev"
#: The local person: may log in by the link printed in the terminal that started the bridge.
LOCAL_PERSON = "local"

#: Never handed to a sprite on this machine: the bridge's own secrets, and what the bridge sets itself.
_KEPT_FROM_SPRITES = (
    *("ANTHROPIC_", "SPRITES_", "BRIDGE_"),
    *("SPRITE_TOKEN", "SPRITE_MONTHLY_USD", "SPRITE_NOTIFY_"),
)
#: Whoever can guess it is believed to be anybody.
_SHORTEST_SECRET = 12
#: Headers that carry who asks, or are of one connection or of the body.
_NEVER_PASSED = frozenset(
    "authorization x-api-key cookie proxy-authorization host connection content-type content-length content-encoding "
    "transfer-encoding te trailer upgrade expect accept-encoding anthropic-beta".split()
)


#: What each sprite's model may cost a day unless somebody says otherwise, in US dollars.
DEFAULT_DAILY_USD = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the bridge can be told. Money in US dollars."""

    data: Path = field(default_factory=lambda: default_data())  # noqa: PLW0108 - it is defined below
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    provider: Provider = "local"
    #: Whether local agents ask before they act; None leaves it to the sprite.
    permissions: Literal["ask", "bypass"] | None = None
    #: The model proxy's upstream. Without a credential the built-in offline model answers.
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)
    base_url: str = ANTHROPIC_URL
    #: Models a sprite may ask for, by name or pattern (`claude-*`); empty allows each that the price list knows.
    models: tuple[str, ...] = ()
    #: What the model's API may reach for a sprite, by names of MODEL_EXITS.
    model_exits: frozenset[str] = DEFAULT_MODEL_EXITS
    #: Request headers and betas (lower case) that pass to the model's API beside those that the agent is known to send.
    model_headers: frozenset[str] = frozenset()
    model_betas: frozenset[str] = frozenset()
    #: Per sprite; None for no cap.
    daily_usd: float | None = DEFAULT_DAILY_USD
    monthly_usd: float | None = None
    #: The organisation's token for Sprites VMs, and where their API is.
    sprites_token: str | None = field(default=None, repr=False)
    sprites_url: str = SPRITES_URL
    #: Where people and VMs reach this bridge from outside, such as https://sprite.example.org; None on one machine.
    public_url: str | None = None
    #: What VMs reach: `open` everything, `packages` this bridge and the package index, `bridge` this bridge alone.
    egress: Egress = "open"
    #: Whether notifications may go to push services in the bridge's own network, which people's browsers name.
    push_inside: bool = False
    #: Lets a scraper read /metrics from elsewhere.
    operator_token: str | None = field(default=None, repr=False)
    #: The operator's webhook for notifications, and the key that signs what it is sent (None: the bridge makes one).
    notify_url: str | None = field(default=None, repr=False)
    notify_key: bytes | None = field(default=None, repr=False)
    #: Where the Claude Code plugin looks for this machine's memory; None where nobody is told.
    memory_note: Path | None = None
    #: The session logs of Claude Code that become the local person's memory, or None.
    follow: Path | None = None
    #: Where several bridges keep what they share (postgresql://...); None: a file of this bridge's own.
    database_url: str | None = field(default=None, repr=False)
    #: Where other bridges reach this one, if not at its own host and port; and the secret that they share.
    address: str | None = None
    cluster_secret: str | None = field(default=None, repr=False)
    #: What seals the store of shipped logs (None: a key file in the data folder), and how much of it each sprite may
    #: fill, in bytes.
    store_keys: tuple[bytes, ...] | None = field(default=None, repr=False)
    store_bytes: int = 4096 * 2**20
    #: The provider by which people of a company come in, if there is one.
    oidc: OidcSettings | None = None
    #: What processes on this machine inherit: the environment without keys and tokens.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def database(self) -> Path | str:
        """People, tokens (hashed) and spend: a file of this bridge's own, or the address of what several share."""
        return self.database_url or self.database_file

    @property
    def database_file(self) -> Path:
        """Where these are in a file of this bridge's own."""
        return self.data / "bridge.db"

    @property
    def run(self) -> Path:
        """What belongs to the running bridge: its lock and its control socket."""
        return self.data / "run"

    @property
    def store(self) -> Path:
        """The logs that sprites shipped, sealed: a folder for each."""
        return self.data / "store"

    @property
    def store_key(self) -> Path:
        """What seals them, where the environment has no key."""
        return self.data / "store.key"

    @property
    def log_file(self) -> Path:
        """What the bridge does, where it is run by a person in a terminal."""
        return self.run / "bridge.log"

    @property
    def workspaces(self) -> Path:
        """One folder for each local sprite."""
        return self.data / "workspaces"

    @property
    def secrets(self) -> tuple[str | bytes | None, ...]:
        """Whatever of this opens something."""
        return (
            *(self.api_key, self.auth_token, self.sprites_token, self.operator_token, self.cluster_secret),
            *(self.notify_key, self.notify_url, *(self.store_keys or ())),
            None if self.oidc is None else self.oidc.client_secret,
            None if self.database_url is None else urlsplit(self.database_url).password,
            urlsplit(self.base_url).password,
        )

    @property
    def for_sprites(self) -> dict[str, str]:
        """The environment of sprites: what processes here inherit, with what flags say and what the model is."""
        daily = "" if self.daily_usd is None else str(self.daily_usd)
        offline = "1" if self.uses_offline_model else ""
        return {**self.environment, "SPRITE_DAILY_USD": daily, "SPRITE_OFFLINE": offline}

    @property
    def uses_offline_model(self) -> bool:
        """Whether the built-in stand-in answers instead of Claude."""
        return not (self.api_key or self.auth_token)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
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
    """Settings from the environment, flags first; OperatorError names the variable that is not as it must be."""
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
    """Where everything is kept without --data: the same place from whichever folder a command is typed.

    SPRITE_DATA; else `data/` of the checkout the code stands in; else the folder that XDG has for it.
    """
    if (chosen := _text("SPRITE_DATA")) is not None:
        return Path(chosen).expanduser().resolve()
    if (_ROOT / "pyproject.toml").exists() or (_ROOT / "data").is_dir():
        return (_ROOT / "data").resolve()
    return Path(f"{_text('XDG_DATA_HOME') or Path.home() / '.local/share'}/sprite").resolve()


def person_token() -> str | None:
    """A person's token for a bridge elsewhere; on a command line every process of the machine could read it."""
    return _text("BRIDGE_TOKEN")


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own, unreachable from elsewhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _memory_note() -> Path | None:
    """As integrations/claude-code/scripts/this-machine finds it."""
    folder = _text("XDG_CONFIG_HOME") or (f"{home}/.config" if (home := _text("HOME")) else None)
    return None if folder is None else Path(folder, "sprite/claude-code")


def _for_processes() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_FROM_SPRITES)}


def claude_code_logs() -> Path:
    """Where Claude Code keeps its sessions' logs on this machine."""
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
    """Names of MODEL_EXITS, or `none`; OperatorError names where they were given."""
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
    """Names of groups, which may have spaces in them, with commas between."""
    return frozenset(name.strip() for name in (text or "").split(",")) - {""}


def _secret(name: str, file_name: str) -> str | None:
    """A secret, from the environment or from a file that the other variable names."""
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
        # What was given is not repeated: an address can hold a password.
        without = "a fragment" if may_have_query else "a query"
        raise OperatorError(f"{name} must be an address such as https://example.org, without {without}.")
    return text if may_have_query or keeps_slash else text.rstrip("/")


def _database_url() -> str | None:
    text = _text("BRIDGE_DATABASE_URL")
    # What was given is not repeated: it can hold a password.
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
        # What was given is not repeated.
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
    """An amount in US dollars, infinite for "none"; OperatorError names where it was given."""
    if text.strip().lower() == "none":
        return math.inf
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise OperatorError(f"{name} must be an amount in US dollars such as 0.50, or none, not {text!r}.")
    return amount
