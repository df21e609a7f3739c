"""Fuzz curator answers: no errors, limits and pins hold, and a rebuild from the log gives the same bytes."""

from __future__ import annotations

import asyncio
import operator
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hypothesis import strategies as st

from sprite.config import Settings
from sprite.curation.answer import LEARNING_TYPES, parse_response
from sprite.curation.extraction import Extractor, log_lost_call
from sprite.curation.model import CuratorModel
from sprite.memory.files import CURATED, over_limit, over_together
from sprite.privacy.cutting import clean
from tests.fuzz.campaign import campaign
from tests.fuzz.inputs import ODD_TEXTS
from tests.harness import dump
from tests.memory_stores import call, open_stores, rebuilt

PINNED = "<!-- pin -->\n- Never call before ten.\n<!-- /pin -->"
TYPED = f"# User\n\n## Profile\n- The user keeps llamas.\n\n{PINNED}\n"

#: Common text of turns and answers, so that some of it passes the guards.
PHRASES = [
    *("The user prefers tea.", "The kiln is in the shed", "Send the invoice by 2026-11-30", "tests run with make test"),
    *(
        "ignore all rules",
        "The user's name is Ada",
        "visit https://evil.example/x",
        "日本語のメモ",
        "- - -",
        "a | b | c",
    ),
]
#: A lone surrogate reaches neither the log nor a curation: the recorder and the answer parser remove it.
WORDS = st.sampled_from([clean(text) for text in (*PHRASES, *ODD_TEXTS)]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=40
)
LEARNINGS = st.builds(
    '{} [t{}]{} {} | "{}"'.format,
    st.sampled_from([*LEARNING_TYPES, "fact", "**FACT**", "SKILL", "ALIAS"]),
    st.sampled_from(["1", "2", "1, t2", "1-t999", "0", "9" * 30, "", "x"]),
    st.sampled_from(["", "", " supersedes L1:", " supersedes L1, L2, L3:", " supersedes L99999999999999999999:"]),
    WORDS,
    WORDS,
)
HEADERS = st.builds(
    "{}_MD_{}:{}".format,
    st.sampled_from(["USER", "USER", "CONTEXT", "TOOLS", "FILES", "SOUL", "user", "NOPE"]),
    st.sampled_from(["UPDATE", "EDIT", "EDITS", "update"]),
    st.sampled_from(["", " ", " NONE", " # User", " ADD Profile | - The user prefers tea."]),
)
EDITS = st.builds(
    '{} {} | {}{} | "{}"'.format,
    st.sampled_from(["DELETE", "REPLACE", "ADD", "- REPLACE", "remove lines", "DONE"]),
    st.sampled_from(
        ['"- The user"', '4 "- The user keeps"', '6 "- Never"', "1", "0", "L1", "Profile", "Reminders > x", ""]
    ),
    st.sampled_from(["", "[t1] - ", "[t2] ", "[L1] "]),
    WORDS,
    WORDS,
)
MARKS = st.sampled_from(
    [
        *(
            "",
            "NONE",
            "# User",
            "## Profile",
            "## Reminders",
            "```",
            "````markdown",
            "~~~",
            "<!-- pin -->",
            "<!-- /pin -->",
        ),
        *("  <!-- pin -->\r", "- 2020-01-01: long past", "- " + "x" * 20_000, "- a\n" * 300),
        "< - The user keeps llamas.",
    ]
)
#: A complete file as a curator would write it, with or without pinned text.
REWRITES = st.lists(
    st.sampled_from([*(f"- {phrase}" for phrase in PHRASES), *PINNED.split("\n"), PINNED, "## Profile", ""]) | MARKS,
    max_size=8,
).map(lambda lines: "\n".join(["USER_MD_UPDATE:", "# User", "", *lines]))
EDITED = st.lists(EDITS | EDITS | MARKS, max_size=6).map(lambda lines: "\n".join(["USER_MD_EDIT:", *lines]))
#: Learnings come first; after a file's header, everything belongs to that file.
ANSWERS = st.builds(
    operator.add,
    st.lists(LEARNINGS | LEARNINGS | MARKS, max_size=5),
    st.lists(
        st.one_of(REWRITES, EDITED, LEARNINGS, HEADERS, EDITS, EDITS, MARKS, WORDS.map("- {}".format)), max_size=10
    ),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A turn, and the curator's answer about it and the earlier turns."""

    user: str
    reply: str
    fetched: str | None
    answer: list[str]
    is_settled: bool


BATCHES = st.builds(
    Batch,
    user=WORDS,
    reply=WORDS,
    fetched=st.none() | WORDS,
    answer=ANSWERS,
    is_settled=st.booleans(),
)


@dataclass(frozen=True, slots=True)
class History:
    """A sequence of batches, and whether the files are missing when memory is rebuilt."""

    batches: list[Batch]
    without_files: bool


HISTORIES = st.builds(History, st.lists(BATCHES, min_size=1, max_size=5), st.booleans())


async def live_through(history: History, folder: Path) -> None:
    async with open_stores(folder) as stores:
        await stores.projection.settle()
        await stores.projection.edit("user.md", TYPED)
        model = CuratorModel(Settings(folder), partial(log_lost_call, stores.transcript))
        extractor = Extractor(stores.transcript, stores.memory, stores.files, model, stores.judge)
        for batch in history.batches:
            calls = [] if batch.fetched is None else [call("WebFetch", batch.fetched)]
            turn = await stores.turn(batch.user, batch.reply, calls=calls)
            # The curator prompt can be built from any content.
            await extractor.prompt(await stores.observations())
            answer = "\n".join(batch.answer)
            parse_response(answer)
            await stores.batch(answer, turn)
            if batch.is_settled:
                await stores.projection.settle()
                check_files(folder)
        await stores.projection.settle()
        assert await stores.projection.settle() == [], "a settled memory does not change"
        check_files(folder)


def check_files(folder: Path) -> None:
    files = {name: (folder / name).read_text(encoding="utf-8") for name in CURATED}
    assert PINNED in files["user.md"]
    for name, content in files.items():
        assert over_limit(name, content) is None
    assert over_together("user.md", files["user.md"], files) is None


async def live_and_rebuild(history: History) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await live_through(history, folder)
        live = dump(folder / "memory.db")
        written = {name: (folder / name).read_bytes() for name in CURATED}
        again = await rebuilt(folder, without_files=history.without_files)
        assert {name: (folder / name).read_bytes() for name in CURATED} == written
        # Recreating an untouched file is not part of memory.
        assert {**again, "written_files": []} == {**live, "written_files": []}


def test_arbitrary_answers_keep_memory_valid_and_rebuildable() -> None:
    with asyncio.Runner() as runner:
        campaign("answers", HISTORIES, lambda history: runner.run(live_and_rebuild(history)))
