"""Code fences that stand around a header and its content: they are moved below the header.

There `answer_files` knows them for the content's wrapper and takes them off. Left where they are, the closing one would
become the last line of the file. Only an answer that begins so is read so, update by update, up to the first that has
no fence of its own: in any other a fence before a header closes what came before. A fence around several files, or
around the whole answer, is left to the parser.
"""

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

from sprite.memory.curation.answer_files import MAX_UPDATES, WRAPPERS, Fence, read_fence, read_header

Fences = Mapping[int, Fence]


def fences_below_headers(lines: Sequence[str]) -> list[str]:
    """The answer's lines, with each fence that opens around one header and its content behind that header."""
    headers = [at for at, line in enumerate(lines) if line and read_header(line) is not None]
    fences = {at: fence for at, line in enumerate(lines) if line and (fence := read_fence(line)) is not None}
    moved = list(lines)
    closed = -1
    for header, end in islice(pairwise([*headers, len(lines)]), MAX_UPDATES):
        opening = _before(lines, header)
        around = fences.get(opening)
        # Behind an odd number of fences it closes one of them, in front of the first header as well.
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
    """The header's line and the fence's, in this order; content that began beside the header comes below the fence."""
    header = read_header(line)
    if header is None or not header.rest:
        return line, fence
    return header.marker, f"{fence}\n{header.rest}"


def _is_wrapper(fence: Fence) -> bool:
    return fence.info.lower() in WRAPPERS


def _before(lines: Sequence[str], at: int) -> int:
    """The last line before one that is not blank, -1 if there is none."""
    at -= 1
    while at >= 0 and not lines[at].strip():
        at -= 1
    return at


def _behind(lines: Sequence[str], at: int) -> int:
    """The first line behind one that is not blank, or the end."""
    at += 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def _end_of(lines: Sequence[str], fences: Fences, header: int, end: int, around: Fence) -> int | None:
    """Where the block that opened before a header ends, with that header's content; None if it goes on behind it."""
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
    """Whether behind a fence the next header stands, or the fence around that one."""
    following = _behind(lines, at)
    if following in fences and _is_wrapper(fences[following]):
        following = _behind(lines, following)
    return following == end
