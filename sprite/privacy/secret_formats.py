"""Secrets that are recognised by their own shape, whatever stands around them: prefixes, lengths, alphabets.

The model vendors' keys and the formats that must be found in any context are our own rules. The long tail (some 200
services) are the rules of gitleaks, which the `secretscreen` package ships as data. Only its file is read: importing
the package would cost 90 ms.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sprite.privacy.rule_files import LibraryFile, Shape, ShapeFile, read

_OWN_FILES = ("models.toml", "clouds.toml", "packages.toml", "services.toml")
#: What must not stand before a token. A slash may: tokens stand in paths of URLs.
_START = r"(?<![A-Za-z0-9])"
#: What gitleaks demands after a secret. In prose and in JSON a comma, a bracket or a full stop ends one just as well;
#: here it ends where its characters end.
_GITLEAKS_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_END = r"(?![A-Za-z0-9_])"
#: gitleaks matches the name before its keyword as well, in order to show it; here it would only cost time.
_GITLEAKS_LEAD = r"[\w.-]{0,50}?"
#: Marks a rule that recognises a secret by the name it is given, not by its shape: the secret is a group of its match.
_GITLEAKS_ASSIGNMENT = r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)"


@dataclass(frozen=True, slots=True)
class Format:
    """A shape. Every such secret has one of the `markers` (lower case) in it.

    `grouped`: the secret is a group of the match, the longest.
    """

    kind: str
    markers: tuple[str, ...]
    pattern: Callable[[], re.Pattern[str]]
    grouped: bool = False
    entropy: float = 0.0

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Returns where such secrets stand."""
        found = []
        for match in self.pattern().finditer(text):
            start, end = _longest_group(match) if self.grouped else match.span()
            if end > start and (not self.entropy or entropy(text[start:end]) >= self.entropy):
                found.append((start, end, self.kind))
        return found


def entropy(text: str) -> float:
    """Returns the bits per character (Shannon)."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _longest_group(match: re.Match[str]) -> tuple[int, int]:
    spans = [match.span(number) for number in range(1, (match.re.groups or 0) + 1)]
    return max(spans or [match.span()], key=lambda span: span[1] - span[0])


@functools.cache
def own_formats() -> tuple[Format, ...]:
    """Reads our own shapes (5 ms, once)."""
    return tuple(map(format_of, (shape for name in _OWN_FILES for shape in read(name, ShapeFile).shape)))


def format_of(shape: Shape) -> Format:
    """Makes a format of a rule; more characters than a token needs belong to it, whatever its vendor says."""
    pattern = f"{_START}{shape.filled(shape.token)}" if shape.token else shape.regex
    return Format(shape.kind, shape.markers, functools.cache(lambda: re.compile(pattern)), entropy=shape.entropy)


@functools.cache
def library_formats() -> tuple[Format, ...]:
    """Reads the rules of gitleaks that are used here (15 ms, once)."""
    import tomllib

    spec = importlib.util.find_spec("secretscreen")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("secretscreen")
    rules = tomllib.loads((Path(spec.submodule_search_locations[0]) / "gitleaks.toml").read_text("utf-8"))["rules"]
    chosen = read("library.toml", LibraryFile)
    return tuple(
        Format(
            kind=rule["id"],
            markers=tuple(keyword.lower() for keyword in rule["keywords"]),
            pattern=functools.cache(functools.partial(_compiled, rule["regex"])),
            grouped=_GITLEAKS_ASSIGNMENT in rule["regex"],
            entropy=rule.get("entropy", 0.0),
        )
        for rule in rules
        if "regex" in rule and "keywords" in rule and not _is_left_out(rule["id"], chosen)
    )


def _is_left_out(name: str, chosen: LibraryFile) -> bool:
    by_name = chosen.left_out_by_name
    return name in chosen.left_out or name.startswith(by_name.begins) or any(part in name for part in by_name.contains)


def _compiled(pattern: str) -> re.Pattern[str]:
    """Translates a regular expression of Go's into one of Python's."""
    pattern = pattern.replace(_GITLEAKS_LEAD, "").replace(_GITLEAKS_END, _END).replace(r"\z", r"\Z")
    while (at := pattern.find("(?i)", 1)) > 0:
        end = _end_of_group(pattern, at)
        pattern = f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}"
    return re.compile(pattern)


def _end_of_group(pattern: str, at: int) -> int:
    """Returns where the group ends in which a flag is switched on: that is how far it reaches in Go."""
    depth, in_class, index = 0, False, at + 4
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            # A bracket that comes first belongs to the class.
            index += pattern[index + 1 : index + 2] == "]"
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                return index
        index += 1
    return index
