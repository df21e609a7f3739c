"""Bridge settings: read from the environment, validated with clear errors, and never passed to a sprite."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from bridge.__main__ import main as bridge_command
from bridge.config import Settings, from_environment
from bridge.errors import OperatorError
from bridge.providers.provider import NAME
from bridge.providers.sprites import SETTINGS
from sprite.__main__ import run as sprite_command
from sprite.common.settings import add_flags, is_loopback
from sprite.config import Settings as SpriteSettings
from tests.bridge_harness import bridge_environment
from tests.harness import ROOT
from tests.in_thread import environment
from tools.settings_tables import TABLES, updated

SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "SPRITES_TOKEN", "SPRITE_TOKEN")


def settings(*flags: str, **variables: str) -> Settings:
    """Return the settings that flags and an environment make."""
    parser = argparse.ArgumentParser()
    add_flags(parser, Settings)
    with environment(bridge_environment(**variables)):
        return from_environment(vars(parser.parse_args(flags)))


@pytest.mark.parametrize("port", ["70000", "65536", "-1", "9" * 5000, "x"])
def test_commands_refuse_what_is_no_port(port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sprite_command(["serve", f"--port={port}", "--workspace", str(tmp_path / "w")]) == 2
    assert "--port must be a port from 0 to 65535" in capsys.readouterr().err
    assert bridge_command(["serve", f"--port={port}", "--data", str(tmp_path / "d")]) == 2
    assert "--port must be a port from 0 to 65535" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        bridge_command(["model", f"--port={port}"])
    assert list(tmp_path.iterdir()) == []


COMMANDS = [
    *(f"users {what}" for what in ("add", "link", "revoke", "restore", "token", "tokens")),
    *(
        "deploy",
        "export",
        "restore",
        "status",
        "store accept",
        "store delete",
        "store verify",
        "chat --person",
        "connections list --person",
    ),
]


@pytest.mark.parametrize("name", ["a b/../c", "x/../c", "../../etc", "", "c?x=1", "..", "Ada"])
@pytest.mark.parametrize("words", COMMANDS)
def test_commands_refuse_what_is_no_name(words: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bridge_command([*words.split(), name])
    assert f"{name!r} is not a valid name: use up to 39 of a-z, 0-9 and -" in capsys.readouterr().err


def test_secrets_are_hidden_and_not_passed_on() -> None:
    made = settings(**{name: f"planted-{name}" for name in SECRETS})
    assert "planted" not in repr(made) + str(made)
    assert "planted" not in str(dict(made.environment))
    assert str((made.api_key, made.sprites_token)).count("planted") == 2


def test_sprite_variables_are_passed_on() -> None:
    told = {"SPRITE_MODEL": "claude-x", "SPRITE_BATCH_TURNS": "7", "SPRITE_PREWARM_SECONDS": "9"}
    handed_on = settings(**told).environment
    assert {name: value for name, value in handed_on.items() if name.startswith("SPRITE")} == told


def test_flags_and_fake_model_reach_sprites() -> None:
    variables = {"SPRITE_DAILY_USD": "7", "ANTHROPIC_API_KEY": "key"}
    flag, variable = settings("--daily-usd", "2.5", **variables), settings(**variables)
    assert flag.for_sprites["SPRITE_DAILY_USD"] == "2.5"
    assert "SPRITE_CURATOR_MODEL" not in flag.for_sprites
    assert variable.for_sprites["SPRITE_DAILY_USD"] == "7.0"
    assert settings(ANTHROPIC_API_KEY="").for_sprites["SPRITE_CURATOR_MODEL"] == "offline"


def test_each_sprite_setting_reaches_vms() -> None:
    """Exceptions: settings of the machine, and those that the deploy itself writes."""
    read = {name for field in fields(SpriteSettings) for name in field.metadata.get("names", ())}
    of_machine = {"SPRITE_TOKEN", "SPRITE_CONNECTIONS", "SPRITE_DATA", "SPRITE_EGRESS", "SPRITE_EMBEDDINGS"}
    assert {name for name in read if name.startswith("SPRITE_")} - of_machine == set(SETTINGS)


def test_at_most_25_environment_variables() -> None:
    kinds = (SpriteSettings, Settings)
    read = {name for kind in kinds for each in fields(kind) for name in each.metadata.get("names", ())}
    assert len([name for name in read if not name.startswith("--")]) <= 25


def test_models_and_budgets_come_from_flags() -> None:
    made = settings("--models", "claude-a, claude-b-*", "--daily-usd", "0.5", "--monthly-usd", "9")
    assert (made.models, made.daily_usd, made.monthly_usd) == (("claude-a", "claude-b-*"), 0.5, 9.0)


def test_daily_budget_defaults_to_ten_dollars() -> None:
    assert (settings().daily_usd, settings().monthly_usd) == (10.0, None)
    assert settings(SPRITE_DAILY_USD="none").daily_usd is None
    assert settings("--daily-usd", "0.5", SPRITE_DAILY_USD="none").daily_usd == 0.5
    assert settings("--daily-usd", "none", SPRITE_DAILY_USD="0.5").daily_usd is None


def test_api_features_come_from_flag() -> None:
    assert settings().model_exits == frozenset({"web_search"})
    assert settings("--model-exits", "url, Web_Fetch").model_exits == frozenset({"url", "web_fetch"})
    assert settings("--model-exits", "none").model_exits == frozenset()


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--model-exits", "everything"), ("--model-exits", "none url"), ("--provider", "cloud"), ("--port", "-1")],
)
def test_invalid_flag_is_refused_in_words(flag: str, value: str) -> None:
    with pytest.raises(OperatorError, match=f"^{flag} must be"):
        settings(f"{flag}={value}")


def test_environment_variables_are_few() -> None:
    kinds = (Settings, SpriteSettings)
    names = {name for kind in kinds for field in fields(kind) for name in field.metadata.get("names", ())}
    assert len([name for name in names if not name.startswith("--")]) <= 29


@pytest.mark.parametrize(("main", "kind"), [(sprite_command, SpriteSettings), (bridge_command, Settings)])
def test_help_names_every_variable(
    main: Callable[[list[str]], int], kind: type, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    names = {name for field in fields(kind) for name in field.metadata.get("names", ()) if name.isupper()}
    assert len(names) > 10
    assert {name for name in names if f"  {name}\n" not in shown} == set()


def test_serve_help_says_where_agents_settings_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bridge_command(["serve", "--help"])
    assert "such as SPRITE_MODEL" in capsys.readouterr().out


@pytest.mark.parametrize("path", TABLES)
def test_documentation_lists_settings_as_declared(path: str) -> None:
    """`python -m tools.settings_tables` writes them."""
    text = (ROOT / path).read_text()
    assert updated(text, TABLES[path]) == text


def test_data_folder_is_independent_of_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().data == (ROOT / "data").resolve()
    monkeypatch.chdir(tmp_path)
    assert settings().data == (ROOT / "data").resolve()
    assert settings(SPRITE_DATA=str(tmp_path / "mine")).data == tmp_path / "mine"


def test_vm_internet_is_open_by_default() -> None:
    assert settings().egress is None
    assert settings(SPRITE_EGRESS="packages").egress == "packages"


def test_empty_variables_count_as_unset() -> None:
    made = settings(ANTHROPIC_API_KEY=" ", ANTHROPIC_BASE_URL="")
    assert (made.api_key, made.base_url, made.uses_offline_model) == (None, "https://api.anthropic.com", True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_loopback_addresses_are_recognized(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "", "127.0.0.1.example.org"])  # noqa: S104
def test_other_addresses_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("name", ["a", "ada", "ada-2", "a" * 39])
def test_name_is_valid(name: str) -> None:
    assert NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a_b", "a/b", "..", "a" * 40, "a\n", "\u0430da"])
def test_name_is_invalid(name: str) -> None:
    assert not NAME.fullmatch(name)
