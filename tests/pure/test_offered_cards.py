"""Cards for other programs: inert HTML without scripts or remote content, and text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from sprite.mcp.cards import MAX_HTML_CHARS, card_of_uri, card_text, card_uri, cards_html, open_cards
from sprite.protocol.shapes import Block, Card

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\0'


def card(
    *blocks: tuple[str, dict[str, Any]], title: str = "Ropes", card_id: str = "c1", archived: bool = False
) -> Card:
    made = [Block(str(number), kind, data) for number, (kind, data) in enumerate(blocks)]
    return Card(card_id, "s", title, "table", None, None, made, archived)


class Tags(HTMLParser):
    """Collects the tags of a document with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


EVERY_BLOCK: list[tuple[str, dict[str, Any]]] = [
    ("heading", {"text": EVIL, "level": 2}),
    ("stat", {"label": EVIL, "value": EVIL, "description": EVIL}),
    ("key-value", {"pairs": [{"key": EVIL, "value": EVIL}]}),
    ("table", {"columns": [EVIL], "rows": [[EVIL], {EVIL: EVIL}]}),
    ("badge", {"text": EVIL, "variant": EVIL}),
    ("progress", {"value": 40, "label": EVIL}),
    ("text", {"content": EVIL}),
    ("separator", {}),
    ("document", {"path": EVIL, "title": EVIL, "excerpt": EVIL}),
    ("note", {"content": EVIL}),
    (EVIL, {"content": EVIL}),
]


def test_card_html_runs_and_loads_nothing() -> None:
    text = cards_html(EVIL, [card(*EVERY_BLOCK, title=EVIL)])
    tags = Tags(text).found
    assert not {"script", "img", "iframe", "link", "a", "form", "object", "svg"} & {tag for tag, _ in tags}
    assert not [
        name for _, attributes in tags for name in attributes if name.startswith("on") or name in {"src", "href"}
    ]
    policies = [each["content"] for tag, each in tags if tag == "meta" and each.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]
    assert "\0" not in text
    assert text.count("&lt;script&gt;") >= len(EVERY_BLOCK) - 2


@pytest.mark.parametrize("kind", [kind for kind, _ in EVERY_BLOCK])
def test_block_with_any_content_is_shown(kind: str) -> None:
    names = ["text", "level", "label", "value", "description", "pairs", "columns", "rows", "content", "path", "title"]
    odd_values: list[Any] = [None, 5, 1e400, float("nan"), 10**40, "x" * 100_000, [[[]]], {"a": {"b": []}}]
    for value in (*odd_values, [None, 3, "x"], "\ud800", True):
        odd = card((kind, dict.fromkeys(names, value)), (kind, {"rows": [value, [value]], "columns": [value]}))
        cards_html("x", [odd]).encode()
        card_text(odd).encode()


def test_table_is_text_for_clients_without_apps() -> None:
    shown = card(
        ("table", {"columns": ["rope", "metres"], "rows": [["hemp", 7], {"rope": "jute", "metres": 2}]}),
        ("stat", {"label": "Sum", "value": 9}),
    )
    assert card_text(shown).splitlines() == ["[card: Ropes]", "rope | metres", "hemp | 7", "jute | 2", "Sum: 9"]


def test_documents_and_texts_are_bounded_with_notice() -> None:
    large = [card(*[("text", {"content": "<" * 50_000})] * 4, card_id=str(number)) for number in range(9)]
    text = cards_html("All", large)
    assert len(text) < MAX_HTML_CHARS + 10_000
    assert re.search(r"\d+ more, too large to be shown here", text)
    assert len(card_text(large[0])) < 20_000


def test_card_with_any_id_is_found_by_address() -> None:
    for card_id in ("c1", "a/b?c#d", "ä ö", "../..", "%2e"):
        assert card_of_uri(card_uri(card_id)) == card_id
    assert card_of_uri("ui://sprite/cards") is None
    assert card_of_uri("https://sprite/card/x") is None
    assert [each.card_id for each in open_cards([card(), card(card_id="c2", archived=True)])] == ["c1"]
