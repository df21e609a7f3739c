"""Strings that look like secrets but are harmless: hashes, ids, images, code, configuration and prose."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from collections.abc import Callable

#: As people and programs write them; redaction must not change any.
WRITTEN = (
    # snapshots of pages, minified code, counts, and entries of tables
    '- textbox "Kennwort" [ref=e7]',
    '- textbox "Password" [active] [ref=e12]:',
    'n.session(e,"account-204")',
    "トークン数は4096でした。キーはBackspaceです。",
    'const messageKey = "5d41402abc4b2a76b9719d911017c592";',
    "wir haben das Passwort auf Wunsch gesetzt",
    "EDITOR=vim\nSSH_AUTH_SOCK=/run/user/1000/keyring/ssh\n",
    'class Token:\n    """See the standard, section 5."""',
    "tokenStart=i+1}}return",
    # what is no value after a name: options, calls, constants, ids, words of a sentence
    "gcloud secrets versions list papaya-db-password --limit=3",
    "docker build --secret id=npmrc,src=$HOME/.npmrc .",
    "Use the --username and --password options instead.",
    '$password = Read-Host -AsSecureString "Password"',
    'user = "etl", password = key_get("dwh", "etl")',
    'keyring.set_password("tally-cli", user, getpass())',
    "sed -i 's/APP_KEY=.*/APP_KEY=/' .env",
    "OPENAI_API_KEY=<your-openai-key>\nMODEL=gpt-4o-mini",
    'passwort = "HIER_EINTRAGEN"',
    "validate({ password: 'short' })",
    "signingkey = 2C17634245B0D7F0",
    "Klicken Sie auf „Passwort vergessen?“.",
    "le jeton d'accès a expiré (code 4012)",
    "User: arn:aws:iam::418273645912:user/ci-bot is not authorized",
    # Python
    "password = getpass()",
    "password = getpass.getpass('Password: ')",
    "token: str",
    "token: str | None = None",
    "def login(user: str, password: str, token: Optional[str] = None) -> bool:",
    "api_key = os.environ['OPENAI_API_KEY']",
    "api_key=os.getenv('API_KEY', '')",
    "self.token = token",
    "self._password: SecretStr = settings.db_password",
    "token = request.headers['Authorization'].removeprefix('Bearer ')",
    "headers = {'Authorization': f'Bearer {token}'}",
    "secret = secrets.token_urlsafe(32)",
    "if password != confirm_password: raise ValueError('Passwords do not match')",
    "client = Anthropic(api_key=settings.api_key.get_secret_value())",
    "tokens = tokenizer.encode(text, max_length=512, truncation=True)",
    "assert hashlib.sha256(password.encode()).hexdigest() == user.password_hash",
    "access_token = create_access_token(identity=user.id, expires_delta=timedelta(hours=1))",
    "PASSWORD_MIN_LENGTH = 12",
    "for key, value in config.items(): cache_key = f'{prefix}:{key}:{value}'",
    "password_field = page.locator('#password-input-2')",
    "SECRET_NAME = 'prod/db/credentials-2'",
    "private_key: ed25519.Ed25519PrivateKey,",
    "from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey",
    "token = match.group(1)",
    "auth = HTTPBasicAuth(username, password)",
    "TOKEN_RE = re.compile(r'[A-Za-z0-9_-]{20,64}')",
    "secret_key = Fernet.generate_key()",
    "password=password, token=token, secret=None",
    # JavaScript, TypeScript, others
    "const token = jwt.sign({ id: user.id }, process.env.JWT_SECRET, { expiresIn: '1h' });",
    "interface Credentials { username: string; password: string; apiKey?: string }",
    "const { data: session, token } = await getSession(req);",
    'const [password, setPassword] = useState("");',
    "type: 'password', autoComplete: 'current-password', placeholder: 'Enter your password'",
    '<input type="password" name="password" id="password1" required>',
    '<label for="password">Password (at least 12 characters)</label>',
    "export const AUTH_TOKEN_KEY = 'auth_token';",
    "localStorage.setItem('token', response.data.token)",
    "this.accessToken = accessToken ?? this.config.accessToken;",
    'String password = System.getenv("DB_PASSWORD");',
    'val token: String = call.request.header("X-Auth-Token")',
    'password := os.Getenv("PASSWORD")',
    "if (!crypto.timingSafeEqual(Buffer.from(token), Buffer.from(expected))) return res.sendStatus(401);",
    "let key = KeyPair::generate(&mut OsRng);",
    # SQL
    "CREATE TABLE users (id SERIAL PRIMARY KEY, password VARCHAR(255) NOT NULL, token UUID)",
    "SELECT id, password_hash, token_count FROM users WHERE token = $1 AND password = ?",
    "UPDATE accounts SET password = :password WHERE id = :id",
    "INSERT INTO sessions (user_id, token) VALUES (%s, %s)",
    # Configuration
    "DB_PASSWORD=${DB_PASSWORD}",
    "password: ${{ secrets.NPM_TOKEN }}",
    "API_KEY=your-api-key-here",
    "OPENAI_API_KEY=sk-...",
    "password: <your password>",
    "secretName: tls-cert-2024",
    "secretKeyRef: { name: db-credentials, key: password }",
    "PASSWORD=changeme",
    "max_tokens: 4096",
    '"token_type": "Bearer", "expires_in": 3600',
    '"usage": {"input_tokens": 12045, "output_tokens": 883, "cache_read_input_tokens": 10240}',
    "password_file: /run/secrets/db_password",
    "SSL_KEY_FILE=/etc/ssl/private/server.key",
    "key: 'user-profile-v2'",
    "tokenizer: bert-base-uncased",
    "token_url: https://login.example.com/oauth2/v2.0/token",
    "auth: oauth2",
    "PWD=/home/ada/projects/shop2",
    "ssh_authorized_keys: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Xv3bq8m0kq2 ada@laptop",
    "--mount=type=secret,id=npm_token",
    # Shell
    "read -s -p 'Password: ' password",
    "docker run -u 1000:1000 -e TOKEN=$TOKEN image:1.2.3",
    'curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v1/items',
    "export GITHUB_TOKEN=$(gh auth token)",
    "openssl rand -hex 32 > secret.key",
    "ssh-keygen -t ed25519 -C ada@example.com -f ~/.ssh/id_ed25519",
    "git clone ssh://git@github.com:22/ada/shop.git && git clone git@github.com:ada/shop.git",
    "kubectl create secret generic db-pass --from-file=password=./password.txt",
    "-rw------- 1 ada ada 2602 Mar  1 10:00 id_rsa",
    # URLs
    "https://example.com/reset-password?step=2&lang=en",
    "https://user@example.com/path",
    "http://localhost:8080/@vite/client",
    "https://cdn.example.com/assets/index-4f9d1c2b.js?v=1700000000",
    "postgres://$USER:$PASSWORD@localhost:5432/app",
    "https://example.com/a:b@c/d",
    "https://fonts.gstatic.com/s/inter/v13/UcCO3FwrK3iLTeHuS_fvQtMwCp50KnMw2boKoduKmMEVuLyfAZ9hiA.woff2",
    "npm:@types/node@20.11.30, eslint@^8.57.0, sk-animation-fade-in-out-loading-spinner",
    # Logs
    "2026-03-01T10:00:00.123Z INFO auth: user 4711 logged in, token refreshed in 35 ms",
    "ERROR [auth-service-7d9f8b6c5-x2x9q] invalid token: expired at 1700000000",
    "WARN password for user 'ada' expires in 14 days",
    "POST /oauth/token 200 - 12.345 ms - trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
    "fatal: Authentication failed for 'https://github.com/ada/shop.git/'",
    "sudo: 1 incorrect password attempt",
    'nginx: cannot load certificate key "/etc/ssl/key.pem": PEM_read_bio_PrivateKey() failed',
    # Prose
    "The password must be at least 12 characters long and contain a digit.",
    "Your password is stored as a bcrypt hash; the token is base64-encoded and lasts 15 minutes.",
    "Password is case-sensitive. The secret is to start early.",
    "I forgot my password: can you reset it for account 4711?",
    "Their key idea (section 3.2) is that tokens are merged pairwise; see Table 2.",
    "My password manager is 1Password, and I use YubiKey 5C for 2FA.",
    "The key is SHA-256 of the file; the pass was 30 yards; he passed 2 exams in 2024.",
    "Turn on passkeys: a passkey is safer than a password, said the author in chapter 12.",
    "Das Passwort ist falsch. Le mot de passe est incorrect. La contraseña es obligatoria.",
    "token is v2, secret is level-3, password is utf-8 encoded, key is 256-bit",
    "Bearer authentication is described in RFC 6750; basic authentication in RFC 7617.",
    "Begin with `-----BEGIN PRIVATE KEY-----` and end with `-----END PRIVATE KEY-----`.",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQ\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE4f5wg2l2hKsTeN\n-----END PUBLIC KEY-----",
    # Numbers, codes and lists that look like money, doors and wallets
    "Order 4111-2222-3333-4445 was shipped; tracking 1Z999AA10123456784, ISBN 978-3-16-148410-0, EAN 4006381333931.",
    "IBAN DE89 3704 0044 0532 0130 00, BIC COBADEFFXXX, invoice 2026-0311 over 1,250.00 EUR",
    "timestamp 1700000000000000 us, 1700000000000 ms; phone +49 30 1234567890, id 1234567812345678",
    "The building code of 2018 is strict, the zip code is 94107 and the error code is 0x80070005.",
    "Pin 13 is high; GPIO pin: 4711; the dress code is smart; the promo code is SPRING24; the area code is 030.",
    "git combination of 2 and 3; exit code: 137; country code: +49; the status code is 4041 in the fixture",
    "curl wget git vim tmux htop jq tree less make gcc gdb",
    "copy paste undo redo open close save print find replace select delete insert format view help",
    "we should walk along the river then turn left near the old mill and cross the bridge",
    "The wallet tx 0x9fc76417374aa880d4449a1f7f31ec597f00b1f6f3dd2d66f4c9c6c445836d8b was mined in block 46147.",
    "login is slow and needs caching; the login is broken and issue-4711 is about it",
    "You can log in with SSO and 2FA; log in as admin and open Settings; sign in with Google and continue",
    "otpauth:// is the scheme; the authenticator app shows six digits: see RFC 6238 for how they are made",
    "main.c:120:15: error: expected expression; tests/a.py:5432:1: E501 line too long",
    "postgres://db.internal:5432/shop?application_name=ada@example.com",
    # Tables and files
    "name,type,required\npassword,string,yes\ntoken,string,no\n",
    "| Field | Password | Token |\n|-------|----------|-------|\n| required | yes | no |\n| shown | never | once |\n",
    "model,input tokens,output tokens\nhaiku,12045,883\nopus,9921,1204\n",
    "id,password_hash,created\n1,$2b$12$abc,2026-03-01\n",
    'variable "db_password" {\n  type      = string\n  sensitive = true\n}\n',
    'variable "region" {\n  default = "eu-central-1"\n}\n',
    "password: correct\npassword: authentication\npassword: interactive\n",
    '{"password": "Passwort", "token": "Token", "login": "Anmelden", "forgot": "Passwort vergessen?"}',
    'throw new Error("actions: "+le+", token: "+D);switch(V[0]){case 1:m.push(D),p.push(P.yytext),S.push(P.yylloc)',
    "UNIQUE_SALT_ROUNDS=12; spec: pat, salt and pepper; the path is /srv/patterns-2",
    "define('WP_DEBUG', false); define('DB_HOST', 'localhost:3306'); define('TABLE_PREFIX', 'wp2_');",
    # Other languages
    "La contraseña es importante; o clave é simples; hasło jest wymagane; heslo je povinné; lösenordet är fel.",
    "Пароль должен содержать 8 символов. 密码必须包含8个字符。 비밀번호는 8자 이상이어야 합니다.",
    "パスワードを入力してください、8文字以上。 كلمة المرور مطلوبة. Пароль: минимум 8 символов",
)

_Maker = Callable[[random.Random], str]


def _hex(rng: random.Random, size: int) -> str:
    return rng.randbytes(size).hex()


def _base64(rng: random.Random, size: int) -> str:
    return base64.b64encode(rng.randbytes(size)).decode()


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _minified(rng: random.Random) -> str:
    names = [rng.choice("abcdefghijklmnopqrstuvwxyz") + rng.choice("abcdefgxyz01234") for _ in range(8)]
    a, b, c, d, e, f, g, h = names
    return (
        f"function {a}({b},{c}){{return {b}.{d}?{b}.{d}({c}.token,{e}.key):void 0}}var {f}=s.{g}ElementsByTagNameNS9,"
        f"{h}={{key:{a},secret:!0,token:{b}.token,password:{c}.value}};!function(){{{a}.auth={f}({h})}}();"
    )


_PLAIN_WORDS = (
    "apple river stone light paper garden window bridge market summer winter table chair music dance green yellow the "
    "and with from into over under river's login password token code safe door open closed 12 2026 v2 reads writes"
).split()

MADE: dict[str, _Maker] = {
    "git hash": lambda r: f"{_hex(r, 20)} fix the login form",
    "short hash": lambda r: f"index {_hex(r, 4)[:7]}..{_hex(r, 4)[:7]} 100644",
    "git log": lambda r: f"commit {_hex(r, 20)}\nAuthor: Ada <ada@example.com>\n\n    Rotate the token key\n",
    "sha256": lambda r: f"{hashlib.sha256(r.randbytes(8)).hexdigest()}  dist/app-1.2.3.tar.gz",
    "docker digest": lambda r: f"image: python@sha256:{_hex(r, 32)}",
    "md5": lambda r: f'ETag: "{_hex(r, 16)}"',
    "uuid": _uuid,
    "uuid in a log": lambda r: f"request_id={_uuid(r)} user_id={_uuid(r)} status=200",
    "uuid in json": lambda r: json.dumps({"id": _uuid(r), "session_id": _uuid(r), "tokens": r.randint(1, 9999)}),
    "base64 image": lambda r: f"data:image/png;base64,iVBORw0KGgo{_base64(r, r.randint(100, 1400))}",
    "bare base64": lambda r: _base64(r, r.randint(30, 1500)),
    "base64 lines": lambda r: "\n".join(_base64(r, 57) for _ in range(12)),
    "npm lock": lambda r: f'"node_modules/a": {{"version": "1.2.3", "integrity": "sha512-{_base64(r, 64)}"}}',
    "pip lock": lambda r: f"requests==2.32.3 \\\n    --hash=sha256:{_hex(r, 32)} \\\n    --hash=sha256:{_hex(r, 32)}",
    "cargo lock": lambda r: f'[[package]]\nname = "rand"\nchecksum = "{_hex(r, 32)}"',
    "go sum": lambda r: f"golang.org/x/crypto v0.21.0 h1:{_base64(r, 32)}",
    "yarn lock": lambda r: f'  resolved "https://registry.yarnpkg.com/a/-/a-1.0.0.tgz#{_hex(r, 20)}"',
    "minified": _minified,
    "css": lambda r: f".sk-circle-{r.randint(1, 99)}{{color:#{_hex(r, 3)};background:url(a-{_hex(r, 8)}.png)}}",
    "asset": lambda r: f'<script src="/static/js/main.{_hex(r, 10)}.chunk.js"></script>',
    "blob url": lambda r: f"https://example.com/blob/{_hex(r, 20)}/token_{r.randint(1, 99)}.py#L{r.randint(1, 500)}",
    "trace": lambda r: f"traceparent: 00-{_hex(r, 16)}-{_hex(r, 8)}-01",
    "hexdump": lambda r: f"{r.randint(0, 9999):08x}  {r.randbytes(16).hex(' ')}  |................|",
    "ssh public key": lambda r: f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ{_base64(r, 250)} ada@laptop",
    "fingerprint": lambda r: f"256 SHA256:{_base64(r, 32).rstrip('=')} ada@laptop (ED25519)",
    "numbers": lambda r: ", ".join(f"{r.random():.6f}" for _ in range(20)),
    "timestamp": lambda r: f"{r.randint(10**9, 2 * 10**9)}:{_hex(r, 6)} tokens={r.randint(1, 9999)} cost=0.41",
    "ulid": lambda r: "01HQ" + "".join(r.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(22)),
    "object id": lambda r: f'{{"_id": {{"$oid": "{_hex(r, 12)}"}}, "key": "user:{r.randint(1, 9999)}:profile"}}',
    "model": lambda r: f"model=claude-opus-4-2026{r.randint(1, 12):02d}01 max_tokens={r.randint(1, 9)}000 tool=toolu_01"
    + "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz123456789") for _ in range(22)),
    "notebook": lambda r: json.dumps({"outputs": [{"data": {"image/png": _base64(r, 900)}}], "execution_count": 3}),
    "csv": lambda r: f"{r.randint(1, 999)},Ada,{_uuid(r)},2026-03-01,{r.random():.4f},token_{r.randint(1, 9)}",
    "microseconds": lambda r: f"at={r.randint(16, 18)}{r.randint(10**13, 10**14 - 1)} seq={r.randint(10**15, 10**16 - 1)}",
    "parcel": lambda r: f"parcel {r.randint(10**11, 10**12 - 1)}, order {r.randint(100, 999)}-{r.randint(10**6, 10**7 - 1)}",
    "phone": lambda r: f"call +{r.randint(1, 99)} {r.randint(100, 999)} {r.randint(1000, 9999)} {r.randint(1000, 9999)}",
    "iban": lambda r: f"IBAN DE{r.randint(10, 99)} " + " ".join(str(r.randint(1000, 9999)) for _ in range(4)) + " 00",
    "snowflake": lambda r: f"https://chat.example.com/channels/{r.randint(10**17, 10**18)}/{r.randint(10**18, 10**19)}",
    "price list": lambda r: "sku,name,price\n" + "".join(f"{_hex(r, 4)},item {n},{r.randint(1, 99)}.50\n" for n in range(5)),
    "usage table": lambda r: "model | tokens | cost\n--- | --- | ---\n" + f"haiku | {r.randint(1, 99999)} | 0.{r.randint(10, 99)}\n",
    "transaction": lambda r: f"tx 0x{_hex(r, 32)} from 0x{_hex(r, 20)} to 0x{_hex(r, 20)} gas {r.randint(21000, 99999)}",
    "compiler": lambda r: f"src/a{r.randint(1, 9)}.c:{r.randint(1000, 9999)}:{r.randint(1, 80)}: warning: unused variable 'x{r.randint(1, 9)}'",
    "keywords": lambda r: " ".join(r.choice(_PLAIN_WORDS) for _ in range(r.randint(5, 30))),
    "assembly": lambda r: f"  4005{r.randint(10, 99)}:\t48 89 e5 \tmov %rsp,%rbp ; 0x{_hex(r, 8)}",
}  # fmt: skip


def harmless_strings(count: int = 1000, seed: int = 1) -> list[str]:
    """Return harmless strings: all fixed ones from above, then generated ones of each kind in turn."""
    rng = random.Random(seed)  # noqa: S311 - made-up data, the same each time
    makers = list(MADE.values())
    made = [makers[number % len(makers)](rng) for number in range(max(0, count - len(WRITTEN)))]
    return [*WRITTEN, *made][:count]


#: Repeated many thousand times, these make a careless pattern backtrack for ever.
BACKTRACKING_BAIT = (
    "password=", "password: ", "key:", "secret_", "eyJ", "://a:", "-----BEGIN PRIVATE KEY-----", "AKIA" + "A" * 16,
    "PuTTY-User-Key-File-2", "authorization: ", "<private>", "</private>", "a1", "sk-", "sk-a-", "mysql -p", "\\n",
    "pwd:'", "name: password value: ", "M" * 24 + ".", "1234567890:", 'variable "password" { ', "a,password\n",
    "a | token\n", "seed copper ", "seed copper\n", "4111 ", "4111", "WIFI:a;", "login is a and ", "login for ", "net use ",
    "-----END PRIVATE KEY-----", "A" * 64 + "\n", "code for the ", "door code ", "private key ", "k\u200b", "\u200b",
    "postgres://a:b/", "getConnection('", "echo a:", " -u a%", "otp: abcd ", "otpauth://a?", "password from a ",
    "PIN for a", "密码是", "mot de passe ", "a:5432:b:c:", "a:$6$", "K" * 51, "<password> ", "Unseal Key 1: ",
    "wifi key ", "token on the ", "set password to ", "password: ab cd ", "le mot de passe a b ",
)  # fmt: skip
