"""Count planted secrets that are removed and ordinary strings that are touched; time 2,000 characters.

With a folder as argument, its files are read as well, in pieces of 2,000 characters, and what is taken for a secret
is counted and shown: most of it will be examples in documentation.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from benchmarks.report import line
from sprite.privacy.redaction import prepare, redact, secrets_in
from tests.fake_secrets import ALL_FORMATS, TWENTY, fake_secrets, leaks
from tests.harmless_strings import BACKTRACKING_BAIT, harmless_strings
from tests.heldout_secrets import HELD_OUT, heldout_secrets

SEEDS = range(1, 6)
ORDINARY = 10_000
PIECE = 2000
SIZES = (50_000, 200_000)
SHORT = "Please look at the shop's backend and tell me why the login form is slow."
SOURCES = {".py", ".js", ".ts", ".json", ".md", ".txt", ".toml", ".yaml", ".yml", ".css", ".html", ".c", ".h", ".sh"}


def caught() -> None:
    """The 200 that are wanted, with several seeds; then every format we know of."""
    shares = []
    for seed in SEEDS:
        plants = fake_secrets(TWENTY, 10, seed)
        shares.append(sum(not leaks(plant.secret, redact(plant.text)) for plant in plants))
    line(
        "planted secrets caught, 20 formats, worst of 5 seeds", f"{min(shares)} of 200", ">= 190", ok=min(shares) >= 190
    )
    plants = fake_secrets(ALL_FORMATS, 24, 9)
    found = sum(not leaks(plant.secret, redact(plant.text)) for plant in plants)
    name = f"the same, {len(ALL_FORMATS)} formats"
    line(name, f"{found} of {len(plants)}", ">= 95%", ok=found >= 0.95 * len(plants))
    plants = heldout_secrets(each=10, seed=9)
    found = sum(not leaks(plant.secret, redact(plant.text)) for plant in plants)
    name = f"{len(HELD_OUT)} surroundings that no rule was tried on"
    line(name, f"{found} of {len(plants)}", ">= 95%", ok=found >= 0.95 * len(plants))


def spoiled() -> None:
    """Hashes, ids, images, code and prose."""
    changed = sum(redact(text) != text for text in harmless_strings(ORDINARY, 3))
    value = f"{1000 * changed / ORDINARY:.2f} of 1,000"
    line("ordinary strings wrongly redacted", value, "< 1 of 1,000", ok=1000 * changed < ORDINARY)


def cost() -> None:
    """Time for a text of 2,000 characters: code as it is read, ordinary strings, and a short prompt."""
    started = time.perf_counter()
    prepare()
    once = 1000 * (time.perf_counter() - started)
    print(f"      (reading and compiling the rules, once, beside the listener: {once:.0f} ms)")
    code = "\n".join(path.read_text() for path in sorted(Path("sprite").rglob("*.py")))
    mixed = "\n".join(harmless_strings(ORDINARY))
    for name, text in (("code", code), ("hashes, ids, images, prose", mixed)):
        pieces = [text[begin : begin + PIECE] for begin in range(0, min(len(text), 600_000) - PIECE, PIECE)]
        samples = sorted(_milliseconds(piece) for _ in range(3) for piece in pieces)
        median, late = statistics.median(samples), samples[int(len(samples) * 0.99)]
        line(f"2,000 characters of {name}", f"{median:.2f} ms, p99 {late:.2f} ms", "<= 1 ms", ok=median <= 1)
    short = statistics.median(_milliseconds(SHORT) for _ in range(2000))
    line("a prompt of one sentence", f"{1000 * short:.0f} us", "<= 50 us", ok=short <= 0.05)
    large = _milliseconds(code * (1_000_000 // len(code) + 1))
    line("a million characters of code", f"{large:.0f} ms", "<= 2,000 ms", ok=large <= 2000)


def hostile() -> None:
    """Time for texts made to be slow: in proportion to their length, four times the text takes four times as long."""
    grown = []
    for piece in BACKTRACKING_BAIT:
        short, long = (statistics.median(_milliseconds(piece * (n // len(piece))) for _ in range(3)) for n in SIZES)
        grown.append(long / short)
    value = f"{statistics.median(grown):.1f} x, at most {max(grown):.1f} x"
    line("four times a hostile text takes", value, "<= 9 x, a square 16 x", ok=max(grown) <= 9)


def _milliseconds(text: str) -> float:
    started = time.perf_counter()
    redact(text)
    return (time.perf_counter() - started) * 1000


def real(folder: Path) -> None:
    """Return what redaction would remove from the files of a folder."""
    pieces = changed = 0
    for path in sorted(folder.rglob("*")):
        if path.suffix not in SOURCES or not path.is_file():
            continue
        text = path.read_text("utf-8", errors="replace")
        for begin in range(0, min(len(text), 100_000), PIECE):
            piece = text[begin : begin + PIECE]
            spans = secrets_in(piece)
            pieces, changed = pieces + 1, changed + bool(spans)
            for start, end, kind in spans:
                print(f"      {kind}: {piece[max(0, start - 40) : end + 10]!r:.150}")
    print(f"      {changed} of {pieces:,} pieces of {PIECE:,} characters below {folder}")


if __name__ == "__main__":
    caught()
    spoiled()
    cost()
    hostile()
    for argument in sys.argv[1:]:
        real(Path(argument))
