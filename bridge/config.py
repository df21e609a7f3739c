"""Settings of the bridge: one frozen value. Help and documentation are made from its declarations."""

import base64
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from bridge.errors import OperatorError
from sprite.common import settings
from sprite.common.settings import default_data, is_loopback, setting

#: Every API feature that reaches other hosts for a VM that may reach only the bridge, with its label for users.
MODEL_EXITS = {
    "url": "images and documents by URL",
    "files": "files stored with the API",
    "web_search": "web searches by the API",
    "web_fetch": "pages fetched by the API",
    "code_execution": "code run by the API",
    "mcp_servers": "MCP servers that the API connects to",
}
#: The agent's own WebSearch uses it.
DEFAULT_MODEL_EXITS = frozenset({"web_search"})


KEY_BYTES = 32


def read_keys(text: str) -> tuple[bytes, ...]:
    """Parse the store's encryption keys: `KEY` or `NAME:KEY`, separated by white space or commas, the one in use first.

    Names are only for readers. Raise ValueError for invalid base64 or another length.
    """
    words = text.replace(",", " ").split()
    keys = tuple(base64.b64decode(word.rpartition(":")[2], validate=True) for word in words)
    if any(len(key) != KEY_BYTES for key in keys):
        raise ValueError
    return keys


def _scopes(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(["openid", *settings.words(text)]))


def _groups(text: str) -> frozenset[str]:
    """Split group names at commas. Names may contain spaces."""
    return frozenset(name.strip() for name in text.split(",")) - {""}


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """One provider: its issuer URL, the bridge's client id, and the meaning of its groups."""

    issuer: str = setting(
        "BRIDGE_OIDC_ISSUER", settings.url, MISSING, "address of the OpenID provider, as it names itself"
    )
    client_id: str = setting("BRIDGE_OIDC_CLIENT_ID", str, MISSING, "the provider's name for this bridge")
    client_secret: str | None = setting(
        "BRIDGE_OIDC_CLIENT_SECRET", str, None, "the client's secret; none for a public client", secret=True
    )
    scopes: tuple[str, ...] = setting(
        "BRIDGE_OIDC_SCOPES", _scopes, ("openid", "profile", "email"), "scopes to request; `openid` is always one"
    )
    groups_claim: str = setting(
        "BRIDGE_OIDC_GROUPS_CLAIM",
        str,
        "groups",
        "claim that lists a person's groups, or the path to it, such as `realm_access.roles`",
    )
    operators: frozenset[str] = setting(
        "BRIDGE_OIDC_OPERATORS",
        _groups,
        frozenset(),
        "groups whose members are operators, separated by commas; without any, roles are set by command",
    )
    people: frozenset[str] = setting(
        "BRIDGE_OIDC_PEOPLE",
        _groups,
        frozenset(),
        "groups whose members may log in, besides operators; without any, all users of the provider may",
    )

    @property
    def name(self) -> str:
        """Return the provider's name for the button."""
        return urlsplit(self.issuer).hostname or self.issuer


Provider = Literal["local", "sprites"]
Egress = Literal["open", "packages", "bridge"]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
SPRITES_URL = "https://api.sprites.dev"
#: The local person logs in with the link printed in the terminal that started the bridge.
LOCAL_PERSON = "local"

#: Never passed to a local sprite: the bridge's own secrets, and variables that the bridge sets itself.
_KEPT_FROM_SPRITES = ("ANTHROPIC_", "SPRITES_", "BRIDGE_", "SPRITE_TOKEN", "SPRITE_NOTIFY_")
#: Settings of Claude Code for a person's own login, and beside them those for a cloud.
_OWN_LOGIN = ("CLAUDE_CODE_", "ANTHROPIC_")
_OWN_CLOUD = (*_OWN_LOGIN, "AWS_", "GOOGLE_", "CLOUD_ML_REGION", "VERTEX_REGION_")
#: Characters. A guessed secret allows impersonation of every person.
_SHORTEST_SECRET = 12


def _exits(text: str) -> frozenset[str]:
    named = frozenset(settings.words(text.lower()))
    if named - {*MODEL_EXITS, "none"} or (len(named) > 1 and "none" in named):
        raise ValueError(f"must be `none` or some of {', '.join(MODEL_EXITS)}, not {text!r}.")
    return named - {"none"}


def _database_url(text: str) -> str:
    # The message leaves the value out: it can hold a password.
    if urlsplit(text).scheme not in {"postgresql", "postgres"}:
        raise ValueError("must be like postgresql://USER:PASSWORD@HOST/DATABASE.")
    return text


def _cluster_secret(text: str) -> str:
    if len(text) < _SHORTEST_SECRET:
        raise ValueError(
            f"must have {_SHORTEST_SECRET} characters or more, such as `openssl rand -hex 32` prints, the same for "
            "each bridge."
        )
    return text


def _store_keys(text: str) -> tuple[bytes, ...]:
    try:
        return read_keys(text)
    except ValueError:
        # The message leaves the key out.
        raise ValueError(
            "must be 32 random bytes in base64, such as `openssl rand -base64 32` makes; or several, "
            "each as NAME:KEY, with spaces between: the first one encrypts, all of them decrypt."
        ) from None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the bridge. Money is in US dollars."""

    data: Path = setting(
        "--data SPRITE_DATA",
        settings.folder,
        default_data,
        "the bridge's data folder, which is hidden from agents on this machine (default: `data/` in a checkout, else "
        "`sprite/` in `$XDG_DATA_HOME`)",
    )
    host: str = setting("--host", str, DEFAULT_HOST, "address to listen on")
    port: int = setting("--port", settings.port, DEFAULT_PORT, "port to listen on, 0 for a free one")
    provider: Provider = setting(
        "--provider",
        settings.choice(*get_args(Provider)),
        "local",
        "where sprites run: `local` on this machine, `sprites` on VMs of sprites.dev",
    )
    #: None leaves the choice to the sprite.
    permissions: Literal["ask", "bypass"] | None = setting(
        "--permissions",
        settings.choice("ask", "bypass"),
        None,
        "whether agents on this machine ask before they act: `ask` (the default outside of a VM) or `bypass`",
    )
    api_key: str | None = setting(
        "ANTHROPIC_API_KEY",
        str,
        None,
        "API key of the model, which never enters a sprite; without a key or token the built-in demo model answers",
        secret=True,
    )
    auth_token: str | None = setting(
        "ANTHROPIC_AUTH_TOKEN", str, None, "bearer token of a model gateway, instead of a key", secret=True
    )
    base_url: str = setting(
        "ANTHROPIC_BASE_URL", settings.address, "https://api.anthropic.com", "URL of the model API or a gateway"
    )
    login: str | None = setting(
        "CLAUDE_CODE_OAUTH_TOKEN",
        str,
        None,
        "your own login of Claude Code (`claude setup-token`) instead of a key, for yourself on your own machine",
        secret=True,
    )
    #: Names or patterns (`claude-*`). Empty allows every model.
    models: tuple[str, ...] = setting(
        "--models",
        settings.words,
        (),
        "models that sprites may use, as names or patterns: `claude-haiku-* claude-sonnet-*` (default: all; one "
        "without a known price costs as much as the dearest)",
    )
    #: Server-side features of the model API that sprites may use, as names in MODEL_EXITS.
    model_exits: frozenset[str] = setting(
        "--model-exits",
        _exits,
        DEFAULT_MODEL_EXITS,
        "features of the model API that reach other hosts and that sprites may use: `none`, or some of "
        + ", ".join(f"`{name}`" for name in MODEL_EXITS),
    )
    #: Per sprite, or None for no cap.
    daily_usd: float | None = setting(
        "--daily-usd SPRITE_DAILY_USD",
        settings.dollars,
        10.0,
        "limit for each sprite's model calls per day (UTC) in US dollars, or `none`; its person is warned at half and "
        "four fifths, and can raise it for the day by as much again",
    )
    monthly_usd: float | None = setting(
        "--monthly-usd",
        settings.dollars,
        None,
        "limit for each sprite's model calls per month (UTC) in US dollars; only the operator can raise it",
    )
    #: The organisation's token for Sprites VMs.
    sprites_token: str | None = setting(
        "SPRITES_TOKEN",
        str,
        None,
        "your organisation's token at sprites.dev, which never enters a VM; `--provider sprites` needs it",
        secret=True,
    )
    #: None on one machine.
    public_url: str | None = setting(
        "BRIDGE_PUBLIC_URL",
        settings.address,
        None,
        "URL at which people and VMs reach the bridge, such as `https://sprite.example.org`; needed for `--provider "
        "sprites` and behind a proxy",
    )
    #: None: as the sprite's own default, which is `open` on a VM.
    egress: str | None = setting(
        "SPRITE_EGRESS",
        settings.choice("ask", *get_args(Egress)),
        None,
        "hosts that agents may reach: on VMs `open` (all of the internet, the default), `packages` (the bridge and the "
        "package index) or `bridge` (the bridge only); on this machine also `ask`, the default there",
    )
    notify_url: str | None = setting(
        "SPRITE_NOTIFY_URL",
        partial(settings.url, may_have_query=True),
        None,
        "webhook URL to which every notification is posted, signed; it may contain a secret, and is "
        "never logged or sent to a VM",
        secret=True,
    )
    #: None uses this bridge's own file.
    database_url: str | None = setting(
        "BRIDGE_DATABASE_URL",
        _database_url,
        None,
        "database that several bridges share: `postgresql://USER:PASSWORD@HOST/DATABASE` (default: `bridge.db` in the "
        "data folder)",
        secret=True,
    )
    address: str | None = setting(
        "BRIDGE_ADDRESS",
        settings.address,
        None,
        "URL at which other bridges reach this one, such as `http://10.0.0.2:8080` (default: its own host and port)",
    )
    cluster_secret: str | None = setting(
        "BRIDGE_CLUSTER_SECRET",
        _cluster_secret,
        None,
        "secret shared by the bridges of one database (`openssl rand -hex 32`); without it, bridges do not forward "
        "requests to each other",
        secret=True,
    )
    #: None: a key file in the data folder.
    store_keys: tuple[bytes, ...] | None = setting(
        "BRIDGE_STORE_KEY",
        _store_keys,
        None,
        "key that encrypts the replicas of agents, the same for all bridges of one database: 32 "
        "random bytes in base64, or several as `NAME:KEY`, the first in use (default: made from "
        "`BRIDGE_CLUSTER_SECRET` where bridges share a database, else the file `store.key` in the "
        "data folder)",
        secret=True,
    )
    person_token: str | None = setting(
        "SPRITE_TOKEN", str, None, "your token at the bridge that `chat --url` or `acp --url` names", secret=True
    )
    #: The file in which the Claude Code plugin looks up this machine's memory; None leaves no note.
    memory_note: Path | None = None
    #: The single sign-on provider of a company, if any.
    oidc: OidcSettings | None = None
    sprites_url: str = SPRITES_URL
    #: Whether browsers may register push services in the bridge's own network.
    push_inside: bool = False
    #: Whether `/metrics` needs no token; the flag `--metrics-open`.
    metrics_open: bool = False
    #: Environment that local processes inherit, without keys and tokens.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Variables by which a local sprite reaches a model by itself; empty if this bridge has a key.
    own_access: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def database(self) -> Path | str:
        """Return the database of people, token hashes and spending: this bridge's own file or the shared URL."""
        return self.database_url or self.data / "bridge.db"

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
        oidc = [] if self.oidc is None else settings.secrets(self.oidc)
        passwords = [urlsplit(url).password for url in (self.database_url or "", self.base_url)]
        return (*settings.secrets(self), *oidc, *passwords)

    @property
    def for_sprites(self) -> dict[str, str]:
        """Return the environment of local sprites: the inherited one, the daily budget and the offline flag."""
        daily = "" if self.daily_usd is None else str(self.daily_usd)
        model = {"SPRITE_CURATOR_MODEL": "offline"} if self.uses_offline_model else {}
        return {**self.environment, "SPRITE_DAILY_USD": daily, **model}

    @property
    def uses_offline_model(self) -> bool:
        """Return whether the built-in demo model answers instead of Claude."""
        return not (self.api_key or self.auth_token or self.own_access)

    @property
    def is_alone(self) -> bool:
        """Return whether this bridge is made for the one person of this machine."""
        shared = (self.public_url, self.database_url, self.oidc)
        return self.provider == "local" and self.is_loopback and shared == (None, None, None)

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can connect."""
        return is_loopback(self.host)


def from_environment(flags: Mapping[str, Any] | None = None) -> Settings:
    """Return settings from flags (by field) and the environment. Raise OperatorError naming an invalid one."""
    try:
        found = settings.read(Settings, flags or {})
        oidc = _oidc(settings.read(OidcSettings, {}), found.get("public_url"))
    except ValueError as error:
        raise OperatorError(str(error)) from None
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_FROM_SPRITES)}
    own: dict[str, str] = {}
    if not {"api_key", "auth_token"} & found.keys() and ("login" in found or settings.has_own_cloud()):
        prefixes = _OWN_CLOUD if settings.has_own_cloud() else _OWN_LOGIN
        own = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    return Settings(**found, memory_note=_memory_note(), oidc=oidc, environment=kept, own_access=own)


def _memory_note() -> Path | None:
    """Return the path of the note that integrations/claude-code/scripts/this-machine reads; None without a home."""
    home = os.environ.get("HOME", "").strip()
    folder = os.environ.get("XDG_CONFIG_HOME", "").strip() or (home and f"{home}/.config")
    return Path(folder, "sprite/claude-code") if folder else None


def _oidc(given: dict[str, Any], public: str | None) -> OidcSettings | None:
    issuer = given.get("issuer")
    if issuer is None:
        return None
    if not is_safe(issuer):
        raise ValueError("BRIDGE_OIDC_ISSUER must begin with https, because it decides who may log in.")
    if "client_id" not in given:
        raise ValueError("BRIDGE_OIDC_ISSUER needs BRIDGE_OIDC_CLIENT_ID: the provider's name for this bridge.")
    if public is None:
        raise ValueError(
            "BRIDGE_OIDC_ISSUER needs BRIDGE_PUBLIC_URL: the provider sends browsers back to BRIDGE_PUBLIC_URL"
            "/oidc/callback."
        )
    if not is_safe(public):
        raise ValueError(
            "BRIDGE_OIDC_ISSUER needs a BRIDGE_PUBLIC_URL that begins with https: otherwise others could "
            "read the provider's answer and log in with it."
        )
    return OidcSettings(**given)


def is_safe(url: str) -> bool:
    """Return whether a URL is safe from interception: https, or this machine."""
    try:
        parts = urlsplit(url)
        name = parts.hostname or ""
    except ValueError:
        return False
    return bool(name) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(name)))
