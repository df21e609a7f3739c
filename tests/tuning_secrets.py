"""Generated secrets in contexts for tuning the rules; `tests/heldout_secrets.py` measures how well they generalize."""

from __future__ import annotations

import base64
import json
import random

from tests.fake_secrets import ALNUM, BASE64, HEX, LOWER, WORD, FakeSecret, password
from tests.heldout_secrets import BASE32, BASE58, Maker, card_number, fours, pem_lines, phrase, plain_words, some


def _with(secret: str, text: str) -> tuple[str, str]:
    return secret, text.replace("@@", secret)


def _pem_tail(r: random.Random) -> tuple[str, str]:
    lines = pem_lines(r, 9)
    return lines[4], "   12\t" + "\n   13\t".join([*lines, some(r, BASE64, 24), "-----END PRIVATE KEY-----"])


def _tls(r: random.Random) -> tuple[str, str]:
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *pem_lines(r), "-----END PRIVATE KEY-----", ""])
    body = base64.b64encode(pem.encode()).decode()
    return body[50:150], json.dumps({"kind": "Secret", "data": {"tls.crt": "LS0tLS1CRUdJTg==", "tls.key": body}})


def _secret_data(r: random.Random) -> tuple[str, str]:
    value = base64.b64encode(password(r).encode()).decode()
    return value, f"kind: Secret\nmetadata:\n  name: db\ndata:\n  username: YXBw\n  password: {value}\n"


def _seed(r: random.Random) -> tuple[str, str]:
    words = " ".join(phrase(r))
    return words, f"My wallet's seed phrase is {words}. Never share it."


def _seed_list(r: random.Random) -> tuple[str, str]:
    words = phrase(r)
    return words[4], "mnemonic = [" + ", ".join(f'"{word}"' for word in words) + "]"


def _seed_commas(r: random.Random) -> tuple[str, str]:
    words = phrase(r)
    return words[6], "backup words of the wallet: " + ", ".join(words)


def _otp_spaced(r: random.Random) -> tuple[str, str]:
    shown = fours(some(r, BASE32.lower(), 32))
    return shown, f"2FA secret: {shown}"


def _basic(r: random.Random) -> str:
    return base64.b64encode(f"ci:{password(r)}".encode()).decode()


TUNING: dict[str, Maker] = {
    "own token url": lambda r: _with(some(r, WORD, 43), "Open http://localhost:8080/login?token=@@ in a browser"),
    "own token file": lambda r: _with(some(r, WORD, 43), "workspaces/local/.os/run/token: @@"),
    "own person": lambda r: _with(some(r, WORD, 43), "curl -H 'Authorization: Bearer bridge-person-@@' /api"),
    "own person bare": lambda r: _with(some(r, WORD, 43), "token: bridge-person-@@"),
    "own vm": lambda r: _with(some(r, WORD, 43), "ANTHROPIC_API_KEY=sprite-@@"),
    "own bare": lambda r: _with(some(r, WORD, 43), "@@"),
    "pem tail": _pem_tail,
    "tls": _tls,
    "secret data": _secret_data,
    "wireguard": lambda r: _with(some(r, BASE64, 43) + "=", "PrivateKey=@@\nListenPort = 51820"),
    "preshared": lambda r: _with(some(r, BASE64, 43) + "=", "PresharedKey = @@\n"),
    "age": lambda r: _with(some(r, "ACDEFGHJKLMNPQRSTUVWXYZ023456789", 58), "AGE-SECRET-KEY-1@@"),
    "client key data": lambda r: _with(some(r, BASE64, 800), "    client-key-data: LS0tLS1CRUdJTiBSU0Eg@@"),
    "docker config": lambda r: _with(_basic(r), '"auths": {"https://index.docker.io/v1/": {"auth": "@@"}}'),
    "jwk": lambda r: _with(some(r, WORD, 43), '{"kty":"OKP","crv":"Ed25519","d":"@@","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}'),
    "shadow": lambda r: _with(some(r, ALNUM + "./", 86), f"root:$6${some(r, ALNUM, 8)}$@@:19737:0:99999:7:::\nbin:*:19737:0:99999:7:::"),
    "shadow bcrypt": lambda r: _with(some(r, ALNUM + "./", 53), "ada:$2y$10$@@"),
    "shadow yescrypt": lambda r: _with(some(r, ALNUM + "./", 43), f"ada:$y$j9T${some(r, ALNUM, 22)}$@@:19800:0:99999:7:::"),
    "pgpass": lambda r: _with(password(r).replace(":", ""), "db.example.com:5432:shop:app:@@"),
    "pgpass stars": lambda r: _with(password(r).replace(":", ""), "*:*:*:postgres:@@"),
    "otpauth": lambda r: _with(some(r, BASE32, 16), "otpauth://totp/GitHub:ada?issuer=GitHub&secret=@@"),
    "otp spaced": _otp_spaced,
    "otp key": lambda r: _with(some(r, BASE32, 32), "TOTP_SECRET=@@"),
    "wifi qr": lambda r: _with(password(r), "WIFI:S:Home;T:WPA2;P:@@;H:false;;"),
    "psk": lambda r: _with(password(r), "    psk=@@\n    key_mgmt=WPA-PSK"),
    "chpasswd": lambda r: _with(password(r), "echo ada:@@ | chpasswd"),
    "openssl pass": lambda r: _with(password(r), "openssl rsa -in k.pem -passin pass:@@ -out k2.pem"),
    "smb": lambda r: _with(password(r), "mount -t cifs //nas/x /mnt -o username=ada,password=@@,vers=3.0"),
    "smb percent": lambda r: _with(password(r).replace("%", "x"), "rpcclient -U 'ada%@@' 10.0.0.4"),
    "secure string": lambda r: _with(password(r).replace("$", "x"), 'ConvertTo-SecureString -String "@@" -AsPlainText'),
    "zip": lambda r: _with(password(r).replace("$", "x"), "zip -r -P @@ out.zip docs"),
    "net use": lambda r: _with(password(r), "net use \\\\srv\\c$ @@ /user:corp\\ada"),
    "card": lambda r: _with(fours(card_number(r, "4", 16)), "My card is @@, exp 03/28"),
    "card json": lambda r: _with(card_number(r, "51", 16), '{"number":"@@","cvc":"123"}'),
    "card amex": lambda r: _with(card_number(r, "34", 15), "amex @@"),
    "card dashes": lambda r: _with(fours(card_number(r, "4", 16), "-"), "charged to @@"),
    "cvv": lambda r: _with(str(r.randint(101, 998)), "exp 03/28, CVV: @@"),
    "seed": _seed,
    "seed list": _seed_list,
    "seed commas": _seed_commas,
    "ether": lambda r: _with(some(r, HEX, 64), "PRIVATE_KEY=@@"),
    "ether 0x": lambda r: _with(some(r, HEX, 64), 'new ethers.Wallet("0x@@", provider)'),
    "ether accounts": lambda r: _with(some(r, HEX, 64), "accounts: [`0x@@`],"),
    "ether cast": lambda r: _with(some(r, HEX, 64), "cast send 0x01 'f()' --private-key 0x@@"),
    "ether said": lambda r: _with(some(r, HEX, 64), "the wallet's private key is @@"),
    "wif": lambda r: _with("5" + some(r, "HJK", 1) + some(r, BASE58, 49), "bitcoin-cli importprivkey @@"),
    "xprv": lambda r: _with("xprv9s21" + some(r, BASE58, 103), "master: @@"),
    "azure devops": lambda r: _with(some(r, LOWER[:26] + "234567", 52), "https://ado:@@@dev.azure.com/org/_git/x"),
    "azure devops pat": lambda r: _with(some(r, LOWER[:26] + "234567", 52), "SYSTEM_PAT=@@"),
    "azure devops pat said": lambda r: _with(some(r, LOWER[:26] + "234567", 52), "my Azure DevOps PAT is @@"),
    "azure devops long": lambda r: _with(some(r, ALNUM, 52) + "JQQJ99BCACAAAAAAAAAAAAASAZDO" + some(r, ALNUM, 4), "az devops login with @@"),
    "azure sas": lambda r: _with(some(r, ALNUM, 43) + "%3D", "https://a.blob.core.windows.net/c?sv=2024-01-01&sp=r&sig=@@"),
    "s3 presigned": lambda r: _with(some(r, HEX, 64), "X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Signature=@@"),
    "terraform": lambda r: _with(password(r), 'variable "db_password" {\n  type    = string\n  default = "@@"\n}'),
    "terraform key": lambda r: _with(some(r, ALNUM, 40), 'variable "api_token" {\n  description = "x"\n  default = "@@"\n}'),
    "unseal": lambda r: _with(some(r, BASE64, 43) + "=", "Unseal Key 2: @@"),
    "heroku": lambda r: _with("-".join(some(r, HEX, n) for n in (8, 4, 4, 4, 12)), 'HEROKU_API_KEY="@@"'),
    "django": lambda r: _with(some(r, LOWER + "!@#$%^&*(-_=+)", 50), "SECRET_KEY = 'django-insecure-@@'"),
    "django old": lambda r: _with(some(r, LOWER + "!@#$%^&*(-_=+)", 50), "SECRET_KEY = '@@'"),
    "laravel": lambda r: _with(some(r, BASE64, 43) + "=", "APP_KEY=base64:@@"),
    "salt": lambda r: _with(some(r, ALNUM + "!#$%&*+-=?@^_~;:,.<>[]{}()|", 64), "define( 'SECURE_AUTH_KEY',  '@@' );"),
    "csv": lambda r: _with(password(r), "url,user,password\nhttps://a.example,ada,@@\n"),
    "csv middle": lambda r: _with(password(r), "id,password,email\n1,@@,ada@example.com\n2,Other-77-word,b@example.com\n"),
    "csv quoted": lambda r: _with(password(r), '"Title","Username","Password","URL"\n"Bank","ada","@@","https://b.example"\n'),
    "tsv": lambda r: _with(password(r), "host\tuser\tpw\nweb1\tada\t@@\n"),
    "table": lambda r: _with(password(r), "| Service | Password |\n| --- | --- |\n| NAS | @@ |\n"),
    "table box": lambda r: _with(password(r), "+----+---------+\n| id | passwd  |\n+----+---------+\n| 1  | @@ |\n+----+---------+"),
    "table psql": lambda r: _with(password(r), " user | password \n------+----------\n ada  | @@\n"),
    "table aligned": lambda r: _with(password(r), "NAME      USER      PASSWORD\nrouter    admin     @@\n"),
    "url slash": lambda r: _with(f"{some(r, ALNUM, 6)}/{some(r, ALNUM, 6)}", "postgres://app:@@@db:5432/app"),
    "url hash": lambda r: _with(f"{some(r, ALNUM, 6)}#{some(r, ALNUM, 6)}", "redis://default:@@@cache:6379"),
    "letters": lambda r: _with(plain_words(r), "password: @@"),
    "letters yaml": lambda r: _with(plain_words(r), "db:\n  user: app\n  password: @@\n"),
    "letters env": lambda r: _with(plain_words(r), "DB_PASSWORD=@@"),
    "letters code": lambda r: _with(plain_words(r), 'connect(user="ada", password="@@")'),
    "letters said": lambda r: _with(plain_words(r), "the password is '@@'"),
    "zero width": lambda r: _with("sk-ant-api03-" + some(r, WORD, 20) + "\u200b" + some(r, WORD, 60), "key @@"),
    "soft hyphen": lambda r: _with("AKIA\u00ad" + some(r, LOWER.upper(), 16), "id @@"),
    "joiner password": lambda r: _with("Mallard\u2060-" + some(r, ALNUM, 8), "password: @@"),
    "login and": lambda r: _with(password(r), "login is t.okell and @@"),
    "login with": lambda r: _with(password(r), "The login is ada with @@."),
    "login slash": lambda r: _with(password(r), "login: ada / @@"),
    "login colon": lambda r: _with(password(r), "admin login: ada:@@"),
    "credentials": lambda r: _with(password(r), "the credentials are ada@example.com and @@, thanks"),
    "user pass": lambda r: _with(password(r), "user ada pass @@"),
    "sign in": lambda r: _with(password(r), "sign in as ada with @@"),
    "door": lambda r: _with(str(r.randint(1001, 9898)), "The door code is @@#."),
    "gate": lambda r: _with(str(r.randint(1001, 9898)), "gate code: @@"),
    "alarm": lambda r: _with(str(r.randint(100001, 989898)), "the code for the alarm is @@"),
    "pin": lambda r: _with(str(r.randint(1001, 9898)), "my PIN is @@"),
    "sim pin": lambda r: _with(str(r.randint(1001, 9898)), "SIM PIN: @@"),
    "safe": lambda r: _with(f"{r.randint(10, 39)}-4-32", "the safe's combination is @@"),
    "changed": lambda r: _with(password(r), "I've changed my password from hunter2 to @@"),
    "api key said": lambda r: _with(some(r, ALNUM, 32), "the api key for maps is @@"),
    "de": lambda r: _with(password(r), "Passwort: @@"),
    "de said": lambda r: _with(password(r), "Das Passwort vom Router ist @@"),
    "de kennwort": lambda r: _with(password(r), "Mein Kennwort lautet @@."),
    "fr": lambda r: _with(password(r), "Mot de passe: @@"),
    "fr said": lambda r: _with(password(r), "Le mot de passe est @@."),
    "es": lambda r: _with(password(r), "Contraseña: @@"),
    "es said": lambda r: _with(password(r), "mi contraseña es @@"),
    "pt": lambda r: _with(password(r), "Senha: @@"),
    "pt said": lambda r: _with(password(r), "a senha do wifi é @@"),
    "it": lambda r: _with(password(r), "la password del wifi è @@"),
    "nl": lambda r: _with(password(r), "Het wachtwoord is @@"),
    "pl": lambda r: _with(password(r), "Hasło to @@"),
    "ru": lambda r: _with(password(r), "пароль: @@"),
    "ru said": lambda r: _with(password(r), "Мой пароль это @@"),
    "uk": lambda r: _with(password(r), "Пароль = @@"),
    "zh": lambda r: _with(password(r), "密码: @@"),
    "zh said": lambda r: _with(password(r), "我的密码是@@。"),
    "zh tw": lambda r: _with(password(r), "密碼：@@"),
    "ja": lambda r: _with(password(r), "パスワード：@@"),
    "ja said": lambda r: _with(password(r), "パスワードは@@です"),
    "ko": lambda r: _with(password(r), "비밀번호는 @@"),
    "tr": lambda r: _with(password(r), "Şifre: @@"),
    "cs": lambda r: _with(password(r), "Heslo: @@"),
    "sv": lambda r: _with(password(r), "lösenordet är @@"),
    "da": lambda r: _with(password(r), "Adgangskode: @@"),
    "no": lambda r: _with(password(r), "Passord: @@"),
    "fi": lambda r: _with(password(r), "Salasana: @@"),
    "hu": lambda r: _with(password(r), "Jelszó: @@"),
    "ar": lambda r: _with(password(r), "كلمة المرور: @@"),
    "he": lambda r: _with(password(r), "סיסמה: @@"),
    "el": lambda r: _with(password(r), "Κωδικός: @@"),
    "vi": lambda r: _with(password(r), "Mật khẩu: @@"),
    "hi": lambda r: _with(password(r), "पासवर्ड: @@"),
}  # fmt: skip


def tuning_secrets(each: int = 3, seed: int = 1) -> list[FakeSecret]:
    """Return the given number of each, the same for each seed."""
    rng = random.Random(seed)  # noqa: S311 - made-up data, the same each time
    return [FakeSecret(name, *made(rng)) for name, made in TUNING.items() for _ in range(each)]
