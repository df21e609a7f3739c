"""Which parts of a person's message are their own words, and which were only pasted by them (pure).

Anybody may have written what is pasted: a mail, a chat, a page. It is known by its marks (quoted lines, fences,
quotation marks, a mail's header, a chat's times, a letter's form) or by how it is introduced ("got this: ..."). A list
or a plan that the person calls theirs is theirs, whatever it looks like. In doubt it counts as pasted: what a person
really means can be said in their own words, and then it counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Fewer words between quotation marks name something; more are somebody's sentence.
SENTENCE_WORDS = 6
#: An introduction is short; a longer line that ends with a colon is part of a text.
_LONGEST_INTRODUCTION, _INTRODUCTION_CHARS = 30, 300

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_QUOTED_LINE = re.compile(r"[ \t]*>")
_LIST_ITEM = re.compile(r"\s*(?:[-*+\u2022]|\d{1,2}[.)])\s")
_INDENTED = re.compile(r"(?:\t| {3,})\S")
#: A rule of signs; it ends a text that a rule began.
_RULE = re.compile(r"\s*[-=_*]{4,}\s*\Z")
_FORWARDED = re.compile(
    r"[-=_*>\s]*\b(?:original message|forwarded message|begin forwarded|ursprüngliche nachricht|"
    r"weitergeleitete nachricht|message d'origine|message transféré|mensaje original|mensaje reenviado|"
    r"oorspronkelijk bericht|doorgestuurd bericht)\b[\s:]*[-=_*]*",
    re.IGNORECASE,
)
#: Who a mail is from, in its header; what else stands there is no sign by itself ("Subject: reminders").
_SENDER = re.compile(r"\s*(?:from|von|de|van|från|da|absender|expediteur|remitente)\s*:\s*\S", re.IGNORECASE)
_HEADER = re.compile(
    r"\s*(?:to|cc|date|sent|subject|an|datum|gesendet|betreff|à|envoyé|objet|para|fecha|enviado|asunto|aan|"
    r"verzonden|onderwerp)\s*:\s*\S",
    re.IGNORECASE,
)
_ATTRIBUTION = re.compile(
    r"\s*(?:on|am|le|el|op)\b.{4,120}\b(?:wrote|schrieb|a écrit|escribió|schreef)\b[^:\n]{0,60}:\s*\Z",
    re.IGNORECASE,
)
_TIME = r"\d{1,2}[:.]\d{2}(?::\d{2})?(?:\s?[ap]m)?"
#: "[10:41] Piet: hello", "Piet (10:41): hello", "10:41 <piet> hello"; and "Dario Pinto  9:12 AM" alone on its line.
_CHAT = re.compile(
    rf"\s*(?:\[?{_TIME}\]?[\s,\u2013-]*<?(?P<first>[^\s:>][^:>\n]{{0,30}})[:>]\s|"
    rf"<?(?P<second>[^\s:>\[(][^:>\[(\n]{{0,30}}?)>?\s*[\[(]{_TIME}[\])]\s*:)",
    re.IGNORECASE,
)
_SPEAKER = re.compile(rf"\s*[^\s\d][^\n:.]{{1,40}}?\s+[\[(]?{_TIME}[\])]?\s*\Z", re.IGNORECASE)
_MYSELF = frozenset({"me", "i", "ich", "moi", "yo", "ik", "jag"})
_SALUTATION = re.compile(
    r"\s*(?:dear|hi|hello|hey|hallo|hej|liebe[rs]?|sehr geehrte[rs]?|guten tag|bonjour|chère?|madame|monsieur|"
    r"estimad[oa]s?|hola|beste|geachte)\b[^.:?\n]{0,60}[,!]?\s*\Z",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"\s*(?:(?:with )?(?:kind|best|warm|many)(?:est)? (?:regards|wishes|greetings)|regards|yours|sincerely|cheers|"
    r"mit (?:freundlichen|besten) gr|viele gr|liebe gr|beste gr|cordialement|bien à vous|salutations|saludos|"
    r"atentamente|(?:met )?(?:vriendelijke )?groet)",
    re.IGNORECASE,
)
#: Quotation marks around a sentence. A plain single one is an apostrophe unless something introduces it.
_QUOTATION = re.compile(
    # Each stops at the next sign that opens one, so that unclosed ones take no time.
    '"[^"]+"|\u201c[^\u201d\u201c]+[\u201d\u201c]|\u201e[^\u201c\u201d\u201e]+[\u201c\u201d]|\u00ab[^\u00bb\u00ab]+\u00bb|'
    "\u2018[^\u2019\u2018]+\u2019(?!\\w)|(?:(?<=[:\n]\\s)|(?<=:))'[^\n]{1,1000}?'(?!\\w)"
)
#: What tells that the words behind it came from somebody: it was received, or it was said.
_RECEIVED = re.compile(
    r"\b(?:got|gotten|received|forwarded|arrived|came (?:in|through|up)|wrote|writes|written|says?|said|sent|sends|"
    r"posted|texted|emailed|mailed|messaged|replied|replies|answered|asks|asked|reads|quote|"
    r"(?:e-?mail|mail|message|msg|text|letter|note|reply|answer|review|comment|ticket|post|slack|whatsapp|teams|discord|"
    r"chat|thread|article|page|memo|sms) ?(?:\w+ ){0,2}?(?:from|of|by|on|in|says|:)|from (?:the )?\w+|"
    r"kam|bekommen|erhalten|schrieb|schreibt|geschrieben|gesagt|sagt|meint|nachricht|brief|"
    r"reçu|écrit|dit|recibí|escribió|escribe|dice|kreeg|gekregen|schreef|schrijft|zegt)\b",
    re.IGNORECASE,
)
#: What asks for an opinion about words that follow.
_SHOWN = re.compile(
    r"\b(?:what do you (?:think|say|make)|look at this|check this|see below|can you read|translate|summari[sz]e|"
    r"proofread|"
    r"was hältst du|was sagst du|schau mal|übersetz|tu en penses quoi|qu'en penses|traduis|qué te parece|traduce|"
    r"wat vind je|vertaal)",
    re.IGNORECASE,
)
#: What calls the text that follows the person's own.
_OWN = re.compile(
    r"\b(?:my|our|mein\w{0,2}|unser\w{0,2}|mon|ma|mes|notre|nos|mis?|nuestr\w{1,2}|mijn|onze?)\s+(?:\w+\s+){0,2}?"
    r"(?:plans?|lists?|rules?|notes?|drafts?|schedule|order|template|format|config|settings?|style|steps|prices?|hours|"
    r"conventions?|preferences?|wishes|version|setup|requirements?|agenda|regeln?|liste|notizen|preise|zeiten|entwurf|"
    r"vorgaben|règles|prix|notas?|reglas|precios|lista|lijst|regels|prijzen)\b|"
    r"\b(?:like this|how (?:i|we) (?:want|like|do)|from now on|(?:i|we) use|as follows|this way|the following|"
    r"as always|these rules|house rules|ground rules|remember|"
    r"please (?:use|keep|note|make|add|put)|so wie hier|wie folgt|immer so|comme ceci|así|zo)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Message:
    """A person's message: what they say, and what they only show, each piece as it stands there."""

    own: str
    pasted: tuple[str, ...]


def read_message(text: str) -> Message:
    """Tells a person's own words from what they pasted."""
    lines = text.split("\n")
    theirs = _Marks(lines).pasted()
    own: list[str] = []
    pasted: list[str] = []
    for at, line in enumerate(lines):
        if not theirs[at]:
            own.append(line)
        elif at and theirs[at - 1]:
            pasted[-1] += f"\n{line}"
        else:
            pasted.append(line)
            own.append("")
    return _without_quotations("\n".join(own), pasted)


def _without_quotations(own: str, pasted: list[str]) -> Message:
    """Takes out sentences between quotation marks, and what an introduction introduces on its own line."""

    def take(found: re.Match[str]) -> str:
        if len(_WORD.findall(found[0])) < SENTENCE_WORDS:
            return found[0]
        pasted.append(found[0])
        return "\n"

    lines = []
    for line in _QUOTATION.sub(take, own).split("\n"):
        head, colon, rest = _introduced(line)
        if colon and len(_WORD.findall(rest)) >= SENTENCE_WORDS:
            pasted.append(rest)
            line = head + colon  # noqa: PLW2901 - what is left of it
        lines.append(line)
    return Message("\n".join(lines), tuple(pasted))


def _introduced(line: str) -> tuple[str, str, str]:
    """A line in its introduction, the colon, and what somebody else said; without a colon if nobody did."""
    for colon in re.finditer(r":\s", line[:_INTRODUCTION_CHARS]):
        if _introduces(line[: colon.end()]):
            return line[: colon.start()], ":", line[colon.end() :]
    return line, "", ""


def _introduces(line: str) -> bool:
    """Whether a line says that somebody else's words follow."""
    said = line.strip()
    if not said or len(_WORD.findall(said)) > _LONGEST_INTRODUCTION:
        return False
    if _RECEIVED.search(said):
        return True
    return _SHOWN.search(said) is not None and not _OWN.search(said)


class _Marks:
    """Which lines of a message were pasted."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._theirs = [False] * len(lines)

    def pasted(self) -> list[bool]:
        """For each line whether somebody else wrote it."""
        at = 0
        while at < len(self._lines):
            if (fence := _FENCE.match(self._lines[at])) is not None and self._is_own(at):
                # What the person calls theirs is read as theirs.
                at = self._closing(at, fence[1])
                continue
            end = self._end_of_paste(at)
            if end > at:
                self._theirs[at:end] = [True] * (end - at)
            at = max(end, at + 1)
        return self._theirs

    def _end_of_paste(self, at: int) -> int:
        """Where the paste ends that begins on a line; the line itself if none does."""
        return max(self._end_by_marks(at), self._end_by_form(at), at)

    def _end_by_marks(self, at: int) -> int:
        line = self._lines[at]
        if (fence := _FENCE.match(line)) is not None:
            return self._closing(at, fence[1])
        if _QUOTED_LINE.match(line):
            return at + 1
        if _FORWARDED.fullmatch(line) or self._is_mail(at):
            return self._end_of_mail(at)
        if _ATTRIBUTION.match(line):
            return len(self._lines)
        if _INDENTED.match(line) and self._begins_block(at) and not self._is_own(at):
            return self._end_of_indented(at)
        return at

    def _end_by_form(self, at: int) -> int:
        line = self._lines[at]
        if (chat := _CHAT.match(line)) is not None:
            speaker = (chat["first"] or chat["second"] or "").strip().casefold()
            return at if speaker in _MYSELF else at + 1
        if _SPEAKER.match(line) and at + 1 < len(self._lines) and self._lines[at + 1].strip():
            return self._end_of_paragraph(at)
        if at and _SALUTATION.match(line):
            return self._end_of_letter(at)
        if at and self._follows_introduction(at):
            return self._end_of_introduced(at)
        return at

    def _begins_block(self, at: int) -> bool:
        """Whether an indented line begins a block: not where a sentence or a list goes on."""
        before = self._lines[at - 1].strip() if at else "-"
        return not _LIST_ITEM.match(self._lines[at]) and (not before or before.endswith(":") or self._theirs[at - 1])

    def _is_own(self, at: int) -> bool:
        """Whether the line before calls what follows the person's own."""
        before = self._before(at)
        return _OWN.search(before) is not None and not _RECEIVED.search(before)

    def _before(self, at: int) -> str:
        """The last line before this one that says something."""
        return next((line for line in reversed(self._lines[:at]) if line.strip()), "")

    def _follows_introduction(self, at: int) -> bool:
        if self._theirs[at - 1] or not self._lines[at].strip():
            return False
        before = self._before(at).strip()
        if before.endswith(":"):
            return _introduces(before)
        # "got this today, what do you think" and an empty line.
        return not self._lines[at - 1].strip() and _RECEIVED.search(before) is not None and bool(_SHOWN.search(before))

    def _is_mail(self, at: int) -> bool:
        """Whether a mail's header begins here: who it is from, and another of its lines or an address."""
        near = self._lines[at : at + 4]
        if not (_SENDER.match(near[0]) or _HEADER.match(near[0])):
            return False
        if not any(_SENDER.match(line) for line in near):
            return False
        return "@" in near[0] or sum(bool(_SENDER.match(line) or _HEADER.match(line)) for line in near) > 1

    # --- where it ends ---

    def _closing(self, at: int, fence: str) -> int:
        rest = range(at + 1, len(self._lines))
        return next((end + 1 for end in rest if self._lines[end].strip().startswith(fence[:3])), len(self._lines))

    def _end_of_paragraph(self, at: int) -> int:
        return next((end for end in range(at, len(self._lines)) if not self._lines[end].strip()), len(self._lines))

    def _end_of_indented(self, at: int) -> int:
        rest = range(at, len(self._lines))
        return next((end for end in rest if self._lines[end].strip() and not _INDENTED.match(self._lines[end])),
                    len(self._lines))  # fmt: skip

    def _end_of_mail(self, at: int) -> int:
        """A mail goes on to the message's end, unless a rule closes it that is no part of it."""
        rest = range(at + 1, len(self._lines))
        return next((end + 1 for end in rest if _RULE.match(self._lines[end])), len(self._lines))

    def _end_of_letter(self, at: int) -> int:
        """A letter goes on to its signature with the names under it, or to the message's end."""
        rest = range(at + 1, len(self._lines))
        signed = next((end for end in rest if _SIGNATURE.match(self._lines[end])), None)
        return len(self._lines) if signed is None else self._end_of_paragraph(signed)

    def _end_of_introduced(self, at: int) -> int:
        first = self._lines[at].lstrip()
        if _FENCE.match(first) or first[0] in "\"\u201c\u201e\u00ab'\u2018>":
            return at  # its own marks tell where it ends
        if self._lines[at - 1].strip() and _LIST_ITEM.match(self._lines[at]):
            return self._end_of_paragraph(at)
        signed = self._end_of_letter(at)
        return signed if signed < len(self._lines) else self._end_of_last(at)

    def _end_of_last(self, at: int) -> int:
        """Without any mark of its end: all of it but a last paragraph that only asks."""
        last = len(self._lines)
        while last > at and self._lines[last - 1].strip():
            last -= 1
        closing = " ".join(self._lines[last:]).strip()
        return last if last > at and closing.endswith("?") and "." not in closing else len(self._lines)
