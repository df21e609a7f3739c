"""Settings as fields of a dataclass, from which flags, `--help` and the tables of the documentation are made."""

from __future__ import annotations

import argparse
import ipaddress
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

#: The code's folder; in a checkout, the bridge's data is beside it.
_ROOT = Path(__file__).resolve().parent.parent.parent


def setting(names: str, parse: Callable[[str], Any], default: Any, text: str, *, secret: bool = False) -> Any:
    """Declare a dataclass field as a setting. `names` are its flag, its environment variable, or both; a flag wins.

    `parse` makes the value from text; it raises ValueError with the rest of a sentence that begins with the name. A
    callable `default` makes the default value; with MISSING the setting is required. `text` is the help. A secret
    is in no repr.
    """
    made = {"default_factory": default} if callable(default) else {"default": default}
    declared = {"names": names.split(), "parse": parse, "help": text, "secret": secret}
    return field(**made, repr=not secret, metadata=declared)


def read(kind: type, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all settings from flags (by field name) and the environment. Raises ValueError."""
    found: dict[str, Any] = {}
    for each in _declared(kind):
        for name in each.metadata["names"]:
            value = flags.get(each.name) if name.startswith("--") else os.environ.get(name)
            text = "" if value is None else str(value).strip()
            if text and each.name not in found:
                try:
                    found[each.name] = each.metadata["parse"](text)
                except ValueError as error:
                    raise ValueError(f"{name} {error}") from None
    return found


def secrets(settings: Any) -> list[Any]:
    """Return the values of the secret fields; unset ones are None."""
    values = (getattr(settings, each.name) for each in _declared(type(settings)) if each.metadata["secret"])
    return [one for value in values for one in (value if isinstance(value, tuple) else [value])]


# --- types ---


def whole(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` up."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(f"must be a whole number from {least} up, not {text!r}.")
        return int(text)

    return parse


def port(text: str) -> int:
    """Parse a port of TCP."""
    if not text.isdecimal() or len(text) > len("65535") or int(text) > 65535:  # noqa: PLR2004 - the largest one
        raise ValueError(f"must be a port from 0 to 65535, not {text!r}.")
    return int(text)


def dollars(text: str) -> float | None:
    """Parse an amount in US dollars; `none` is None."""
    if text.lower() == "none":
        return None
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise ValueError(f"must be an amount in US dollars such as 0.50, or none, not {text!r}.")
    return amount


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser that accepts only the given words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be {', '.join(allowed[:-1])} or {allowed[-1]}, not {text!r}.")
        return text

    return parse


def is_on(text: str) -> bool:
    """Return whether a switch is on, with the words that Claude Code accepts for this."""
    return text.lower() in {"1", "true", "yes", "on"}


def words(text: str) -> tuple[str, ...]:
    """Parse words separated by spaces or commas."""
    return tuple(text.replace(",", " ").split())


def url(text: str, *, may_have_query: bool = False) -> str:
    """Parse an http or https URL. Errors leave it out, because it can hold a password."""
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.fragment or (parts.query and not may_have_query):
        without = "a fragment" if may_have_query else "a query"
        raise ValueError(f"must be an address such as https://example.org, without {without}.")
    return text


def address(text: str) -> str:
    """Parse an http or https URL, and remove slashes at its end."""
    return url(text).rstrip("/")


def folder(text: str) -> Path:
    """Parse the path of a folder."""
    return Path(text).expanduser().resolve()


# --- help and documentation ---


def add_flags(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add the flags of these settings to a parser. Their values stay text; `read` parses them."""
    for each in _declared(kind):
        for flag in each.metadata["names"]:
            if flag.startswith("--"):
                parser.add_argument(flag, dest=each.name, help=_help(each).replace("%", "%%"))


def epilog(*kinds: type) -> str:
    """Return the variables of these settings for the end of a `--help`."""
    lines = ["environment variables:"]
    for each in (each for kind in kinds for each in _declared(kind)):
        for name in each.metadata["names"]:
            if not name.startswith("--"):
                indent = " " * 6
                lines += [f"  {name}", textwrap.fill(_help(each), 100, initial_indent=indent, subsequent_indent=indent)]
    return "\n".join(lines)


def table(*kinds: type) -> str:
    """Return the settings as a Markdown table."""
    rows = (
        f"| {', '.join(f'`{name}`' for name in each.metadata['names'])} | {_help(each)} |\n"
        for kind in kinds
        for each in _declared(kind)
    )
    return f"| setting | meaning |\n|---|---|\n{''.join(rows)}"


def _declared(kind: type) -> Iterator[Field[Any]]:
    return (each for each in fields(kind) if each.metadata)


def _help(each: Field[Any]) -> str:
    text, default = each.metadata["help"], each.default
    if default is MISSING or not default:
        return str(text)
    shown = " ".join(sorted(default)) if isinstance(default, frozenset | tuple) else default
    return f"{text} (default: {shown:g})" if isinstance(shown, float) else f"{text} (default: {shown})"


# --- this machine ---


def is_loopback(host: str) -> bool:
    """Return whether a host is an address or name of this machine that other machines cannot reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def default_data() -> Path:
    """Return a bridge's data folder: SPRITE_DATA, `data/` in the checkout of the code, or the XDG data folder."""
    if chosen := os.environ.get("SPRITE_DATA", "").strip():
        return folder(chosen)
    if (_ROOT / "pyproject.toml").exists() or (_ROOT / "data").is_dir():
        return (_ROOT / "data").resolve()
    data_home = os.environ.get("XDG_DATA_HOME", "").strip() or Path(os.environ.get("HOME", "/"), ".local/share")
    return Path(data_home, "sprite").resolve()


def has_own_cloud() -> bool:
    """Return whether Claude Code is set up to reach the model through the person's own cloud."""
    return any(is_on(os.environ.get(f"CLAUDE_CODE_USE_{name}", "").strip()) for name in ("BEDROCK", "VERTEX"))


def claude_code_logs() -> Path:
    """Return the folder of Claude Code's session logs on this machine."""
    chosen = os.environ.get("CLAUDE_CONFIG_DIR", "").strip()
    return (Path(chosen) if chosen else Path.home() / ".claude") / "projects"
