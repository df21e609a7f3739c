"""Generated secrets in contexts that no rule was written for: the held-out set, which is counted and not inspected.

It was written before the rules that it measures. A rule is tuned on `tests/tuning_secrets.py`; of this set only the
recall is reported, so that it estimates the recall for unknown secrets. No value is a real secret: each is random.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable

from tests.fake_secrets import ALNUM, BASE64, HEX, LOWER, WORD, FakeSecret

Maker = Callable[[random.Random], tuple[str, str]]

BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
SIGNS = "!#$%&*+-=?@^_~"
#: From the list of BIP 39.
SEED_WORDS = (
    "acoustic badge canyon dawn elbow fabric gadget hawk icon jaguar kangaroo lemon mango nephew oblige paddle quarter "
    "raccoon salmon tackle umbrella vacuum walnut yellow zebra about bacon cactus damage eager fame gallery half idle "
    "jazz kitten label magnet napkin oak panda quiz radar saddle talent unfold valley wagon wisdom glory crisp tunnel"
).split()
NAMES = ("mara.lindqvist", "j.okafor", "svc-backup", "pieter", "hr_admin", "nkemelu", "root", "tomasz.w")


def some(rng: random.Random, alphabet: str, length: int) -> str:
    """Return random characters, with at least one digit if the alphabet has digits."""
    while True:
        made = "".join(rng.choice(alphabet) for _ in range(length))
        if length < 6 or not any(c.isdigit() for c in alphabet) or any(c.isdigit() for c in made):
            return made


def chosen(rng: random.Random) -> str:
    """Return a password as people choose them: with a digit and often a punctuation mark."""
    first = rng.choice(["Kestrel", "Harbour", "Lantern", "pudding", "Granite", "meadow", "Sparrow", "copper"])
    last = rng.choice(["Window", "garden", "Biscuit", "thunder", "Violin", "castle"])
    return rng.choice(
        [
            f"{first}{rng.choice('-_.!')}{last}{rng.choice('-_.!')}{rng.randint(10, 999)}",
            f"{first}{rng.randint(1950, 2029)}{rng.choice('!$#*')}",
            f"{last}{rng.randint(10, 99)}{first}",
            some(rng, ALNUM, 6) + rng.choice("!#*+") + some(rng, ALNUM, 6),
        ]
    )


def plain_words(rng: random.Random) -> str:
    """Return a password of letters only."""
    first = ["kestrel", "harbour", "lantern", "pudding", "granite", "meadow", "sparrow", "copper"]
    return rng.choice(first) + rng.choice(["window", "garden", "biscuit", "thunder", "violin", "castle"])


def card_number(rng: random.Random, prefix: str, length: int) -> str:
    """Return digits that end with Luhn's check digit."""
    digits = prefix + "".join(rng.choice("0123456789") for _ in range(length - len(prefix) - 1))
    doubled = [int(d) * (2 if at % 2 == 0 else 1) for at, d in enumerate(reversed(digits))]
    total = sum(n - 9 if n > 9 else n for n in doubled)
    return digits + str(-total % 10)


def fours(number: str, sign: str = " ") -> str:
    return sign.join(number[at : at + 4] for at in range(0, len(number), 4))


def pem_lines(rng: random.Random, lines: int = 14) -> list[str]:
    return ["".join(rng.choice(BASE64) for _ in range(64)) for _ in range(lines)]


def phrase(rng: random.Random, length: int = 12) -> list[str]:
    return rng.sample(SEED_WORDS, length)


def _pem(rng: random.Random, kind: str = "") -> str:
    return "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *pem_lines(rng), f"-----END {kind}PRIVATE KEY-----"])


def _with(secret: str, text: str) -> tuple[str, str]:
    return secret, text.replace("@@", secret)


def _pem_tail(r: random.Random) -> tuple[str, str]:
    lines = pem_lines(r, 6)
    return lines[3], "\n".join(
        ["$ tail -n 7 server.pem", *lines, some(r, BASE64, 30) + "==", "-----END RSA PRIVATE KEY-----"]
    )


def _pem_base64(r: random.Random) -> tuple[str, str]:
    body = base64.b64encode(_pem(r, "RSA ").encode()).decode()
    return body[100:200], f"SSH_KEY_B64={body}"


def _jwk(r: random.Random) -> tuple[str, str]:
    secret = some(r, WORD, 43)
    key = {"kty": "EC", "crv": "P-256", "x": some(r, WORD, 43), "y": some(r, WORD, 43), "d": secret}
    return secret, json.dumps(key)


def _tls_secret(r: random.Random) -> tuple[str, str]:
    body = base64.b64encode(_pem(r, "EC ").encode()).decode()
    return (
        body[60:160],
        f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: shop-tls\ntype: kubernetes.io/tls\ndata:\n  tls.crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t\n  tls.key: {body}\n",
    )


def _opaque_secret(r: random.Random) -> tuple[str, str]:
    value = base64.b64encode(chosen(r).encode()).decode()
    return (
        value,
        f"kind: Secret\napiVersion: v1\ntype: Opaque\nmetadata:\n  name: mailer\ndata:\n  smtp-password: {value}\n",
    )


def _seed_line(r: random.Random) -> tuple[str, str]:
    words = " ".join(phrase(r))
    return words, f"The recovery phrase of my hardware wallet, in case the house burns down: {words}"


def _seed_numbered(r: random.Random) -> tuple[str, str]:
    words = phrase(r)
    return words[5], "Seed words\n" + "\n".join(
        f"{at}. {word}" for at, word in enumerate(words, 1)
    ) + "\nKeep the paper safe."


def _seed_long(r: random.Random) -> tuple[str, str]:
    words = " ".join(phrase(r, 24))
    return words, f'const wallet = ethers.Wallet.fromPhrase("{words}");'


def _seed_env(r: random.Random) -> tuple[str, str]:
    words = " ".join(phrase(r))
    return words, f'NETWORK=sepolia\nMNEMONIC="{words}"\nINFURA=1\n'


def _csv(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return (
        secret,
        f"name,url,username,password,note\nMail,https://mail.example.com,{r.choice(NAMES)},{secret},\nBank,https://bank.example.org,pieter,{chosen(r)},joint\n",
    )


def _csv_semicolon(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"Benutzer;Passwort;Abteilung\n{r.choice(NAMES)};{secret};Vertrieb\n"


def _table(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return (
        secret,
        f"| Host | User | Password |\n|------|------|----------|\n| nas | {r.choice(NAMES)} | {secret} |\n| router | admin | {chosen(r)} |\n",
    )


def _table_psql(r: random.Random) -> tuple[str, str]:
    secret = some(r, ALNUM, 40)
    return (
        secret,
        f" id | owner  |                  api_token\n----+--------+------------------------------------------\n  1 | pieter | {secret}\n(1 row)\n",
    )


def _tabs(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"Service\tLogin\tPasswort\nVPN\t{r.choice(NAMES)}\t{secret}\n"


def _shadow(r: random.Random) -> tuple[str, str]:
    digest = some(r, ALNUM + "./", 86)
    return digest, f"$ sudo getent shadow deploy\ndeploy:$6${some(r, ALNUM, 16)}${digest}:19802:0:99999:7:::\n"


def _shadow_yescrypt(r: random.Random) -> tuple[str, str]:
    digest = some(r, ALNUM + "./", 43)
    return (
        digest,
        f"daemon:*:19700:0:99999:7:::\nmara:$y$j9T${some(r, ALNUM + './', 22)}${digest}:19911:0:99999:7:::\nsshd:!:19700::::::\n",
    )


def _htpasswd(r: random.Random) -> tuple[str, str]:
    digest = some(r, ALNUM + "./", 22)
    return digest, f"cat /etc/nginx/.htpasswd\nmara:$apr1${some(r, ALNUM, 8)}${digest}\n"


def _zero_width(r: random.Random) -> tuple[str, str]:
    tail = some(r, ALNUM, 36)
    return tail[20:], f"the token is ghp_{tail[:12]}\u200b{tail[12:]}, copied from the wiki"


def _zero_width_card(r: random.Random) -> tuple[str, str]:
    number = card_number(r, "4", 16)
    return number[8:], f"card {number[:8]}\u200d{number[8:]} exp 09/29"


def _kubeconfig(r: random.Random) -> tuple[str, str]:
    body = base64.b64encode(_pem(r, "RSA ").encode()).decode()
    return (
        body[80:200],
        f"users:\n- name: admin@prod\n  user:\n    client-certificate-data: LS0tLS1CRUdJTg==\n    client-key-data: {body}\n",
    )


def _docker_auth(r: random.Random) -> tuple[str, str]:
    value = base64.b64encode(f"mara:{chosen(r)}".encode()).decode()
    return value, json.dumps({"auths": {"registry.example.net": {"auth": value}}}, indent=1)


def _wireguard(r: random.Random) -> tuple[str, str]:
    key = some(r, BASE64, 43) + "="
    return (
        key,
        f"[Interface]\nPrivateKey = {key}\nAddress = 10.8.0.2/24\n\n[Peer]\nPublicKey = {some(r, BASE64, 43)}=\n",
    )


def _terraform(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return (
        secret,
        f'variable "master_password" {{\n  type        = string\n  description = "for the cluster"\n  default     = "{secret}"\n}}\n',
    )


def _tfvars(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f'region = "eu-central-1"\nrds_password       = "{secret}"\n'


def _terraform_sensitive(r: random.Random) -> tuple[str, str]:
    secret = some(r, ALNUM, 32)
    return secret, f'variable "datadog_api_key" {{\n  sensitive = true\n  default = "{secret}"\n}}'


def _django(r: random.Random) -> tuple[str, str]:
    secret = some(r, LOWER + "!@#$%^&*(-_=+)", 50).replace("\\", "a")
    return secret[20:], f"DEBUG = True\n# keep it safe\nSECRET_KEY = 'django-insecure-{secret}'\nALLOWED_HOSTS = []\n"


def _django_plain(r: random.Random) -> tuple[str, str]:
    secret = some(r, LOWER + "!@#$%^&*(-_=+)", 50)
    return secret, f'SECRET_KEY = "{secret}"\nROOT_URLCONF = "shop.urls"\n'


def _pgpass(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"# ~/.pgpass\ndb.internal.example.net:5432:*:reporting:{secret}\n"


def _otpauth(r: random.Random) -> tuple[str, str]:
    secret = some(r, BASE32, 32)
    return secret, f"otpauth://totp/Example:mara@example.org?secret={secret}&issuer=Example&digits=6"


def _otp_words(r: random.Random) -> tuple[str, str]:
    secret = some(r, BASE32, 16)
    shown = fours(secret, " ")
    return shown, f"Can't scan the code? Enter this setup key in your authenticator app: {shown}"


def _ether(r: random.Random) -> tuple[str, str]:
    key = some(r, HEX, 64)
    return key, f"module.exports = {{ networks: {{ goerli: {{ url: rpc, accounts: ['0x{key}'] }} }} }};"


def _ether_env(r: random.Random) -> tuple[str, str]:
    key = some(r, HEX, 64)
    return key, f"DEPLOYER_PRIVATE_KEY=0x{key}\n"


def _ether_prose(r: random.Random) -> tuple[str, str]:
    key = some(r, HEX, 64)
    return key, f"I imported the account with the private key 0x{key} into MetaMask yesterday."


def _azure_devops(r: random.Random) -> tuple[str, str]:
    token = some(r, LOWER[:26] + "234567", 52)
    return token, f"git clone https://pieter:{token}@dev.azure.com/example/_git/shop"


def _azure_devops_env(r: random.Random) -> tuple[str, str]:
    token = some(r, LOWER[:26] + "234567", 52)
    return token, f"##vso task\n  env:\n    AZURE_DEVOPS_EXT_PAT: {token}\n"


def _azure_devops_new(r: random.Random) -> tuple[str, str]:
    token = some(r, ALNUM, 75) + "AZDO" + some(r, ALNUM, 5)
    return token, f"echo {token} | az devops login --organization https://dev.azure.com/example"


def _url_slash(r: random.Random) -> tuple[str, str]:
    secret = f"{some(r, ALNUM, 7)}/{some(r, ALNUM, 8)}"
    return secret, f"SQLALCHEMY_DATABASE_URI = 'postgresql://shop:{secret}@10.0.4.7:5432/shop'"


def _url_slash_prose(r: random.Random) -> tuple[str, str]:
    secret = f"{some(r, ALNUM, 5)}/{some(r, ALNUM, 5)}/{some(r, ALNUM, 3)}"
    return secret, f"it connects with mongodb://root:{secret}@mongo-0.mongo:27017/admin and then hangs"


def _login_pair(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"the login for the supplier portal is {r.choice(NAMES)} and {secret}, ask me if it expires"


def _login_slash(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"Credentials for staging: {r.choice(NAMES)} / {secret}"


def _login_user(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"user {r.choice(NAMES)}, password {secret}. It's the same on both machines."


def _log_in_with(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"You can log in with {r.choice(NAMES)}@example.org and {secret} until Friday."


def _wifi(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"Guests ask for the wifi: network Kaminzimmer, password is {secret}"


def _wifi_qr(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f"WIFI:T:WPA;S:Kaminzimmer;P:{secret};;"


def _wpa(r: random.Random) -> tuple[str, str]:
    secret = chosen(r)
    return secret, f'network={{\n\tssid="Kaminzimmer"\n\tpsk="{secret}"\n}}\n'


HELD_OUT: dict[str, Maker] = {
    # our own
    "sprite url": lambda r: _with(some(r, WORD, 43), "bridge listening on http://127.0.0.1:8080/login?token=@@"),
    "sprite token file": lambda r: _with(some(r, WORD, 43), "$ cat .os/run/token\n@@\n"),
    "sprite setting": lambda r: _with(some(r, WORD, 43), "SPRITE_TOKEN=@@ python -m sprite serve --workspace w"),
    "bridge person": lambda r: _with(some(r, WORD, 43), "her token for programs: bridge-person-@@"),
    "vm token": lambda r: _with(some(r, WORD, 43), "ANTHROPIC_AUTH_TOKEN is sprite-@@ inside the VM"),
    "login link": lambda r: _with(some(r, WORD, 43), "Send Ada this: https://agents.example.org/login?token=@@ (one hour)"),
    # keys and their files
    "pem tail": _pem_tail,
    "pem base64": _pem_base64,
    "tls secret": _tls_secret,
    "opaque secret": _opaque_secret,
    "kubeconfig": _kubeconfig,
    "docker auth": _docker_auth,
    "wireguard": _wireguard,
    "age": lambda r: _with(some(r, BASE32[:26] + "023456789", 58), "# created: 2026-02-03\nAGE-SECRET-KEY-1@@\n"),
    "jwk": _jwk,
    # systems
    "shadow": _shadow,
    "shadow yescrypt": _shadow_yescrypt,
    "htpasswd": _htpasswd,
    "pgpass": _pgpass,
    "pgpass line": lambda r: _with(chosen(r), "localhost:5432:shop:shop:@@"),
    "mycnf": lambda r: _with(chosen(r), "[client]\nuser=backup\npassword=@@\nhost=10.2.0.9\n"),
    "netrc": lambda r: _with(chosen(r), "machine ftp.example.net\n  login pieter\n  password @@\n"),
    "git credentials": lambda r: _with(some(r, ALNUM, 40), "https://pieter:@@@git.example.org\n"),
    "otpauth": _otpauth,
    "otp setup key": _otp_words,
    "wifi qr": _wifi_qr,
    "wpa supplicant": _wpa,
    "wifi": _wifi,
    "cisco": lambda r: _with(chosen(r), "username netops privilege 15 password 0 @@"),
    "ldap": lambda r: _with(chosen(r), "bindDN: cn=reader,dc=example,dc=org\nbindPassword: @@\n"),
    "ansible": lambda r: _with(chosen(r), "[web]\nweb1 ansible_host=10.0.0.4 ansible_user=deploy ansible_become_pass=@@\n"),
    "unattend": lambda r: _with(chosen(r), "<Password>\n  <Value>@@</Value>\n  <PlainText>true</PlainText>\n</Password>"),
    "net use": lambda r: _with(chosen(r), "net use Z: \\\\nas\\photos /user:mara @@"),
    "useradd": lambda r: _with(chosen(r), "echo 'deploy:@@' | sudo chpasswd"),
    "openssl": lambda r: _with(chosen(r), "openssl enc -d -aes-256-cbc -in b.enc -pass pass:@@"),
    "zip": lambda r: _with(chosen(r), "7z x backup.7z -p@@ -o/tmp/out"),
    "smbclient": lambda r: _with(chosen(r), "smbclient //nas/photos -U mara%@@ -c ls"),
    "pssession": lambda r: _with(chosen(r), "$pw = ConvertTo-SecureString '@@' -AsPlainText -Force"),
    # money
    "visa": lambda r: _with(fours(card_number(r, "4", 16)), "please pay the hotel with @@, expires 04/29"),
    "visa bare": lambda r: _with(card_number(r, "4", 16), '{"pan": "@@", "exp": "0429"}'),
    "mastercard": lambda r: _with(fours(card_number(r, "54", 16), "-"), "Mastercard @@ valid thru 11/28"),
    "amex": lambda r: _with(card_number(r, "37", 15), "my corporate amex is @@"),
    "discover": lambda r: _with(fours(card_number(r, "6011", 16)), "Number: @@\nName: M Lindqvist"),
    "maestro": lambda r: _with(card_number(r, "2221", 16), "card_number=@@&amount=14.00"),
    "cvv": lambda r: _with(str(r.randint(101, 998)), f"card {fours(card_number(r, '4', 16))} 04/29 cvv @@"),
    "card zero width": _zero_width_card,
    "seed": _seed_line,
    "seed numbered": _seed_numbered,
    "seed long": _seed_long,
    "seed env": _seed_env,
    "ether hardhat": _ether,
    "ether env": _ether_env,
    "ether prose": _ether_prose,
    "bitcoin wif": lambda r: _with("K" + some(r, BASE58, 51), "importprivkey @@ cold false"),
    "xprv": lambda r: _with("xprv9" + some(r, BASE58, 106), "the account's key is @@"),
    # clouds and infrastructure
    "terraform": _terraform,
    "tfvars": _tfvars,
    "terraform sensitive": _terraform_sensitive,
    "azure devops url": _azure_devops,
    "azure devops env": _azure_devops_env,
    "azure devops new": _azure_devops_new,
    "azure sas": lambda r: _with(some(r, BASE64, 43).replace("+", "%2B").replace("/", "%2F") + "%3D", "https://acct.blob.core.windows.net/c/f.zip?sv=2023-11-03&se=2026-12-01&sr=b&sp=r&sig=@@"),
    "aws sts": lambda r: _with(some(r, BASE64, 300), '"SessionToken": "@@", "Expiration": "2026-04-01T00:00:00Z"'),
    "presigned": lambda r: _with(some(r, HEX, 64), "https://b.s3.amazonaws.com/k?X-Amz-Date=20260301T000000Z&X-Amz-Signature=@@"),
    "cloudflare": lambda r: _with(some(r, WORD, 40), "CLOUDFLARE_API_TOKEN=@@ wrangler deploy"),
    "heroku": lambda r: _with("-".join(some(r, HEX, n) for n in (8, 4, 4, 4, 12)), "export HEROKU_API_KEY=@@"),
    "sentry dsn": lambda r: _with(some(r, HEX, 32), "SENTRY_AUTH_TOKEN='@@'"),
    "helm set": lambda r: _with(chosen(r), "helm upgrade pg bitnami/postgresql --set auth.postgresPassword=@@"),
    "docker env": lambda r: _with(chosen(r), "docker run -d -e MARIADB_ROOT_PASSWORD=@@ -p 3306:3306 mariadb:11"),
    "compose": lambda r: _with(chosen(r), "services:\n  db:\n    image: postgres:16\n    environment:\n      POSTGRES_PASSWORD: @@\n"),
    "actions": lambda r: _with(some(r, ALNUM, 36), "gh secret set NPM_TOKEN --body npm_@@"),
    "vault": lambda r: _with(some(r, ALNUM, 24), "Unseal Key 1: @@/abc+=\nInitial Root Token: hvs.x"),
    # code
    "django": _django,
    "django plain": _django_plain,
    "flask": lambda r: _with(some(r, HEX, 48), "app.secret_key = b'@@'"),
    "rails": lambda r: _with(some(r, HEX, 128), "production:\n  secret_key_base: @@\n"),
    "laravel": lambda r: _with(some(r, BASE64, 43) + "=", "APP_KEY=base64:@@\n"),
    "spring": lambda r: _with(chosen(r), "spring.datasource.username=shop\nspring.datasource.password=@@\n"),
    "php": lambda r: _with(chosen(r), "define('DB_PASSWORD', '@@');"),
    "wordpress salt": lambda r: _with(some(r, ALNUM + SIGNS, 64), "define('AUTH_KEY',         '@@');"),
    "java": lambda r: _with(chosen(r), 'private static final String PASSWORD = "@@";'),
    "go": lambda r: _with(chosen(r), 'cfg := pq.Config{User: "shop", Password: "@@"}'),
    "csharp": lambda r: _with(chosen(r), '"ConnectionStrings": {"Main": "Data Source=db;User Id=sa;Password=@@;"}'),
    "ruby": lambda r: _with(chosen(r), "ActiveRecord::Base.establish_connection(adapter: 'mysql2', password: '@@')"),
    "kotlin": lambda r: _with(some(r, ALNUM, 32), 'const val MAPS_API_KEY = "@@"'),
    "jdbc": lambda r: _with(chosen(r), 'DriverManager.getConnection("jdbc:mysql://db/shop", "shop", "@@")'),
    "paramiko": lambda r: _with(chosen(r), "ssh.connect('10.1.1.9', username='mara', password='@@')"),
    "smtplib": lambda r: _with(chosen(r), "s.login('mara@example.org', '@@')"),
    "sql": lambda r: _with(chosen(r), "CREATE ROLE reporting LOGIN PASSWORD '@@';"),
    "mysql set": lambda r: _with(chosen(r), "SET PASSWORD FOR 'shop'@'%' = '@@';"),
    "insert": lambda r: _with(chosen(r), "INSERT INTO users (name, password) VALUES ('mara', '@@');"),
    "url slash": _url_slash,
    "url slash prose": _url_slash_prose,
    "url query": lambda r: _with(some(r, ALNUM, 32), "GET /v2/geo?city=Ulm&appid=9&access_token=@@ HTTP/1.1"),
    "set-cookie": lambda r: _with(some(r, WORD, 40), "Set-Cookie: sessionid=@@; HttpOnly; Path=/"),
    "json camel": lambda r: _with(some(r, BASE64, 44), '{"clientId":"9","clientSecret":"@@"}'),
    "xml": lambda r: _with(chosen(r), '<add key="SmtpPassword" value="@@" />'),
    "zero width": _zero_width,
    # tables
    "csv": _csv,
    "csv semicolon": _csv_semicolon,
    "table": _table,
    "psql": _table_psql,
    "tabs": _tabs,
    # people
    "login pair": _login_pair,
    "login slash": _login_slash,
    "login user": _login_user,
    "log in with": _log_in_with,
    "letters": lambda r: _with(plain_words(r), "username: mara\npassword: @@\n"),
    "letters said": lambda r: _with(plain_words(r), "By the way, the password is: @@"),
    "letters quoted": lambda r: _with(plain_words(r), 'My NAS password is "@@", please mount it.'),
    "pin": lambda r: _with(str(r.randint(1001, 9899)), "the PIN of my bank card is @@, but do not use it"),
    "door": lambda r: _with(str(r.randint(1001, 9899)), "The door code is @@, second floor on the left."),
    "alarm": lambda r: _with(str(r.randint(100001, 989999)), "alarm code: @@ (then press #)"),
    "safe": lambda r: _with("-".join(str(r.randint(10, 98)) for _ in range(3)), "The combination of the safe is @@."),
    "new password": lambda r: _with(chosen(r), "I changed the router's password to @@ this morning"),
    "old password": lambda r: _with(chosen(r), "it was @@ before, that's my old password"),
    "use this": lambda r: _with(chosen(r), "log in as admin with the password @@ and check the logs"),
    "api key said": lambda r: _with(some(r, ALNUM, 32), "here's the API key for the weather service: @@"),
    "german": lambda r: _with(chosen(r), "Das Passwort für das WLAN ist @@, bitte merken."),
    "german letters": lambda r: _with(plain_words(r), "Passwort: @@"),
    "french": lambda r: _with(chosen(r), "Le mot de passe du serveur est @@"),
    "french sign": lambda r: _with(chosen(r), "Mot de passe : @@"),
    "spanish": lambda r: _with(chosen(r), "La contraseña del router es @@."),
    "portuguese": lambda r: _with(chosen(r), "usuario: pieter\nsenha: @@"),
    "italian": lambda r: _with(chosen(r), "La password di rete è @@, la parola d'ordine invece è libera"),
    "dutch": lambda r: _with(chosen(r), "Wachtwoord: @@"),
    "polish": lambda r: _with(chosen(r), "hasło: @@"),
    "russian": lambda r: _with(chosen(r), "Пароль от почты: @@"),
    "chinese": lambda r: _with(chosen(r), "数据库密码：@@"),
    "japanese": lambda r: _with(chosen(r), "パスワードは @@ です。"),
    "korean": lambda r: _with(chosen(r), "비밀번호: @@"),
    "turkish": lambda r: _with(chosen(r), "şifre: @@"),
    "czech": lambda r: _with(chosen(r), "heslo = @@"),
    "swedish": lambda r: _with(chosen(r), "Lösenord: @@"),
}  # fmt: skip


def heldout_secrets(each: int = 3, seed: int = 1) -> list[FakeSecret]:
    """Return the given number of each, the same for each seed."""
    rng = random.Random(seed)  # noqa: S311 - made-up data, the same each time
    return [FakeSecret(name, *made(rng)) for name, made in HELD_OUT.items() for _ in range(each)]
