"""The rules for secrets are data with examples: each example is found by its own rule, each counterexample by none."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import msgspec
import pytest

from sprite.privacy.redaction import redact
from sprite.privacy.secret_formats import (
    NOT_KEPT,
    Client,
    CommandFile,
    Rule,
    Shape,
    index,
    kept_result,
    shapes,
    shows_secrets,
)
from sprite.privacy.secret_names import Span
from sprite.privacy.secret_values import read
from tests.fake_secrets import ALNUM, BASE64, HEX, LOWER, UPPER, WORD
from tests.forking import ROOT
from tests.heldout_secrets import BASE58

FOLDER = ROOT / "sprite" / "privacy" / "rules"
SHAPE_FILES = ("models.toml", "clouds.toml", "packages.toml", "services.toml")
SHAPES = shapes(SHAPE_FILES)
PLACES = shapes(("places.toml", "sentences.toml"))
COMMANDS = read("commands.toml", CommandFile).command
CLIENTS = read("clients.toml", dict[str, list[Client]])["client"]

ALPHABETS = {
    "alnum": ALNUM, "word": WORD, "base64": BASE64, "upper": UPPER, "lower": LOWER, "hex": HEX, "digit": "0123456789",
    "letter": "abcdefghijklmnopqrstuvwxyz", "dash": "-",
    "base58": BASE58,
}  # fmt: skip
_NOTE = re.compile(rf"\{{({'|'.join(ALPHABETS)}):(\d+)\}}")


def expanded(example: str) -> str:
    """Replace each note in the example by random characters, always the same ones."""
    rng = random.Random(example)  # noqa: S311 - made-up data, the same each time

    def characters(note: re.Match[str]) -> str:
        alphabet, length = ALPHABETS[note[1]], int(note[2])
        while True:
            made = "".join(rng.choices(alphabet, k=length))
            if length < 8 or (_has_digit(made) == _has_digit(alphabet) and made.isdigit() == alphabet.isdigit()):
                return made

    return _NOTE.sub(characters, example)


def _has_digit(text: str) -> bool:
    return re.search(r"\d", text) is not None


def matches(rules: Iterable[Shape]) -> list[tuple[Shape, str]]:
    return [(rule, expanded(text)) for rule in rules for text in rule.matches]


def named(rule: Shape) -> str:
    return f"{rule.kind}: {rule.about}"


def found_by(rule: Shape, text: str) -> list[Span]:
    """Return the spans that the rule finds in the text, without the other rules."""
    if rule in PLACES:
        lower = text.lower()
        starts = {at for marker in rule.markers for at in range(len(text)) if lower.startswith(marker, at)}
        return [span for at in sorted(starts) if (span := rule.at(text, lower, at)) is not None]
    return list(rule.in_run(text, 0, len(text)))


def test_rules_describe_target_and_have_both_examples() -> None:
    """Each has examples that match and examples that do not."""
    rules: tuple[Rule, ...] = (*SHAPES, *PLACES, *COMMANDS, *CLIENTS)
    assert [rule.about for rule in rules if not (rule.about and rule.matches and rule.ignores)] == []


def test_malformed_rule_is_refused() -> None:
    whole = {"about": "x", "pattern": "y", "matches": ["y"], "ignores": ["z"]}
    assert msgspec.convert(whole, Rule).regex == "y"
    for wrong in ({**whole, "patern": "y"}, {key: whole[key] for key in ("about", "pattern", "matches")}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Rule)


def test_rules_contain_no_scanner_detectable_secret() -> None:
    text = "\n".join(path.read_text("utf-8") for path in sorted(FOLDER.iterdir()))
    found = [(rule.kind, text[start:end]) for rule in index().tokens for start, end, _ in found_by(rule, text)]
    assert found == []


def test_secret_is_found_by_its_rule_and_redacted() -> None:
    """Another rule may give the same secret another name."""
    for rule, text in matches((*SHAPES, *PLACES)):
        spans = found_by(rule, text)
        assert spans, (named(rule), text)
        said = redact(text)
        assert not any(text[start:end] in said for start, end, _ in spans), (named(rule), said)


def test_argument_of_client_is_redacted() -> None:
    texts = [expanded(text) for rule in CLIENTS for text in rule.matches]
    assert [text for text in texts if "[redacted:" not in redact(text)] == []


def test_counterexample_is_unchanged() -> None:
    texts = [expanded(text) for rule in (*SHAPES, *PLACES, *CLIENTS) for text in rule.ignores]
    assert [text for text in texts if redact(text) != text] == []


def test_shape_example_matches_no_other_shape() -> None:
    for rule, text in matches(SHAPES):
        finders = [shape for shape in SHAPES if shape.kind == rule.kind and found_by(shape, text)]
        assert finders == [rule], (named(rule), text)


def test_token_inside_word_is_not_matched() -> None:
    for rule, text in matches([shape for shape in SHAPES if shape.token]):
        ((start, _, _),) = found_by(rule, text)
        found = found_by(rule, f"{text[:start]}x{text[start:]}")
        assert start + 1 not in {begin for begin, _, _ in found}, named(rule)


def test_command_that_shows_secrets_is_recognised() -> None:
    for rule in COMMANDS:
        for command in map(expanded, rule.matches):
            assert shows_secrets({"command": command}), command
            assert shows_secrets({"command": f"cd /srv && {command}"}), command


def test_other_command_is_not_recognised() -> None:
    assert [text for rule in COMMANDS for text in rule.ignores if shows_secrets({"command": text})] == []


@pytest.mark.parametrize(
    "command",
    [
        "pass show work/db", "pass work/db", "gopass show -o db", "gopass work/db", "bw get password github",
        "op read op://team/db/password", "vault read secret/db", "vault kv get secret/db",
        "security find-generic-password -w -s x", "security find-internet-password -s x -w",
        ["bash", "-lc", "op read op://team/db/password"], ["pass", "show", "work/db"],
    ],
)  # fmt: skip
def test_result_of_password_manager_is_not_kept(command: str | list[str]) -> None:
    assert kept_result({"command": command}, "anything at all") == NOT_KEPT


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("pwgen --help", "Usage: pwgen [ OPTIONS ] [ pw_length ]"),
        ("cat .npmrc", "//registry.npmjs.org/:_authToken=${NPM_TOKEN}\n"),
        ("op read op://a/b | docker login --password-stdin", "Login Succeeded"),
        ('make deploy TOKEN="$(pass show ci/token)"', "deploying to staging"),
        ("echo $PWD", "/srv/shop-2"),
        ("echo $TOKEN_COUNT", "4096"),
        ("terraform output -json", '{"region": {"value": "eu-west-1"}}'),
        ("kubectl get secret -o name", "secret/db-creds"),
        ("psql -c 'select count(*) from tokens'", " count\n-------\n    42"),
    ],
)
def test_result_without_secret_is_kept(command: str, result: str) -> None:
    assert kept_result({"command": command}, result) == result


def test_variable_that_is_printed_is_not_kept() -> None:
    assert kept_result({"command": 'X=$(pass show db) && echo "$X"'}, "blumenkohl") == NOT_KEPT
    assert kept_result({"command": "cat pw/db_password.txt"}, "blumenkohl\n") == NOT_KEPT
    assert kept_result({"command": "echo it is $API_KEY"}, "it is plain words") == NOT_KEPT
    assert kept_result({"command": "heroku config:get SMTP_PASSWORD"}, "blumenkohl") == NOT_KEPT
    assert kept_result({"command": "openssl rand -base64 18"}, "kX2v9QmLw8ZrT4bN7cYd1a") == NOT_KEPT


@pytest.mark.parametrize("path", [".env", "/srv/app/.env.production", "/home/ada/.ssh/id_rsa", "/run/secrets/db"])
def test_file_of_secrets_is_recognised(path: str) -> None:
    assert shows_secrets({"file_path": path})


@pytest.mark.parametrize("path", [".env.example", "/srv/app/env.py", "/home/ada/.ssh/id_rsa.pub", "/srv/secrets.md"])
def test_other_file_is_not_recognised(path: str) -> None:
    assert not shows_secrets({"file_path": path})


def test_long_command_is_read_in_linear_time() -> None:
    for piece in ("cat ", "sudo ", "a=b ", "kubectl get ", "openssl ", "docker exec ", "'"):
        assert not shows_secrets({"command": piece * 4000})
