"""3,200 everyday calls that break none of the rules here, though many name what a rule is about."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Rules as people would have them.
RULES = (
    'stop when command "git commit" and branch "main" or "master": Commit on a branch of your own.',
    'stop when command "git push ... main" or "git push --force": Push your own branch.',
    'stop when command "pip install": Use uv.',
    'ask when command "alembic ... *staging* ... upgrade": Staging only when I say so.',
    'stop when command "mail" or "mutt" or "sendmail": Write a draft.',
    'stop when tool "mcp__mail__send" and not host "tilda@moerk.example": Write a draft.',
    'ask when tool "Edit" or "Write" and path "tests/**": Ask before changing a test.',
    'stop when path "/etc/**" and tool "Edit" or "Write": Leave the system alone.',
    'stop when path "~/Letters/sent/**": Sent letters stay.',
    'stop when host "prod.example.org" or "*.prod.example.org": Leave production alone.',
    'stop when command "rm -rf": Delete file by file.',
    'stop when command "docker compose down": Others use it.',
    'stop when command "npm publish" or "cargo publish" or "twine upload": Releases are mine.',
    'stop when command "kubectl delete" and not project "sandbox": Delete nothing in the cluster.',
    'stop when command "terraform apply" or "terraform destroy": Plan only.',
    'stop when command "systemctl restart ... *db*": The database stays up.',
    'stop when connection "payroll": Payroll is private.',
    'stop when command "curl" and host "*.internal": The intranet is closed.',
    'stop when tool "WebSearch" and time "Sat-Sun": Weekends are offline.',
    'ask when command "psql ... *prod*" or "mysql ... *prod*": Ask before you touch it.',
)
BRANCHES = ("noor/fix", "feat/CF-12", "main-menu", "release/2.1", "docs/commit-style")
FILES = ("src/app.py", "docs/tests.md", "lib/etc/conf.py", "web/main.js", "Makefile", "data/prod.csv", "src/test.py")
WORDS = ("commit", "pip install", "rm -rf", "prod", "staging", "main", "mail", "npm publish", "docker compose down")
SHELL = (
    "git log --oneline --grep '{word}' -- {file}",
    "git diff main...{branch} -- {file}",
    "cd ~/work/shop && git switch -qc {branch} && git commit -qam 'About {word}'",
    "git checkout -q -b {branch} && git add {file} && git commit -m 'Never {word}'",
    "git show main:{file} | head -40",
    "git push -u origin {branch}",
    "git push origin HEAD:{branch}",
    "git fetch -q origin main && git rebase origin/main",
    "grep -rn '{word}' {file}",
    "rg -l '{word}' --glob '!tests/**' .",
    "echo '{word}' >> notes-{n}.md",
    "cat > note-{n}.md <<'END'\n- {word}\n- see {file}\nEND",
    "uv pip install pkg-{n} && uv run pytest -q tests/test_{n}.py",
    "uv run alembic -x dsn=$DEV_DSN upgrade head # not {word}",
    "uv run alembic -x dsn=$STAGING_DSN current",
    "python3 -c \"print('{word}', {n})\"",
    "pytest -q tests -k '{n}' 2>&1 | tail -3",
    "cat tests/test_{n}.py /etc/hosts | wc -l",
    "ls -la ~/Letters /etc && stat {file}",
    "rm build/{n}.o && rm -r build-{n}",
    "docker compose up -d svc-{n} && docker compose logs --tail 5 down-{n}",
    "docker compose -f dev.yml ps",
    "npm run publish-docs-{n} && npm install left-pad",
    "cargo build && cargo test publish_{n}",
    "kubectl get pods -n ns-{n} --field-selector status.phase!=delete",
    "terraform plan -out plan-{n}",
    "systemctl status postgres-db-{n}; systemctl restart web-{n}",
    "curl -s https://staging.example.org/{n}?host=prod.example.com",
    "curl -s http://127.0.0.1:80{n}/internal",
    "psql dev_{n} -c 'select 1' && echo prod",
    "mkdir -p mail/{n} && ls mail && which mutt",
    'for f in {file} a b; do wc -l "$f"; done',
    "if git diff --quiet; then echo 'nothing to commit'; fi",
    "man git-commit | head -{n}",
    "ssh build-{n}.example.org 'git commit -m x'",
    'echo "$(git rev-parse main) {n}" | tee /tmp/{n}.txt',
    "tar czf {n}.tgz --exclude tests . # rm -rf later",
)
OTHER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Read", {"file_path": "/work/shop/tests/test_{n}.py"}),
    ("Read", {"file_path": "/etc/hosts-{n}"}),
    ("Edit", {"file_path": "/work/shop/{file}", "old_string": "{word}", "new_string": "{n}"}),
    ("Write", {"file_path": "/work/shop/latest-tests/{n}.py", "content": "git commit; rm -rf /etc/{n}"}),
    ("Grep", {"pattern": "{word}", "path": "tests", "glob": "*.py"}),
    ("Glob", {"pattern": "tests/**/*{n}*"}),
    ("WebFetch", {"url": "https://docs.example.org/prod.example.org/{n}", "prompt": "{word}"}),
    ("WebFetch", {"url": "https://notprod.example.org/{n}", "prompt": "x"}),
    ("WebSearch", {"query": "{word} {n}"}),
    ("mcp__mail__draft", {"to": "ceo-{n}@client.example", "body": "{word}"}),
    ("mcp__mail__send", {"to": "Tilda <tilda@moerk.example>", "body": "{word} {n}"}),
    ("mcp__calendar__add", {"title": "payroll {n}", "note": "{word}"}),
    ("mcp__sprite__search_memory", {"query": "{word} {n}"}),
)


def harmless_calls(count: int = 3_200) -> list[tuple[str, dict[str, Any]]]:
    """Return so many calls, the same ones each time."""
    chance = random.Random(30)  # noqa: S311 - generated data
    templates = [*(("Bash", {"command": each}) for each in SHELL), *OTHER]
    made = []
    for number, (tool, given) in zip(range(count), itertools.cycle(templates), strict=False):
        values = {
            "n": str(number),
            "word": chance.choice(WORDS),
            "file": chance.choice(FILES),
            "branch": chance.choice(BRANCHES),
        }
        made.append((tool, {name: _filled(text, values) for name, text in given.items()}))
    return made


def _filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def write_sessions(folder: Path, calls: list[tuple[str, dict[str, Any]]], each: int = 10) -> None:
    """Write the calls as session logs of Claude Code, so many a turn, 40 turns a session."""
    folder.mkdir(parents=True, exist_ok=True)
    turns = [calls[at : at + each] for at in range(0, len(calls), each)]
    for number in range(0, len(turns), 40):
        lines = [text for at, turn in enumerate(turns[number : number + 40]) for text in _turn(number, at, turn)]
        (folder / f"session-{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _turn(session: int, at: int, calls: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    # A Tuesday: one rule is about weekends.
    common: dict[str, Any] = {
        "sessionId": f"s{session}",
        "cwd": "/work/shop",
        "timestamp": f"2026-01-06T10:{at:02}:00Z",
        "version": "2.1.0",
    }
    common |= {"isSidechain": False, "userType": "external", "parentUuid": None}
    yield json.dumps(
        {**common, "type": "user", "uuid": f"u{session}-{at}", "message": {"role": "user", "content": "Go on"}}
    )
    uses = [
        {"type": "tool_use", "id": f"t{session}-{at}-{n}", "name": tool, "input": given}
        for n, (tool, given) in enumerate(calls)
    ]
    yield json.dumps(
        {**common, "type": "assistant", "uuid": f"a{session}-{at}", "message": {"role": "assistant", "content": uses}}
    )
    done = [{"type": "tool_result", "tool_use_id": use["id"], "content": "ok"} for use in uses]
    yield json.dumps(
        {**common, "type": "user", "uuid": f"r{session}-{at}", "message": {"role": "user", "content": done}}
    )
