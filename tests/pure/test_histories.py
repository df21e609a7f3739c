"""Test histories for curation: well-formed and consistent."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain, pairwise

import msgspec
import pytest

from benchmarks.history import ACTIONS, FOLDER, LEARNINGS, Closable, History, load, matches, shipped
from sprite.memory.files import CURATED

PLACES = {*CURATED, ACTIONS, LEARNINGS}
HISTORIES = {path.stem: load(path) for path in shipped()}


@pytest.fixture(params=HISTORIES)
def history(request: pytest.FixtureRequest) -> History:
    return HISTORIES[request.param]


def test_histories_are_large_enough(history: History) -> None:
    assert len(history.turns) >= 70
    assert len({turn.session for turn in history.turns}) >= 4
    assert len(history.wanted) >= 50
    assert len(history.unwanted) >= 18
    assert len(history.questions) >= 30


def test_turns_are_numbered_by_session(history: History) -> None:
    assert [turn.n for turn in history.turns] == list(range(1, len(history.turns) + 1))
    assert all(earlier.at < later.at for earlier, later in pairwise(history.turns))
    changes = sum(earlier.session != later.session for earlier, later in pairwise(history.turns))
    assert changes + 1 == len({turn.session for turn in history.turns})


def test_ids_are_unique(history: History) -> None:
    ids = Counter([*(item.id for item in history.wanted), *(item.id for item in history.unwanted)])
    assert [id_ for id_, times in ids.items() if times > 1] == []


def test_patterns_compile(history: History) -> None:
    listed = [*(item.patterns for item in history.wanted), *(item.patterns for item in history.unwanted)]
    listed += [[asked.pattern] for asked in history.questions]
    listed += [[action.pattern] for action in history.closable]
    assert all(listed)
    for pattern in chain.from_iterable(listed):
        re.compile(pattern)


def test_wanted_facts_occur_and_match_their_patterns(history: History) -> None:
    for item in history.wanted:
        assert item.where
        assert set(item.where) <= PLACES
        assert matches(item.patterns, item.what), item.what


def test_wanted_facts_are_never_unwanted(history: History) -> None:
    for item in history.wanted:
        assert [other.id for other in history.unwanted if matches(other.patterns, item.what)] == []


def test_questions_cite_existing_turns(history: History) -> None:
    for asked in history.questions:
        turns = [msgspec.json.encode(history.turns[n - 1]).decode() for n in asked.turns]
        assert matches([asked.pattern], " ".join(turns)), asked.question


def test_actions_are_done_after_request(history: History) -> None:
    assert history.closable
    for action in history.closable:
        assert 1 <= action.asked < action.done <= len(history.turns)
        assert matches([action.pattern], action.what), action.what


def test_external_history_has_closable_actions_format() -> None:
    for path in FOLDER.glob("*.closable.json"):
        actions = msgspec.json.decode(path.read_bytes(), type=list[Closable])
        assert actions
        assert all(action.asked < action.done and re.compile(action.pattern) for action in actions)
