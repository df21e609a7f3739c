"""Redaction of secrets: recall, false positives, and cost."""

from __future__ import annotations

import json
import logging
import random
import re
import resource
import sys
from collections import Counter
from io import StringIO
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.common import own_secrets
from sprite.privacy.cutting import MAX_STRING, cut, cut_value
from sprite.privacy.private_text import PrivateText
from sprite.privacy.redaction import PRIVATE, DiscreetFilter, discreet, discreet_value, redact, without_private
from sprite.privacy.secret_names import names
from tests.fake_secrets import ALL_FORMATS, TOKENS, TWENTY, fake_secrets, leaks, password
from tests.harmless_strings import BACKTRACKING_BAIT, WRITTEN, harmless_strings
from tests.heldout_secrets import heldout_secrets
from tests.tuning_secrets import tuning_secrets

MARK = re.compile(r"\[redacted:[a-z0-9-]+\]")


def _rng() -> random.Random:
    return random.Random(5)  # noqa: S311 - made-up data, the same each time


def _key() -> str:
    return TOKENS["anthropic"](_rng())


def _pem(lines: int = 20) -> str:
    body = "\n".join("".join(_rng().choices("ABCDefgh0123+/", k=64)) for _ in range(lines))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_formatted_secrets_are_redacted_at_95_percent(seed: int) -> None:
    """At least 190 of 200 secrets in 20 formats."""
    missed = [plant for plant in fake_secrets(TWENTY, 10, seed) if leaks(plant.secret, redact(plant.text))]
    assert len(missed) <= 10, missed


def test_secret_format_is_redacted_nearly_everywhere() -> None:
    for format_ in ALL_FORMATS:
        missed = [plant for plant in fake_secrets((format_,), 12, 4) if leaks(plant.secret, redact(plant.text))]
        assert len(missed) <= 1, missed


def test_tuning_context_secret_is_redacted() -> None:
    missed = [plant for plant in tuning_secrets(each=4) if leaks(plant.secret, redact(plant.text))]
    assert max(Counter(plant.format for plant in missed).values(), default=0) <= 1, missed


def test_heldout_context_secrets_are_redacted_at_95_percent() -> None:
    plants = heldout_secrets(each=5, seed=2)
    caught = sum(not leaks(plant.secret, redact(plant.text)) for plant in plants)
    # The missed ones are not shown: a rule made for one of them would make the measure worthless.
    assert caught >= 0.95 * len(plants), f"{caught} of {len(plants)}"


def test_text_around_secret_is_unchanged() -> None:
    for plant in (*tuning_secrets(), *heldout_secrets(), *fake_secrets(ALL_FORMATS, 6, 6)):
        pieces = MARK.split(redact(plant.text))
        at = 0
        for piece in pieces:
            at = plant.text.index(piece, at) + len(piece)
        assert plant.text.startswith(pieces[0])
        assert plant.text.endswith(pieces[-1])


def test_own_secrets_are_known_by_value_everywhere() -> None:
    """This covers a mission, memory writes, a log message and a traceback."""
    token = "-_".join(password(_rng()) for _ in range(4))
    own_secrets.hold(token, "offline", None)
    assert PrivateText().others(f"cat token\n{token} offline") == "cat token\n[redacted:own-secret] offline"
    assert redact(f"x{token}y {token}") == "x[redacted:own-secret]y [redacted:own-secret]"
    assert own_secrets.without(f"x{token}y") == "x[redacted:own-secret]y"
    assert discreet_value({"a": [f"-{token}"]}) == {"a": ["-[redacted:own-secret]"]}
    record = logging.LogRecord("x", logging.INFO, "", 0, "got %s", (token,), (ValueError, ValueError(token), None))
    DiscreetFilter().filter(record)
    assert token not in logging.Formatter().format(record)


def test_text_about_secrets_is_unchanged() -> None:
    assert [text for text in WRITTEN if redact(text) != text] == []


def test_ordinary_strings_rarely_change() -> None:
    """Fewer than one in a thousand."""
    changed = [text for text in harmless_strings(2_000, 5) if redact(text) != text]
    assert len(changed) < 2, changed


@pytest.mark.parametrize("secret", ["k3j9x2m7", "a1b2c3d4e5f6", "x7Kq92Lm"])
def test_named_short_token_is_redacted(secret: str) -> None:
    assert redact(f'token="{secret}"') == 'token="[redacted:secret-assignment]"'


@pytest.mark.parametrize("value", ["1.25.3-rc1x", "2026-11-24T10", "page 12 of 40"])
def test_named_value_that_is_no_token_is_unchanged(value: str) -> None:
    assert redact(f'token="{value}"') == f'token="{value}"'


@pytest.mark.parametrize(
    "text",
    [
        "password: SECRET",
        '{\\"password\\": \\"SECRET\\"}',
        'password "SECRET"',
        "requirepass SECRET",
        'set_password(user, "SECRET")',
        "Passwort SECRET",
        "\u0130 password=SECRET",
        "name,password\nada,SECRET\n",
        "Use the following password to proceed:\n\nSECRET\n",
        "<password>\n    SECRET\n</password>",
        'var dbPassword string = "SECRET"',
        '$password .= "SECRET";',
        'PASSWORD ::= "SECRET"',
        "password है SECRET",
        "The archive is on the share, Passwort dazu: SECRET",
        "#0 /srv/db.php(7): PDO->__construct('mysql:host=db', 'shop', 'SECRET')",
        '{"cells": ["%env DB_PASSWORD=SECRET\\n"]}',
        "smtp_password  | SECRET",
        "| smtp_host | mail |\n| smtp_password | SECRET |",
        '"db_password": {"sensitive": true, "value": "SECRET"}',
        "my password (SECRET) doesn't work",
        "the password's SECRET, by the way",
    ],
)
@pytest.mark.parametrize("secret", ["hunter_2", "Blue-Otter_42"])
def test_password_is_redacted_however_written(text: str, secret: str) -> None:
    assert redact(text.replace("SECRET", secret)) == text.replace("SECRET", "[redacted:password-assignment]")


def test_passphrase_of_words_is_redacted_whole() -> None:
    assert redact("password: correct horse battery staple") == "password: [redacted:password-assignment]"


def test_password_of_several_words_is_redacted_whole() -> None:
    for text in (
        "mail.password=rk7 linden hafen\n", 'backup_passphrase: "Neun graue Boote liegen still"',
        "admin_passwd = Roter-Berg-Dachs", "the passphrase of the disk is 'nine wet dogs on sand'",
        "<deployPassword>ship-it-Biber</deployPassword>",
    ):  # fmt: skip
        assert MARK.search(redact(text)), text


def test_old_and_new_password_are_redacted() -> None:
    said = redact("I changed the root pw on web3 from Copper.Kettle8 to Silver.Spoon54, please test")
    assert MARK.split(said) == ["I changed the root pw on web3 from ", " to ", ", please test"]


@pytest.mark.parametrize(
    "text",
    [
        "signing:\n  key: KEY\n", '{"encryption": {\n  "key": "KEY"}}', 'let tideTableKey = "KEY"', 'encrypt = "KEY"',
        '{"reset_token": "KEY"}', ".shop.example\tTRUE\t/\tTRUE\t1796000000\tsid\tKEY\n",
    ],
)  # fmt: skip
def test_key_is_redacted_by_its_surroundings(text: str) -> None:
    key = "".join(_rng().choices("abcdefghij0123456789", k=40))
    assert MARK.search(redact(text.replace("KEY", key)))
    assert redact(text.replace("KEY", "created_at")) == text.replace("KEY", "created_at")


@pytest.mark.parametrize("text", ["username: ada\npassword: sparrow\n", "wget --password=sparrow https://example.com"])
def test_plain_word_is_password_in_sure_place(text: str) -> None:
    assert redact(text) == text.replace("sparrow", "[redacted:password-assignment]")


def test_documented_example_key_is_unchanged() -> None:
    text = "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert redact(text) == text


@pytest.mark.parametrize(
    "text", ["My ski pass is: refundable!", "The password=secret is wrong", 'password = f"prefix_{word}1"']
)
def test_ordinary_word_after_name_is_unchanged(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "name", ["password", "DB_PASSWORD", "smtpPass", "admin-pw-2", "client_secret_prod", "apiToken", "api-access-key"]
)
def test_last_word_of_name_decides(name: str) -> None:
    value = "k3j9-Xm7-Q2vw-81zt"
    assert value not in redact(f'{name}="{value}"')
    for last in ("hash", "Id", "_url", "_file", "-length", "Name", "_header"):
        assert redact(f'{name}{last if name[-1].isalpha() else "_name"}="{value}"').count(value) == 1


@pytest.mark.parametrize(
    "text",
    [
        "btw the db password changed, it's now SECRET", "le mot de passe administrateur est SECRET",
        "la contraseña que me dio Ana es SECRET", "das Kennwort hab ich auf SECRET geändert",
        "le wifi : SECRET", "page.getByLabel('Password').fill('SECRET')",
    ],
)  # fmt: skip
def test_password_is_found_farther_away(text: str) -> None:
    assert redact(text.replace("SECRET", "Quarz_Uhr_55")).count("Quarz_Uhr_55") == 0
    for word in ("unchanged", "read-only", "the-same"):
        assert redact(text.replace("SECRET", word)) == text.replace("SECRET", word)


def test_secret_inside_value_of_name_is_redacted() -> None:
    assert redact("token=password: hunter2") == "token=password: [redacted:password-assignment]"


def test_redaction_names_kind_and_keeps_rest() -> None:
    key, word = _key(), "hunter" + "2"
    assert redact(f"use {key}, please") == "use [redacted:anthropic-api-key], please"
    assert redact(f"DB_PASSWORD={word}\nDB_PORT=5432") == "DB_PASSWORD=[redacted:password-assignment]\nDB_PORT=5432"
    assert redact(f"postgres://app:{word}@db:5432/x") == "postgres://app:[redacted:basic-auth-url]@db:5432/x"


def test_redaction_is_idempotent() -> None:
    for plant in fake_secrets(ALL_FORMATS, 6, 6):
        once = redact(plant.text)
        assert redact(once) == once


def test_private_key_is_redacted_whole() -> None:
    """With or without its end, and in JSON."""
    key = _pem()
    begun = "\n".join(key.splitlines()[:9])
    for text in (key, begun, json.dumps({"key": key}), f"     1\t{key}".replace("\n", "\n     2\t")):
        said = redact(f"before\n{text}\nafter")
        assert "[redacted:private-key]" in said
        assert said.startswith("before")
        assert said.rstrip().endswith("after")
        assert not any(line in said for line in key.splitlines()[1:-1])


def test_secret_is_found_wherever_long_text_is_divided() -> None:
    """Long texts are searched in parts of 32,000 characters."""
    key, word = _key(), "hunter" + "22"
    for filler in ("word ", "a.b(c);", "QUJD"):
        for place in range(31_900, 32_100, 25):
            before = (filler * 9000)[:place]
            said = redact(f"{before} {key} password={word}, {filler * 9000}")
            assert key[:20] not in said, (filler, place)
            assert word not in said, (filler, place)
    pem = _pem(90)
    for place in range(24_000, 51_000, 3000):
        said = redact(f"{('word ' * 12_000)[:place]}\n{pem}\n{'word ' * 12_000}")
        assert not any(line in said for line in pem.splitlines()[1:-1]), place


@given(st.text())
def test_arbitrary_text_is_redacted_without_error_or_loss(text: str) -> None:
    assert isinstance(discreet(text), str)


@given(st.text(alphabet="passwordkeytoken=:\"'<>/private \n\\@[]{}-_.0123", max_size=200))
def test_texts_full_of_triggers_raise_no_error(text: str) -> None:
    assert redact(redact(text)) == redact(redact(redact(text)))


@pytest.mark.parametrize("piece", BACKTRACKING_BAIT)
def test_text_full_of_triggers_is_read_completely(piece: str) -> None:
    text = piece * (5_000 // len(piece))
    assert isinstance(redact(f"{text} the end"), str)


# --- private text ---


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("a <private>b</private> c", "a [private] c"),
        ("a <PRIVATE>\nb\nc</Private> d", "a [private] d"),
        ("a <private>b", "a [private]"),
        ("a <private>b <private>c</private> d</private> e", "a [private] e"),
        ("<private>a</private> b <private>c</private>", "[private] b [private]"),
        ("a </private> b", "a </private> b"),
        ("a private b", "a private b"),
        ("< private >x< / private >", "[private]"),
    ],
)
def test_private_tags_remove_their_content(said: str, kept: str) -> None:
    assert without_private(said) == kept
    assert discreet(said) == kept


def test_private_text_is_recognized_without_tags() -> None:
    private_text = PrivateText()
    secret = password(_rng())
    private_text.hear(
        f"DB_PASSWORD={secret}\n<private>I will leave\nthe company in May, my code is zebra-4711</private>"
    )
    for said, kept in (
        (f"I used {secret}.", "I used [redacted:password-assignment]."),
        ("Noted: I will leave\nthe company in May.", "Noted: [private]."),
        ("So you will LEAVE the company, in May; good.", "So you [private]; good."),
        ("The code is zebra-4711.", "The code is [private]."),
        ("The weather in May is fine, and I want to leave.", "The weather in May is fine, and I want to leave."),
    ):
        assert private_text.others(said) == kept


def test_single_private_word_is_recognized_unless_short() -> None:
    private_text = PrivateText()
    private_text.hear("<private>Bluebird</private> <private>42 a</private> <private></private>")
    assert private_text.others("Bluebird ate 42 apples") == "[private] ate 42 apples"


def test_long_text_is_redacted_again_after_private_word() -> None:
    """Until then, the hooks and the feed get the result that the stream got."""
    private_text, text = PrivateText(), "password: hunter22 and a Zebedee7 " * 3000
    once = private_text.others(text)
    assert "hunter22" not in once
    assert private_text.others(text) is once
    private_text.hear("<private>Zebedee7</private>")
    assert "Zebedee7" not in private_text.others(text)


def test_oldest_private_words_are_forgotten() -> None:
    private_text = PrivateText()
    for number in range(1000, 1201):
        private_text.hear(f"<private>zebra-{number}</private>")
    assert private_text.others("zebra-1000 zebra-1001 zebra-1200") == "zebra-1000 [private] [private]"


def test_oldest_private_passages_are_forgotten() -> None:
    private_text = PrivateText()
    private_text.hear("<private>nobody knows about gardens</private>")
    letters = str.maketrans("0123456789", "abcdefghij")
    words = [str(number).translate(letters) for number in range(10_000, 30_010)]
    private_text.hear(f"<private>{' '.join(words)}</private>")
    assert private_text.others("nobody knows about gardens") == "nobody knows about gardens"
    assert private_text.others(" ".join(words[-3:])) == "[private]"


# --- values and truncation ---


def test_json_member_is_secret_by_name() -> None:
    word = password(_rng())
    deep = [{"name": "DB_PASSWORD", "value": word}, {"key": "plan", "value": "basic2"}]
    value = {"user": "ada", "db_password": word, "deep": deep, "n": 4, "ok": None}
    for made in (cut_value(value), discreet_value(value)):
        assert word not in json.dumps(made)
        assert made["user"] == "ada"
        assert made["deep"][1] == deep[1]
        assert (made["n"], made["ok"]) == (4, None)


def test_deep_nesting_raises_no_error() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    assert "nested too deeply" in json.dumps(discreet_value(deep))


def test_truncation_leaves_no_partial_secret() -> None:
    key = _key()
    for place in range(MAX_STRING - 160, MAX_STRING + 20, 7):
        for text in (f"{'x ' * (place // 2)}{key} end", f"{'x ' * (place // 2)}{key} end" + " y" * 40_000):
            kept = cut(text)
            assert len(kept) <= MAX_STRING
            assert key[:20] not in kept


def test_truncated_private_key_is_removed_and_counted() -> None:
    key = _pem(180)
    kept = cut(f"{'x ' * 900}{key}{' y' * 100_000}")
    assert not any(line in kept for line in key.splitlines())
    assert MAX_STRING - 40 < len(cut(f"{_pem(250)} and so on" + " z" * 30_000)) <= MAX_STRING
    assert cut("a" * 2001).endswith("[… 41 characters cut]")


# --- log lines ---


def test_log_lines_and_tracebacks_are_redacted() -> None:
    key, word, stream = _key(), password(_rng()), StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(DiscreetFilter())
    log = logging.getLogger("discreet test")
    log.addHandler(handler)
    log.propagate = False
    try:
        log.warning("calling with %s and <private>%s</private>", key, "my salary")
        log.warning("100%% of {%s}", {"password": word})
        log.warning("arguments %d do not fit", key)
        try:
            int(f"api_key={key}")
        except ValueError:
            log.exception("it failed", stack_info=True)
    finally:
        log.removeHandler(handler)
    written = stream.getvalue()
    assert key[:30] not in written
    assert word not in written
    assert "my salary" not in written
    assert "ValueError: invalid literal for int() with base 10: 'api_key=[redacted:anthropic-api-key]'" in written
    assert written.count("\n") > 6


def test_uncheckable_log_line_is_withheld() -> None:
    """The rules are files: without a free descriptor they are unreadable, and an event loop logs its errors."""
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "calling with %s", (_key(),), None, sinfo=_key())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    names.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert DiscreetFilter().filter(record)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert record.getMessage() == "(a line that could not be checked for secrets: OSError)"
    assert record.stack_info is None


def test_marks_beside_secrets_cost_linear_work() -> None:
    """Count the function calls, also those that resume a generator."""

    def calls(count: int) -> int:
        text, made = "[redacted:token] password=hunter2secret9 " * count, 0

        def count_one(_frame: FrameType, event: str, _value: object) -> None:
            nonlocal made
            made += event in {"call", "c_call"}

        before = sys.getprofile()
        sys.setprofile(count_one)
        try:
            redact(text)
        finally:
            sys.setprofile(before)
        return made

    calls(100)
    assert calls(800) < 10 * calls(100)


def test_private_words_of_long_unspaced_message() -> None:
    """The search for made words takes linear time; quadratic time would be minutes."""
    private_text = PrivateText()
    private_text.hear("<private>" * 10_000 + " the code is blue-7-heron")
    assert private_text.others("Use blue-7-heron or blue.") == f"Use {PRIVATE} or blue."


@pytest.mark.parametrize(
    "session",
    [
        "$ bw get password nas\nLaterne.5x\n$ ",
        "look:\nada@box:~$ op read op://v/db/password\nLaterne.5x\nada@box:~$ exit",
        "PS C:\\> bw get password nas\nLaterne.5x\nPS C:\\> ",
    ],
)
def test_pasted_session_loses_what_secret_commands_print(session: str) -> None:
    assert redact(session) == session.replace("Laterne.5x", "[redacted:command-result]")


def test_other_commands_of_pasted_sessions_stay() -> None:
    session = "$ git rev-parse HEAD\n1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c\n$ bw sync\nSyncing complete.\n$ "
    assert redact(session) == session


def test_values_of_sealed_groups_stay() -> None:
    values = "  user: ada\n  db_password: AgBwOkPDnLsr5tmkGhtUDiHjxrGb3VtX2HnIch\n"
    assert redact(f"encryptedData:\n{values}") == f"encryptedData:\n{values}"
    assert "AgBwOk" not in redact(f"data:\n{values}")


def test_words_in_quotes_are_a_secret() -> None:
    assert "llamas" not in redact("session({ secret: 'llamas wear pyjamas', resave: false })")
