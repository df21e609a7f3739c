"""The person's files in the terminal: listing, download and deletion after a plain yes."""

from __future__ import annotations

from sprite.protocol.memory import DeleteUserFileResult, UserFilesResult
from sprite.protocol.shapes import UserFile
from tests.chat_stage import Chat, in_a_pipe, in_a_terminal


async def asked(chat: Chat, payload: dict[str, object]) -> str:
    """Check the terminal's next request, and return its id."""
    message = await chat.visitor.receive("memory")
    assert message["payload"] == payload
    return str(message["id"])


async def test_files_are_listed_newest_first() -> None:
    """The terminal counts the files that it does not list."""
    files = [UserFile(f"documents/{number}.pdf", 12_345, 1_000_000.0) for number in range(45)]
    hostile = UserFile("documents/a\x1b[2J\u202eb\n/quit", 1, 1.0)
    async with in_a_pipe() as chat:
        chat.type("/files\n")
        used = await asked(chat, {"op": "user_files"})
        await chat.visitor.send(UserFilesResult([hostile, *files], 10), reply_to=used)
        await chat.until_seen("and 16 older files; /files FOLDER lists one folder")
        for words in ("documents/a[2Jb /quit", "documents/38.pdf", "12 KB"):
            assert words in chat.seen
        assert "documents/39.pdf" not in chat.seen
        assert "\x1b[2J" not in chat.seen
        chat.type("/files ocr/\n")
        used = await asked(chat, {"op": "user_files", "folder": "ocr"})
        await chat.visitor.send(UserFilesResult([]), reply_to=used)
        await chat.until_seen("no files yet in ocr/")
        chat.type("/get documents/none.pdf\n")
        await chat.until_seen("There is no file documents/none.pdf.")
        chat.type("/rm documents/0.pdf\n")
        await chat.until_seen("/rm needs a person at a terminal")


async def test_file_deletion_requires_plain_yes() -> None:
    async with in_a_terminal() as chat:
        chat.type("/rm documents/lease.pdf\r")
        await chat.until_seen("Delete documents/lease.pdf?")
        chat.type("y\r")
        await chat.until_seen("Nothing was deleted.")
        chat.type("/rm documents/rent.pdf\r")
        await chat.until_seen("Delete documents/rent.pdf?")
        chat.type("yes\r")
        used = await asked(chat, {"op": "delete_user_file", "path": "documents/rent.pdf"})
        await chat.visitor.send(DeleteUserFileResult("documents/rent.pdf"), reply_to=used)
        await chat.until_seen("documents/rent.pdf is deleted")
