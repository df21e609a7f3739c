"""Fields and betas that the bundled CLI can send: each is passed on, or known here as one that is not."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator

import pytest

from bridge.proxy import content, upstream
from sprite.agent.conversation import BUNDLED_CLI

#: The CLI sends these to the vendor's own address alone, if at all.
REFUSED_FIELDS = {"safeguards", "thread", "diagnostics"}
#: Betas that are taken out of the header: other endpoints, other clouds, a login, and what reaches or costs more.
DROPPED_BETAS = set(
    "advisor-tool afk-mode agent-memory auto-mode-classifier bedrock cache-keepalive ccr-byoc ccr-triggers "
    "dangerous-tool-use dreaming environments fallback-credit fast-mode inline-tools managed-agents mcp-tunnels "
    "message-batches message-threads oauth oidc-federation program-use-case-ids request-tags resumption "
    "server-side-fallback thinking-resumption user-profiles vertex web-search-results-only".split()
)
#: Members of members in the CLI's code that makes the body of a request.
NESTED = {"type", "classifier_context", "previous_message_id"}


@pytest.fixture(name="cli", scope="module")
def _cli() -> Iterator[mmap.mmap]:
    with BUNDLED_CLI.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as cli:
        yield cli


def test_each_beta_of_cli_is_known(cli: mmap.mmap) -> None:
    found = {name.decode() for name in re.findall(rb'"([a-z][a-z0-9-]{3,60})-20\d\d-\d\d-\d\d"', cli)}
    assert {"effort", "context-management", "interleaved-thinking"} <= found
    assert found - upstream.BETAS - set(upstream.EXIT_BETAS) == DROPPED_BETAS


def test_each_field_of_cli_is_known(cli: mmap.mmap) -> None:
    bodies = [
        re.split(rb"\}+,[\w$]+=", cli[match.start() : match.start() + 1500])[0]
        for match in re.finditer(rb"\{model:[^{}]{1,60},messages:", cli)
    ]
    (body,) = [body for body in bodies if b"context_management:" in body and b"metadata:" in body]
    members = {name.decode() for name in re.findall(rb"[{,]([a-z_]+):", body)} - NESTED
    assert {"messages", "thinking", "tools", "output_config"} <= members
    assert members - content.FIELDS - set(content.EXIT_FIELDS) == REFUSED_FIELDS
