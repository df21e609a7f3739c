"""The bridge's settings: from the environment, refused in words, and never handed on to a sprite."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.config import is_loopback
from bridge.hosts.host import NAME
from tests.bridge_harness import bridge_environment
from tests.harness import ROOT

SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "SPRITES_TOKEN", "BRIDGE_OPERATOR_TOKEN", "SPRITE_TOKEN")


def told(expression: str, **environment: str) -> str:
    """What an expression on the settings comes to, in a process with that environment."""
    program = f"from bridge.config import from_environment; s = from_environment(); print({expression})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=bridge_environment(**environment),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip()


def test_settings_show_no_secret_and_hand_none_on() -> None:
    planted = {name: f"planted-{name}" for name in SECRETS}
    assert "planted" not in told("s", **planted)
    assert "planted" not in told("dict(s.environment)", **planted)
    assert told("s.api_key, s.sprites_token, s.operator_token", **planted).count("planted") == 3


def test_what_a_sprite_may_be_told_is_handed_on() -> None:
    environment = {"SPRITE_MODEL": "claude-x", "SPRITE_BATCH_TURNS": "7", "SPRITE_SPARE_SECONDS": "9"}
    assert told(
        "[s.environment[name] for name in sorted(s.environment) if name.startswith('SPRITE')]", **environment
    ) == ("['7', 'claude-x', '9']")


def test_models_and_budgets_come_from_the_environment() -> None:
    environment = {"BRIDGE_MODELS": "claude-a, claude-b-*", "SPRITE_DAILY_USD": "0.5", "SPRITE_MONTHLY_USD": "9"}
    assert told("s.models, s.daily_usd, s.monthly_usd", **environment) == "('claude-a', 'claude-b-*') 0.5 9.0"


def test_exits_headers_and_betas_of_the_model_come_from_the_environment() -> None:
    assert told("*s.model_exits, len(s.model_headers), len(s.model_betas)") == "web_search 0 0"
    opened = {"BRIDGE_MODEL_EXITS": "url, Web_Fetch", "BRIDGE_MODEL_HEADERS": "X-Tenant", "BRIDGE_MODEL_BETAS": "new"}
    assert (
        told("sorted(s.model_exits), *s.model_headers, *s.model_betas", **opened) == "['url', 'web_fetch'] x-tenant new"
    )
    assert told("len(s.model_exits)", BRIDGE_MODEL_EXITS="none") == "0"


@pytest.mark.parametrize(
    ("name", "value"),
    [("BRIDGE_MODEL_EXITS", "everything"), ("BRIDGE_MODEL_EXITS", "none url"), ("BRIDGE_MODEL_HEADERS", "X-Api-Key")],
)
def test_what_is_no_exit_or_no_header_to_pass_on_is_refused_in_words(name: str, value: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        told("s", **{name: value})
    assert f"OperatorError: {name}" in caught.value.stderr


def test_the_data_folder_is_the_same_from_wherever_a_command_is_typed(tmp_path: Path) -> None:
    program = "from bridge.config import from_environment; print(from_environment().data)"
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env=bridge_environment(PYTHONPATH=str(ROOT), **chosen),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout.strip()
        for folder, chosen in ((ROOT, {}), (tmp_path, {}), (tmp_path, {"SPRITE_DATA": str(tmp_path / "mine")}))
    ]
    assert found == [str((ROOT / "data").resolve())] * 2 + [str(tmp_path / "mine")]


def test_the_internet_is_open_to_vms_unless_the_operator_says_otherwise() -> None:
    assert told("s.egress") == "open"
    assert told("s.egress", BRIDGE_EGRESS="packages") == "packages"


def test_empty_variables_are_as_good_as_none() -> None:
    assert told("s.api_key, s.base_url, s.uses_offline_model", ANTHROPIC_API_KEY=" ", ANTHROPIC_BASE_URL="") == (
        "None https://api.anthropic.com True"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "", "127.0.0.1.example.org"])  # noqa: S104
def test_others_could_connect(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("name", ["a", "ada", "ada-2", "a" * 39])
def test_a_name(name: str) -> None:
    assert NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a_b", "a/b", "..", "a" * 40, "a\n", "\u0430da"])
def test_no_name(name: str) -> None:
    assert not NAME.fullmatch(name)


def test_every_variable_is_in_the_deployment_guide() -> None:
    guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    source = Path(ROOT / "bridge" / "config.py").read_text(encoding="utf-8")

    names = set(re.findall(r'_(?:text|address|dollars|names)\("([A-Z_]+)"\)', source))
    assert len(names) > 8
    assert {name for name in names if f"`{name}`" not in guide} == set()
