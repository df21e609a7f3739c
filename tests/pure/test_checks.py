"""Numbers, addresses and letters of a line compared with its sources."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.curation.provenance.checks import Given, flaw

DAY = date(2026, 11, 23)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        # Spelled numbers in seven languages
        ("I have twenty-one goats", "21 goats"),
        ("ich habe einundzwanzig Ziegen", "21 goats"),
        ("j'ai vingt et un chats", "21 cats"),
        ("tengo veintiuno", "21"),
        ("ik heb eenentwintig geiten", "21 goats"),
        ("ho ventuno capre", "21 goats"),
        ("tenho vinte e uma cabras", "21 goats"),
        # Thousands, decimals, versions
        ("ten thousand euros", "10000 euros"),
        ("10.000 euro", "10,000 euros"),
        ("10 000 euro", "10000 euros"),
        ("10'000 Franken", "10 000 francs"),
        ("1.000.000,50 kr", "1000000.50 kr"),
        ("1.5 hours", "1,5 hours"),
        ("3,11 kr", "3.11 kr"),
        ("it runs on v1.2.3 and Python 3.11", "v1.2.3, Python 3.11"),
        ("Node v22.20.0", "Node 22.20"),
        # Days and times
        ("see you tomorrow", "2026-11-24"),
        ("see you in two weeks", "2026-12-07"),
        ("on the 3rd of May", "2027-05-03"),
        ("am 3. Mai", "2027-05-03"),
        ("am dritten Mai", "2027-05-03"),
        ("on 2028-02-11", "2028-02-11"),
        ("see you tomorrow", "on 24 November 2026"),
        ("see you in two weeks", "on Dec 7"),
        ("am dritten Mai", "on 3 May 2027"),
        ("half past seven", "19:30"),
        ("halb acht", "7:30"),
        ("a quarter to nine", "8:45"),
        ("8pm", "20:00"),
        ("um 19.30 Uhr", "19:30"),
        ("at 7:20", "07:20"),
        # Addresses and accounts
        ("write to Ada@kilns.example", "mail ada@kilns.example"),
        ("write to ada@kilns.example", "her host is kilns.example"),
        ("see https://kilns.example/pay?to=me.", "https://kilns.example/pay?to=me"),
        ("I am @ada_k", "@ada_k"),
        ("IBAN DE89 3704 0044 0532 0130 00", "DE89370400440532013000"),
        ("DE89370400440532013000", "DE89 3704 0044 0532 0130 00"),
        ("+46 70 123 45 67", "+46 701 23 45 67"),
        ("the parcel ke 0412", "KE-0412"),
        ("two T200s", "2 of T200"),
    ],
)
def test_said_number_or_address_is_found(source: str, line: str) -> None:
    assert Given(["x", source]).lacks(line, DAY) is None


@pytest.mark.parametrize(
    ("source", "line", "lacking"),
    [
        ("I have twenty-one goats", "22 goats", "22"),
        ("10 000 euro", "100000 euros", "100000"),
        ("15 hours", "1.5 hours", "1.5"),
        ("12 hours", "1.2 hours", "1.2"),
        ("costs 10 euros", "10.30 euros", "10.30"),
        ("Python 3.11", "Python 3.12", "3.12"),
        ("v1.2.3", "v1.2.4", "v1.2.4"),
        ("see you sometime", "2026-12-08", "2026-12-08"),
        ("on 2028-02-11", "2028-02-12", "2028-02-12"),
        ("soon", "2026-13-01", "2026-13-01"),
        ("see you sometime", "on 8 December 2026", "2026-12-08"),
        ("see you sometime", "October 3", "2026-10-03"),
        ("see you tomorrow", "24 goats", "24"),
        ("soon", "31 February", "31"),
        ("at 7", "07:20", "07:20"),
        ("at 7:20", "09:20", "09:20"),
        ("write to ada@kilns.example", "ida@kilns.example", "ida@kilns.example"),
        ("write to m.ada@kilns.example", "ada@kilns.example", "ada@kilns.example"),
        ("see kilns.example", "https://kilns.example/pay", "https://kilns.example/pay"),
        ("https://kilns.example/pay", "https://kilns.example/pay?to=me", "https://kilns.example/pay?to=me"),
        ("bank.example.evil.net", "bank.example", "bank.example"),
        ("mybank.example", "bank.example", "bank.example"),
        ("I am @ada_k", "@ada_l", "@ada_l"),
        ("DE89370400440532013000", "DE89 3704 0044 0532 0130 01", "DE89 3704 0044 0532 0130 01"),
        ("KE-0412", "KE-0413", "KE-0413"),
        ("KE-0412", "KE-041", "KE-041"),
        ("T200", "T20", "T20"),
    ],
)
def test_other_number_or_address_is_lacking(source: str, line: str, lacking: str) -> None:
    assert Given([source]).lacks(line, DAY) == lacking


NUMBERS = st.sampled_from(
    ["7", "3.11", "07:20", "7.20", "2.10.5", "v1.2.3", "KE-0412", "DE89 3704 0044 0532", "1234567.50", "10 000", "1/3",
     "2026-02-30", "+46 70 123", "192.168.10.20", "a@b.example", "https://k.example/p?x=1", "@ada_k", "-5", "10:30:15",
     "699425255d56"]
)  # fmt: skip


@given(st.lists(NUMBERS | st.text("abc -,'", max_size=4), max_size=6).map(" ".join))
def test_literal_sentence_lacks_nothing(line: str) -> None:
    assert Given([line]).lacks(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "every or\u00adder is placed",
        "ev\u200bery order",
        "\u202egnp.exe cats",
        "every \U000e0041order",
        "\u0435v\u0435ry order",
        "\U0001d41e\U0001d42f\U0001d41e\U0001d42b\U0001d432 order",
        "\uff45\uff56\uff45\uff52\uff59 order",
        "<!-- every --> order",
        "order aGVsbG8gd29ybGQgYW5kIGV2ZXJ5dGhpbmc=",
        "order 0123456789abcdef0123456789abcdef",
        "- - -",
        "e v e r y",
    ],
)
def test_disguised_line_is_refused(line: str) -> None:
    assert flaw(line, None) is not None


@pytest.mark.parametrize(
    "line",
    [
        "- Möchte geduzt werden, wie Zoë Müller-Łukasiewicz",
        "- Живёт в Москве",
        "- Lives in 東京",
        "- Emoji 👩\u200d🔧 are fine",
        "- Uses get_user, getUser and v2.1",
        "- Reports are in /home/ada/studio/reports/2026/november",
        "- Invoices are in ~/Dokumente/Räkningar_2026/kiln-and-glaze.ods",
    ],
)
def test_honest_text_of_any_language_passes(line: str) -> None:
    assert flaw(line, None) is None


def test_key_of_the_source_passes() -> None:
    key = "abcdef0123456789abcdef0123456789"
    assert flaw(f"- The key is {key}", Given([f"my key: {key}"])) is None
