"""Score redaction on sets of secrets and of harmless strings by authors who have not seen the rules.

`python -m benchmarks.bench_secrets FOLDER` reads `secrets-*.json` and `harmless-*.json`, each a list of items:

    {"id", "text", "secret", "context": "message|command|result|file", "command"?}
    {"id", "text", "context"}

A secret is removed if no eight or more characters of its value stand in the text that is stored. A harmless string is
untouched if its text is byte-identical. With `-v`, the ids and texts of all other items are printed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import line
from sprite.privacy.redaction import discreet, discreet_value
from sprite.privacy.secret_formats import kept_result

Item = dict[str, Any]
#: The shortest part of a secret that must not be left.
PART = 8


def stored(item: Item) -> str:
    """Return the text in the form in which a turn stores it."""
    text: str = item["text"]
    if item["context"] == "command":
        said: str = discreet_value({"command": text})["command"]
        return said
    return discreet(kept_result({"command": item["command"]}, text) if item.get("command") else text)


def removed(secret: str, text: str, original: str) -> bool:
    """Return whether neither the secret nor a part of it is left. A part that also stands elsewhere does not count."""
    if secret in text:
        return False
    elsewhere = original.replace(secret, "")
    pieces = (secret[at : at + PART] for at in range(len(secret) - PART + 1))
    return not any(piece in text for piece in pieces if piece.strip() and piece not in elsewhere)


def read(folder: Path, name: str) -> Iterator[Item]:
    """Yield the items of all files of this kind."""
    for path in sorted(folder.glob(f"{name}-*.json")):
        for item in json.loads(path.read_text("utf-8")):
            yield {"context": "message", **item, "file": path.stem}


def by(items: Iterable[Item], *fields: str) -> str:
    """Return how many items there are of each value of the fields."""
    counted = Counter(" ".join(str(item.get(field, "-")) for field in fields) for item in items)
    return ", ".join(f"{name} {count}" for name, count in counted.most_common())


def main(folder: Path, *, is_verbose: bool) -> None:
    """Print the scores."""
    secrets, harmless = list(read(folder, "secrets")), list(read(folder, "harmless"))
    missed = [item for item in secrets if not removed(item["secret"], stored(item), item["text"])]
    touched = [item for item in harmless if stored(item) != item["text"]]
    caught = len(secrets) - len(missed)
    share = f"{caught} of {len(secrets)}, {100 * caught / max(1, len(secrets)):.1f} %"
    line("secrets removed", share, ">= 95 %", ok=caught >= 0.95 * len(secrets))
    print(f"      missed, by context: {by(missed, 'context')}")
    print(f"      all, by context: {by(secrets, 'context')}")
    line(
        "harmless strings touched", f"{len(touched)} of {len(harmless)}", "< 1 of 1,000",
        ok=1000 * len(touched) < max(1, len(harmless)),
    )  # fmt: skip
    print(f"      by context: {by(touched, 'context')}")
    for item in (*missed, *touched) if is_verbose else ():
        print(f"      {item['file']} {item['id']} ({item['context']}) {item.get('command', '')!r:.80}")
        print(f"          {item['text']!r:.400}\n          {stored(item)!r:.400}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-v", action="store_true", dest="is_verbose")
    arguments = parser.parse_args()
    main(arguments.folder, is_verbose=arguments.is_verbose)
