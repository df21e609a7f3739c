"""A person's message from an editor, converted to a mission with files (pure). Files that it names are not read."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from acp import schema
from acp.helpers import ContentBlock

from bridge.acp.tool_calls import fenced
from bridge.terminal.drawing import one_line
from sprite.protocol.files import picture_kind
from sprite.protocol.messages import MAX_MISSION_CHARS, MAX_PICTURE_BYTES
from sprite.protocol.pasted import Marked, joined

#: Limits per message: attached files, and other blocks such as references.
MAX_FILES = 20
MAX_REFERENCES = 200
#: Longer texts become attached files, as do further ones once the message has this many characters.
MAX_TEXT_CHARS = 20_000
MAX_TEXTS_CHARS = 60_000
_LONGEST_NAME = 200
_LONGEST_URI = 2000
_ENDINGS = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}


class PromptRefusedError(Exception):
    """The message cannot be sent; the message of the error is for people."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file for the agent; `source` is its origin if the editor names it."""

    name: str
    data: bytes
    source: str = ""

    @property
    def is_picture(self) -> bool:
        """Return whether the file is a picture that the model can see beside the text."""
        return len(self.data) <= MAX_PICTURE_BYTES and picture_kind(self.data) is not None


@dataclass(slots=True)
class Draft:
    """A message before its files are uploaded; `message` completes it. Words that the editor added count as pasted."""

    text: str = ""
    pasted: list[tuple[int, int]] = field(default_factory=list)
    files: list[Attachment] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: Characters of the file texts included so far.
    _chars: int = 0

    def take(self, block: ContentBlock) -> None:
        """Add a part of the editor's message. Raise PromptRefusedError if it is unsupported."""
        match block:
            case schema.TextContentBlock(text=text):
                self.text += _sound(text)
            case schema.ResourceContentBlock(uri=uri, name=name):
                self._refer(_reference(uri, name))
                if not _is_public(uri):
                    self.notes.append(f"- {_place(uri)}: only its name was sent.")
            case schema.EmbeddedResourceContentBlock(resource=resource):
                self._refer(_reference(resource.uri))
                self._take_file(resource)
            case schema.ImageContentBlock(data=data, mime_type=mime_type, uri=uri):
                name = _name(uri) if uri else f"image{_ENDINGS.get(mime_type.lower(), '')}"
                self.files.append(Attachment(name, _decoded(data), uri or ""))
            case schema.AudioContentBlock():
                raise PromptRefusedError("The agent cannot receive audio. Send text, pictures or files.")

    def _refer(self, reference: str) -> None:
        self.pasted.append((len(self.text), len(self.text) + len(reference)))
        self.text += reference

    def _take_file(self, file: schema.TextResourceContents | schema.BlobResourceContents) -> None:
        if isinstance(file, schema.BlobResourceContents):
            self.files.append(Attachment(_name(file.uri), _decoded(file.blob), file.uri))
            return
        text = _sound(file.text)
        if len(text) > MAX_TEXT_CHARS or self._chars + len(text) > MAX_TEXTS_CHARS:
            self.files.append(Attachment(_name(file.uri), text.encode(), file.uri))
            return
        self._chars += len(text)
        self.notes.append(f"- {_place(file.uri)}. It says:\n{fenced(text)}")

    def message(self, paths: Sequence[str]) -> Marked:
        """Return the message with the paths of its uploaded files. Raises PromptRefusedError if it is too long."""
        lines = [_arrived(file, path) for file, path in zip(self.files, paths, strict=True)]
        attached = "\n".join((*lines, *self.notes))
        text = self.text + (f"\n\nFrom the editor:\n{attached}" if attached else "")
        message = Marked(text, joined((*self.pasted, (len(self.text), len(text))))).stripped()
        if len(message.text) > MAX_MISSION_CHARS:
            most = f"at most {MAX_MISSION_CHARS:,} are allowed. Attach long text as a file instead."
            raise PromptRefusedError(f"The message has {len(message.text):,} characters; {most}")
        if not message.text:
            raise PromptRefusedError("The message is empty.")
        return message


def read_prompt(blocks: Sequence[ContentBlock]) -> Draft:
    """Return a draft of the editor's message. Raises PromptRefusedError for an unsupported part."""
    if sum(not isinstance(block, schema.TextContentBlock) for block in blocks) > MAX_REFERENCES:
        raise PromptRefusedError(f"A message may mention at most {MAX_REFERENCES} files.")
    draft = Draft()
    for block in blocks:
        draft.take(block)
        if len(draft.files) > MAX_FILES:
            words = f"A message may contain at most {MAX_FILES} pictures and long files. Send several messages."
            raise PromptRefusedError(words)
    return draft


def _arrived(file: Attachment, path: str) -> str:
    origin = f", a copy of {_place(file.source)}" if file.source else ""
    return f"- {path}{origin}"


def _reference(uri: str, name: str = "") -> str:
    """Return the text that refers to a file in a message."""
    shown = one_line(name)[:_LONGEST_NAME] or _name(uri)
    return f"[@{shown}]({one_line(uri)[:_LONGEST_URI]})"


def _place(uri: str) -> str:
    shown = one_line(uri)[:_LONGEST_NAME]
    return shown if _is_public(uri) else f"{shown} on the person's own computer, not on yours"


def _is_public(uri: str) -> bool:
    return uri.lower().startswith(("https://", "http://"))


def _name(uri: str) -> str:
    try:
        path = urlsplit(uri).path
    except ValueError:
        path = ""
    return one_line(unquote(path).rpartition("/")[2])[:_LONGEST_NAME] or "file"


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptRefusedError("A picture or file arrived incomplete. Attach it again.") from error


def _sound(text: str) -> str:
    """Return the text with question marks for lone surrogates, which JSON can express but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
