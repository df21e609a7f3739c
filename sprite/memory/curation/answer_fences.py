"""Code fences around a header and its content, moved below the header.

Below the header, `answer_files` removes them as the content's wrapper. In their original place, the closing fence would
become the last line of the file. Updates are handled from the start of the answer, up to the first without such a
fence: later, a fence before a header closes the earlier content. A fence around several files or the whole answer is
left to the parser.
"""

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

from sprite.memory.curation.answer_files import MAX_UPDATES, WRAPPERS, Fence, read_fence, read_header

Fences = Mapping[int, Fence]


def fences_below_headers(lines: Sequence[str]) -> list[str]:
    """Return the answer's lines, with each fence that opens around one header moved below the header."""
    headers = [at for at, line in enumerate(lines) if line and read_header(line) is not None]
    fences = {at: fence for at, line in enumerate(lines) if line and (fence := read_fence(line)) is not None}
    moved = list(lines)
    closed = -1
    for header, end in islice(pairwise([*headers, len(lines)]), MAX_UPDATES):
        opening = _before(lines, header)
        around = fences.get(opening)
        # After an odd number of fences it closes one of them, even before the first header.
        is_own = closed < opening and sum(closed < at < opening for at in fences) % 2 == 0
        if around is None or not is_own or not _is_wrapper(around):
            break
        ends = _end_of(lines, fences, header, end, around)
        if ends is None:
            break
        moved[opening], moved[header] = _swapped(lines[opening], lines[header])
        closed = ends
    return "\n".join(moved).split("\n")


def _swapped(fence: str, line: str) -> tuple[str, str]:
    """Return the header's line, then the fence's. Content beside the header moves below the fence."""
    header = read_header(line)
    if header is None or not header.rest:
        return line, fence
    return header.marker, f"{fence}\n{header.rest}"


def _is_wrapper(fence: Fence) -> bool:
    return fence.info.lower() in WRAPPERS


def _before(lines: Sequence[str], at: int) -> int:
    """Return the last non-blank line before this one, or -1."""
    at -= 1
    while at >= 0 and not lines[at].strip():
        at -= 1
    return at


def _behind(lines: Sequence[str], at: int) -> int:
    """Return the first non-blank line after this one, or the end."""
    at += 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def _end_of(lines: Sequence[str], fences: Fences, header: int, end: int, around: Fence) -> int | None:
    """Return the end of a block that opened before a header, or None if it extends beyond this content."""
    if end == len(lines):
        return end
    inner: Fence | None = None
    for at in range(header + 1, end):
        fence = fences.get(at)
        if fence is None or fence.mark != around.mark or fence.length < around.length:
            continue
        if inner is None and fence.closes(around) and _is_last_word(lines, fences, at, end):
            return at
        inner = fence if inner is None else (None if fence.closes(inner) else inner)
    return None


def _is_last_word(lines: Sequence[str], fences: Fences, at: int, end: int) -> bool:
    """Return whether the next header, or the fence around it, follows this fence."""
    following = _behind(lines, at)
    if following in fences and _is_wrapper(fences[following]):
        following = _behind(lines, following)
    return following == end
