"""2,000 direct spellings of calls that 200 rules forbid."""

from __future__ import annotations

import random
from typing import Any

#: A tool and its input.
Attempt = tuple[str, dict[str, Any]]

PROGRAMS = (
    "git commit; git push; git rebase; git reset; git tag; pip install; npm publish; npm install; docker push; "
    "docker compose down; kubectl delete; kubectl apply; terraform apply; terraform destroy; alembic upgrade; "
    "alembic downgrade; rm; mv; chmod; chown; dd; systemctl restart; systemctl stop; crontab; apt-get install; "
    "apt-get remove; cargo publish; gem push; twine upload; psql; mysql; redis-cli flushall; aws s3 rm; gcloud deploy; "
    "heroku run; fly deploy; make deploy; rsync; scp; ssh; curl; wget; mutt; sendmail; msmtp; brew install; "
    "go install; yarn add; poetry publish; helm upgrade; ansible-playbook; vagrant destroy; mkfs; mount; umount; "
    "reboot; shutdown; "
    "kill; killall; useradd; passwd; openssl; gpg; ollama pull; flyctl scale; hg commit; svn commit; bzr push"
).split("; ")
WORDS = ("prod", "staging", "live", "main", "backup")
#: Ways to write a command directly: with other words around it, its program by its path, or quoted.
SPELLINGS = (
    "{program} {rest}",
    "/usr/bin/{program} {rest}",
    "'{program}' {rest}",
    "cd /tmp && {program} {rest}",
    "set -e; {program} {rest} 2>&1 | tail -3",
    "A=1 {program} {rest} &",
    "{program} --quiet {rest}",
    "if true; then\n  {program} {rest}\nfi",
    "({program} {rest}) || echo failed",
    "{program} \\\n  {rest}",
)


def _commands() -> list[tuple[str, list[str]]]:
    chance = random.Random(30)  # noqa: S311 - generated data, the same each time
    rules = [(f'command "{each}"', each) for each in PROGRAMS]
    wide = [(each, word) for each in PROGRAMS for word in WORDS]
    rules += [(f'command "{each} ... *{word}*"', f"{each} -x there-{word}-1") for each, word in chance.sample(wide, 82)]
    found = []
    for condition, command in rules:
        program, *words = command.split()
        rest = " ".join([*words, "-v", chance.choice(("now", "'a b'", '"$X"'))])
        found.append((condition, [spelling.format(program=program, rest=rest) for spelling in SPELLINGS]))
    return found


def _others() -> list[tuple[str, list[Attempt]]]:
    rules: list[tuple[str, list[Attempt]]] = []
    for name in (*WORDS, "secrets", "legal", "tests", "migrations", "vendor"):
        ways = [f"/work/{name}/a.py", f"{name}/b/c.py", f"./x/../{name}/a", f"/work/{name}/{name}/z", f"~/{name}/q"]
        calls = [(tool, {"file_path": way}) for way in ways for tool in ("Edit", "Write")]
        rules.append((f'tool "Edit" or "Write" and path "{name}/**"', calls))
        shell = [f"rm /srv/{name}-1/a", f"cat ../{name}-2/x > y", f"cp a /srv/{name}-9/b/c", f"ls '/srv/{name}-3/a'"]
        reads = [f"/srv/{name}-{number}/a" for number in range(6)]
        paths = [*(("Bash", {"command": each}) for each in shell), *(("Read", {"file_path": each}) for each in reads)]
        rules.append((f'path "{name}-*/**"', paths))
        hosts = [f"https://{name}.example.org/", f"http://a:b@{name}.example.org:8080/x", f"https://{name}.EXAMPLE.org"]
        urls = [("WebFetch", {"url": each, "prompt": "x"}) for each in hosts]
        lines = ["curl {}", "wget -q '{}'", "X={}; curl $X"]
        calls = [*urls, *(("Bash", {"command": line.format(host)}) for host in hosts for line in lines)][:9]
        rules.append((f'host "{name}.example.org"', [*calls, ("Bash", {"command": f"ssh -v ada@{name}.example.org"})]))
        tools = [(f"mcp__{server}__send_{name}", {"to": to}) for server in ("mail", "chat") for to in "abcde"]
        rules.append((f'tool "send_{name}"', tools))
        used = {"connection": f"{name}-hub"}
        calls = [(f"mcp__{name}-hub__{each}", {}) for each in "abcde"]
        calls += [("mcp__connections__use_tool", {**used, "tool": each}) for each in "abcde"]
        rules.append((f'connection "{name}-*"', calls))
    return rules


def attempts() -> list[tuple[str, list[Attempt]]]:
    """Return 200 conditions, each with ten calls that it is about."""
    commands = [(condition, [("Bash", {"command": line}) for line in lines]) for condition, lines in _commands()]
    return [*commands, *_others()]
