"""Selection of removed and kept sentences."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sprite.forget.scrub import Said, Scrubber, Spared, bare
from sprite.memory.words import FORGOTTEN

_SETS = st.frozensets(st.sampled_from([f"word{letter}" for letter in "abcdefgh"]), min_size=1)


@settings(max_examples=5 * settings().max_examples)
@given(st.lists(st.tuples(_SETS, st.booleans()), max_size=12), _SETS, _SETS, st.sampled_from([0.5, 0.6, 2 / 3, 1.0]))
def test_spared_index_matches_comparison_with_all(
    learnings: list[tuple[frozenset[str], bool]], words: frozenset[str], rest: frozenset[str], close: float
) -> None:
    texts = [(" ".join(sorted(each)), is_quote) for each, is_quote in learnings]
    spared = Spared(Said("", text) if is_quote else Said(text) for text, is_quote in texts)
    rest &= words
    wanted: set[str] = set()
    for each, is_quote in learnings:
        common = len(each & words)
        says = common >= 0.8 * len(each)
        is_close = common > close * len(each | words) or (rest and each >= rest and common >= 0.5 * len(each))
        if len(each) > 1 and common and (says or (is_close and not is_quote)):
            wanted |= each & words
    everything = words | {"another"}
    assert spared.kept_in(words, rest, close, of=everything, is_gone=lambda _: False) == wanted
    found = spared.kept_in(words, rest, close, of=rest, is_gone=lambda _: False)
    assert found == wanted or (found >= rest and found <= wanted)
    assert spared.is_said_in(words) == any(
        len(each & words) >= 0.8 * len(each) for each, is_quote in learnings if len(each) > 1 and not is_quote
    )


def test_sentence_with_part_of_learning_goes() -> None:
    scrubber = Scrubber(gone=[Said("The user keeps four bee hives near Graz")])
    assert scrubber.sentences("Four hives. She likes tea.") == f"{FORGOTTEN} She likes tea."


def test_sentence_with_more_than_learning_loses_it() -> None:
    scrubber = Scrubber(gone=[Said("The user keeps four bee hives near Graz")])
    left = scrubber.sentences("Berta keeps four bee hives near Graz and paints boats, trains, castles, dragons in oil.")
    assert FORGOTTEN in left
    assert "hives" not in left


def test_bare_text_drops_only_leading_subject() -> None:
    assert bare("- The user founded the user group.") == "founded the user group"
    assert bare("Ask the user before a merge.") == "Ask the user before a merge"
