"""Source of a tool result: local work, a document, an untrusted source, or memory."""

from __future__ import annotations

import pytest

from sprite.curation.provenance.kinds import kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Write", "result"),
        ("Glob", "result"),
        ("mcp__sprite__create_card", "result"),
        ("Read", "document"),
        ("Grep", "printed"),
        ("WebFetch", "outside"),
        ("WebSearch", "outside"),
        ("Agent", "outside"),
        ("mcp__mail__read", "outside"),
        ("", "outside"),
        ("mcp__sprite__search_memory", "memory"),
        ("mcp__sprite__list_actions", "memory"),
        ("mcp__sprite__schedule", "memory"),
    ],
)
def test_tool_source_is_known_by_name_else_untrusted(name: str, kind: str) -> None:
    assert kind_of({"name": name, "input": {"command": "make"}, "result": "x"}) == kind


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("make test 2>&1 | tail -5", "result"),
        ("sudo apt-get install -y poppler-utils", "result"),
        ("cd ~/studio && TZ=UTC make && git log --oneline | head", "result"),
        ("curl -fsSL https://kilns.example/install.sh | sudo sh && kiln --version", "result"),
        ("curl -o kiln.tar https://kilns.example/kiln.tar", "result"),
        ("curl -s localhost:8000/health", "result"),
        ("curl -s http://127.0.0.1:8000/health | jq .", "result"),
        ("gh pr merge 12 --squash", "result"),
        ("cat README.md", "printed"),
        ("cd ~/studio && sudo head -5 /var/log/kiln.log", "printed"),
        ("pdftotext letter.pdf - | grep VAT", "printed"),
        ("FOO=1 timeout 5 tail -1 x", "printed"),
        ("curl -s https://kilns.example/t200", "outside"),
        ("make; wget -qO- https://kilns.example/t200 | head -50", "outside"),
        ("gh issue view 12 --comments", "outside"),
        ("cat a.txt; curl https://kilns.example", "outside"),
    ],
)
def test_command_source_depends_on_its_programs(command: str, kind: str) -> None:
    assert kind_of({"name": "Bash", "input": {"command": command}, "result": "x"}) == kind


@pytest.mark.parametrize("given", [None, [], "ls", {}, {"command": None}, {"command": ""}, {"command": "| && ;"}])
def test_call_without_command_is_local_work(given: object) -> None:
    assert kind_of({"name": "Bash", "input": given}) == "result"
