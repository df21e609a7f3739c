"""Write the settings tables of the documentation from the code: `python -m tools.settings_tables`."""

from __future__ import annotations

import re
from pathlib import Path

import bridge.config
import sprite.config
from bridge.config import OidcSettings
from sprite.common.settings import table

_ROOT = Path(__file__).resolve().parent.parent
_BEGIN, _END = "<!-- settings: made by `python -m tools.settings_tables` -->\n", "<!-- end of settings -->\n"
TABLES: dict[str, tuple[type, ...]] = {
    "docs/reference.md": (sprite.config.Settings,),
    "docs/deployment.md": (bridge.config.Settings, OidcSettings),
}


def updated(text: str, kinds: tuple[type, ...]) -> str:
    """Return the text of a file with its table as the code declares it."""
    made = f"{_BEGIN}{table(*kinds)}{_END}"
    return re.sub(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: made, text, flags=re.DOTALL)


if __name__ == "__main__":
    for name, kinds in TABLES.items():
        path = _ROOT / name
        path.write_text(updated(path.read_text(), kinds))
