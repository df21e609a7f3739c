"""Generated secrets in the formats of real services, in the places where people leave them.

Every secret is assembled from random characters on demand: no text in this file looks like one, so scanners do not
report it. `secret` must not be found afterwards; `text` is its context.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass

ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "-_"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"


@dataclass(frozen=True, slots=True)
class FakeSecret:
    """A secret of a format, in a text."""

    format: str
    secret: str
    text: str


def _any(rng: random.Random, alphabet: str, length: int) -> str:
    while True:
        made = "".join(rng.choice(alphabet) for _ in range(length))
        if length < 8 or any(c.isdigit() for c in made):
            return made


def _joined(*parts: str) -> str:
    return "".join(parts)


def password(rng: random.Random) -> str:
    """Return a password of a password manager or a person."""
    words = ["Winter", "tiger", "Blue", "coffee", "Rocket", "maple", "Orbit", "sunny"]
    return rng.choice(
        [
            _any(rng, ALNUM, rng.randint(10, 20)),
            _any(rng, ALNUM, 8) + rng.choice("!#$%^*+") + _any(rng, ALNUM, 6),
            rng.choice(words) + rng.choice(words) + str(rng.randint(10, 9999)) + rng.choice("!?#$"),
            rng.choice(words) + rng.choice("-_.") + rng.choice(words) + str(rng.randint(10, 999)),
        ]
    )


def _jwt(rng: random.Random) -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims: dict[str, object] = {"sub": str(rng.randint(1000, 9999)), "iat": rng.randint(10**9, 2 * 10**9)}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{_any(rng, WORD, 43)}"


def _pem(rng: random.Random, kind: str = "RSA ") -> str:
    body = _any(rng, BASE64, 64 * rng.randint(3, 24) - rng.randint(1, 40))
    lines = "\n".join(body[i : i + 64] for i in range(0, len(body), 64))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"


#: Formats of tokens that are recognizable by themselves, in any context.
TOKENS: dict[str, Callable[[random.Random], str]] = {
    "aws-access-key": lambda r: _joined("AK", "IA", _any(r, string.ascii_uppercase + "234567", 16)),
    "github-classic": lambda r: _joined("gh", r.choice("pousr"), "_", _any(r, ALNUM, 36)),
    "github-fine-grained": lambda r: _joined("github", "_pat_", _any(r, ALNUM, 22), "_", _any(r, ALNUM, 59)),
    "gitlab": lambda r: _joined("gl", "pat-", _any(r, WORD, 20)),
    "slack-bot": lambda r: _joined("xo", "xb-", str(r.randint(10**11, 10**12)), "-", str(r.randint(10**11, 10**12)),
                                   "-", _any(r, ALNUM, 24)),
    "stripe": lambda r: _joined("sk", "_live_", _any(r, ALNUM, r.choice([24, 99]))),
    "sendgrid": lambda r: _joined("SG", ".", _any(r, WORD, 22), ".", _any(r, WORD, 43)),
    "npm": lambda r: _joined("npm", "_", _any(r, ALNUM, 36)),
    "pypi": lambda r: _joined("pypi", "-AgEIcHlwaS5vcmc", _any(r, WORD, 150)),
    "openai-project": lambda r: _joined("sk", "-proj-", _any(r, WORD, 74), "T3Blbk", "FJ", _any(r, WORD, 74)),
    "openai-classic": lambda r: _joined("sk", "-", _any(r, ALNUM, 20), "T3Blbk", "FJ", _any(r, ALNUM, 20)),
    "anthropic": lambda r: _joined("sk", "-ant-api03-", _any(r, WORD, 93), "AA"),
    "google-api": lambda r: _joined("AI", "za", _any(r, WORD, 35)),
    "jwt": _jwt,
    "telegram": lambda r: _joined(str(r.randint(10**9, 9 * 10**9)), ":AA", _any(r, WORD, 33)),
    "discord": lambda r: _joined("MT", _any(r, ALNUM, 24), ".", _any(r, WORD, 6), ".", _any(r, WORD, 38)),
    "twilio": lambda r: _joined("SK", _any(r, HEX, 32)),
    "slack-webhook": lambda r: _joined("https://hooks.", "slack.com/services/T", _any(r, UPPER, 10), "/B",
                                       _any(r, UPPER, 10), "/", _any(r, ALNUM, 24)),
    "hugging-face": lambda r: _joined("hf", "_", _any(r, ALNUM, 34)),
    "groq": lambda r: _joined("gsk", "_", _any(r, ALNUM, 52)),
    "xai": lambda r: _joined("xai", "-", _any(r, ALNUM, 80)),
    "replicate": lambda r: _joined("r8", "_", _any(r, ALNUM, 37)),
    "perplexity": lambda r: _joined("pplx", "-", _any(r, ALNUM, 48)),
    "openrouter": lambda r: _joined("sk", "-or-v1-", _any(r, HEX, 64)),
    "deepseek": lambda r: _joined("sk", "-", _any(r, HEX, 32)),
    "digitalocean": lambda r: _joined("dop", "_v1_", _any(r, HEX, 64)),
    "shopify": lambda r: _joined("shp", "at_", _any(r, HEX, 32)),
    "databricks": lambda r: _joined("da", "pi", _any(r, HEX, 32)),
    "mailchimp": lambda r: _joined(_any(r, HEX, 32), "-us", str(r.randint(1, 21))),
    "google-oauth": lambda r: _joined("GOC", "SPX-", _any(r, WORD, 28)),
    "azure-client": lambda r: _joined(_any(r, ALNUM, 3), "8", "Q~", _any(r, ALNUM + "_~.-", 34)),
    "notion": lambda r: _joined("ntn", "_", _any(r, string.digits, 11), _any(r, ALNUM, 35)),
    "linear": lambda r: _joined("lin", "_api_", _any(r, ALNUM, 40)),
    "atlassian": lambda r: _joined("ATA", "TT3xFfGF0", _any(r, WORD, 170), "=", _any(r, UPPER, 8)),
    "vault": lambda r: _joined("hv", "s.", _any(r, WORD, 95)),
    "postman": lambda r: _joined("PM", "AK-", _any(r, HEX, 24), "-", _any(r, HEX, 34)),
    "doppler": lambda r: _joined("dp", ".pt.", _any(r, ALNUM, 43)),
    "docker": lambda r: _joined("dckr", "_pat_", _any(r, WORD, 27)),
    "grafana": lambda r: _joined("gl", "sa_", _any(r, ALNUM, 32), "_", _any(r, HEX, 8)),
    "tailscale": lambda r: _joined("ts", "key-auth-", _any(r, ALNUM, 17), "-", _any(r, ALNUM, 32)),
}  # fmt: skip

_TOKEN_PLACES: tuple[Callable[[str, str], str], ...] = (
    lambda s, _: f"Here is the key you need: {s}. Please keep it safe.",
    lambda s, n: f"export {n}={s}",
    lambda s, n: json.dumps({"service": "billing", n.lower(): s, "retries": 3}),
    lambda s, n: f"service:\n  {n.lower()}: {s}\n  retries: 3\n",
    lambda s, n: f"# .env\nDEBUG=1\n{n}='{s}'\nPORT=8080\n",
    lambda s, _: f'curl -sS -H "Authorization: Bearer {s}" https://api.example.com/v1/items | jq .',
    lambda s, n: f'client = Client({n.lower()}="{s}", timeout=30)',
    lambda s, _: f"2026-03-01T10:00:00Z ERROR request failed (credential={s}, status=401)",
    lambda s, n: f"https://api.example.com/v2/run?name=x&{n.lower()}={s}&page=2",
    lambda s, _: f"I tried `{s}`, but got a 403\nWhat now?",
    lambda s, _: f"- old: {s},\n- new: none\n",
    lambda s, n: f"<config><{n.lower()}>{s}</{n.lower()}></config>",
)  # fmt: skip


def _aws_pair(r: random.Random, number: int) -> tuple[str, str]:
    key_id, secret = TOKENS["aws-access-key"](r), _any(r, BASE64, 40)
    return secret, (
        f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}\nregion = eu-west-1\n",
        f"export AWS_ACCESS_KEY_ID={key_id}\nexport AWS_SECRET_ACCESS_KEY={secret}\n",
        json.dumps({"AccessKeyId": key_id, "SecretAccessKey": secret, "Status": "Active"}, indent=2),
        f"the pair is {key_id} / {secret}, region us-east-1",
        f"boto3.client('s3', aws_access_key_id='{key_id}', aws_secret_access_key='{secret}')",
    )[number % 5]


def _connection(r: random.Random, number: int) -> tuple[str, str]:
    secret = password(r).replace("#", "").replace("?", "").replace("$", "z")
    return secret, (
        f"DATABASE_URL=postgres://app:{secret}@db.internal:5432/app",
        f"mongodb+srv://admin:{secret}@cluster0.ab1cd.mongodb.net/?retryWrites=true",
        f"the cache is at redis://:{secret}@cache.internal:6379/0 now",
        f"git clone https://deploy:{secret}@git.example.com/team/repo.git",
        f'engine = create_engine("mysql+pymysql://root:{secret}@localhost/shop")',
        f"Server=tcp:db.example.net,1433;Database=shop;User ID=app;Password={secret};Encrypt=True;",
        f"amqp://guest:{secret}@rabbit:5672/%2F failed: connection refused",
        f"jdbc:postgresql://db:5432/app?user=app&password={secret}&ssl=true",
    )[number % 8]


def _assigned(r: random.Random, number: int) -> tuple[str, str]:
    secret = password(r)
    return secret, (
        f"DB_PASSWORD={secret}",
        json.dumps({"username": "ada", "password": secret}),
        f"database:\n  user: app\n  password: {secret}\n  port: 5432\n",
        f"smtp_password = '{secret}'",
        f"The admin password is {secret} and the user is root.",
        f"export PGPASSWORD='{secret}' && psql -h db -U app",
        f"deploy --user ada --password {secret} --host prod",
        f'spring.datasource.password="{secret}"',
        f"user: ada\npassword: {secret}\nPlease log in with it.",
        f"ALTER USER app WITH PASSWORD '{secret}';",
    )[number % 10]


def _pem_block(r: random.Random, number: int) -> tuple[str, str]:
    key = _pem(r, ("RSA ", "", "OPENSSH ", "EC ", "ENCRYPTED ")[number % 5])
    body = key.split("\n")[1]
    escaped = json.dumps({"private_key": key})
    texts = (key, f"cat id_rsa\n{key}\ndone", escaped, "tls:\n  key: |\n    " + key.replace("\n", "\n    "),
             "\n".join(key.split("\n")[:3]))  # fmt: skip
    return body, texts[number % 5]


def _service_account(r: random.Random, _number: int) -> tuple[str, str]:
    key = _pem(r, "")
    account = {
        "type": "service_account",
        "project_id": "demo-project-1",
        "private_key_id": _any(r, HEX, 40),
        "private_key": key + "\n",
        "client_email": "robot@demo-project-1.iam.gserviceaccount.com",
    }
    return key.split("\n")[2], json.dumps(account, indent=2)


def _azure_storage(r: random.Random, number: int) -> tuple[str, str]:
    secret = _any(r, BASE64, 86) + "=="
    return secret, (
        f"DefaultEndpointsProtocol=https;AccountName=demo;AccountKey={secret};EndpointSuffix=core.windows.net",
        f'AZURE_STORAGE_CONNECTION_STRING="DefaultEndpointsProtocol=https;AccountName=d;AccountKey={secret}"',
        f'{{"AccountName": "demo", "AccountKey": "{secret}"}}',
    )[number % 3]


def _bearer(r: random.Random, number: int) -> tuple[str, str]:
    secret = _any(r, r.choice([ALNUM, HEX, WORD]), r.choice([24, 32, 40, 64]))
    return secret, (
        f'curl -H "Authorization: Bearer {secret}" https://api.example.com/me',
        f"GET /me HTTP/1.1\nHost: api.example.com\nAuthorization: Bearer {secret}\nAccept: */*\n",
        f"headers = {{'Authorization': 'Bearer {secret}'}}",
        f"curl -X POST -H 'X-Api-Key: {secret}' https://api.example.com/v1",
        f"Authorization: token {secret}",
        f'{{"headers": {{"x-auth-token": "{secret}"}}}}',
    )[number % 6]


def _basic(r: random.Random, number: int) -> tuple[str, str]:
    word = password(r)
    encoded = base64.b64encode(f"ada:{word}".encode()).decode()
    return (encoded, f"Authorization: Basic {encoded}\n") if number % 2 else (word, f"curl -u ada:{word} https://x.io")


def _named_key(r: random.Random, number: int) -> tuple[str, str]:
    """Return a vendor's key without a recognizable format: only its variable name identifies it."""
    secret = _any(r, r.choice([ALNUM, HEX, LOWER]), r.choice([32, 40]))
    return secret, (
        f"MISTRAL_API_KEY={secret}",
        f'cohere.Client(api_key="{secret}")',
        f"client_secret: {secret}",
        json.dumps({"access_token": secret, "expires_in": 3600}),
        f"WEATHER_KEY={secret}",
        f"TWILIO_AUTH_TOKEN: '{secret}'",
        f"//registry.example.com/:_authToken={secret}",
        f"my api key is {secret}, thanks",
    )[number % 8]


IN_PLACE: dict[str, Callable[[random.Random, int], tuple[str, str]]] = {
    "aws-pair": _aws_pair,
    "connection-string": _connection,
    "password": _assigned,
    "pem": _pem_block,
    "google-service-account": _service_account,
    "azure-storage": _azure_storage,
    "bearer": _bearer,
    "basic": _basic,
    "named-key": _named_key,
}

#: The twenty counted formats.
TWENTY = (
    "aws-access-key", "aws-pair", "github-classic", "github-fine-grained", "gitlab", "slack-bot", "stripe", "sendgrid",
    "npm", "pypi", "openai-project", "anthropic", "google-api", "jwt", "telegram", "connection-string", "password",
    "pem", "azure-storage", "bearer",
)  # fmt: skip


def fake_secrets(formats: tuple[str, ...] = TWENTY, each: int = 10, seed: int = 1) -> list[FakeSecret]:
    """Return the given number of each format, the same for each seed."""
    rng = random.Random(seed)  # noqa: S311 - made-up data, the same each time
    made: list[FakeSecret] = []
    for name in formats:
        for number in range(each):
            if name in IN_PLACE:
                secret, text = IN_PLACE[name](rng, number)
            else:
                secret = TOKENS[name](rng)
                variable = f"{name.split('-')[0].upper()}_TOKEN"
                text = _TOKEN_PLACES[(number + len(made)) % len(_TOKEN_PLACES)](secret, variable)
            made.append(FakeSecret(name, secret, text))
    return made


ALL_FORMATS = (*TOKENS, *IN_PLACE)


def leaks(secret: str, text: str) -> bool:
    """Return whether the secret, or a usable part of it, is still in the text."""
    whole = secret in text or json.dumps(secret)[1:-1] in text
    half = len(secret) // 2
    return whole or (len(secret) >= 16 and (secret[:half] in text or secret[-half:] in text))
