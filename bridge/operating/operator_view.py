"""The operator's page as HTML: people and their sprites, and the newest lines of the audit log. Pure.

It uses plain forms and no script: it works by keyboard, on a phone, and without JavaScript. All text from a sprite, a
host or a person is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.operating.audit import told
from bridge.operating.status import ago, damaged_words, estimate, held_by, stored, until
from bridge.store.losses import moment

if TYPE_CHECKING:
    from bridge.door.people import Person
    from bridge.operating.acts import WaysIn
    from bridge.operating.audit import AuditLog
    from bridge.operating.status import Row

_MAX_DETAIL_CHARACTERS = 400
STYLE = """
main { max-width: 72rem; margin-top: 2.5rem; padding-bottom: 4rem; }
h2 { font-size: 1.15rem; margin: 0; overflow-wrap: anywhere; }
.section { font-size: 1.25rem; margin: 2.4rem 0 .8rem; }
.people { list-style: none; padding: 0; display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); }
.people { gap: 1rem; }
.people > li { background: var(--box); border-radius: .6rem; padding: 1rem 1.1rem; min-width: 0; }
.people button.quiet, .people code { background: var(--back); }
.tag { color: var(--soft); margin: .1rem 0 .6rem; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .15rem 1rem; margin: 0 0 .8rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.acts { display: flex; flex-wrap: wrap; gap: .5rem; align-items: flex-start; }
.acts form { margin: 0; display: block; }
button { min-height: 2.5rem; cursor: pointer; }
details[open] { flex-basis: 100%; }
summary { cursor: pointer; padding: .45em .2em; min-height: 1.6rem; }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 2px; }
form.find { flex-wrap: wrap; gap: .6rem; }
input { font: inherit; padding: .4em .6em; border: 1px solid var(--soft); border-radius: .4em; }
input { background: var(--back); color: var(--text); min-width: 0; max-width: 100%; }
.log { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; vertical-align: top; border-bottom: 1px solid var(--box); }
td { overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; }
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A person and their sprite's row (None: they have no access).

    `kept_at` is set if their machine may hang: the time of its replica (Unix seconds).
    """

    person: Person
    row: Row | None
    kept_at: float | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """Data of the page for `reader`; `now` in Unix seconds.

    `people` are the first of the `matching` ones; `trouble` describes current problems.
    """

    reader: str
    people: Sequence[Seen]
    matching: int
    wanted: str
    audit: AuditLog
    trouble: str
    token: str
    now: float


def drawn(shown: Shown) -> str:
    """Return the page's body."""
    spent = [seen.row for seen in shown.people if seen.row is not None]
    today, month = sum(row.today_usd for row in spent), sum(row.month_usd for row in spent)
    total = f"{shown.matching} people; those shown spent ${today:.2f} today and ${month:.2f} this month (UTC)."
    parts = [
        f'<h2 class="section">People and their sprites</h2><p>{total}</p>',
        *(f'<p role="status">{_text(line)}</p>' for line in shown.trouble.splitlines()),
        _find(shown),
        f'<ul class="people">{"".join(_card(seen, shown) for seen in shown.people)}</ul>',
        _add(shown.token),
        '<h2 class="section">What operators did last</h2>',
        _log(shown.audit),
        '<p><code>python -m bridge audit</code> shows all of it.</p><p><a href="/">To your own agent</a></p>',
    ]
    return "".join(parts)


def may_hang(row: Row) -> bool:
    """Return whether its machine exists, a replica of it exists, and this bridge has no link to it."""
    return row.state != "absent" and row.store_behind is not None and row.link != "ready"


def ways_in(name: str, ways: WaysIn, token: str) -> str:
    """Return the body of the page with a person's login methods."""
    taken: list[tuple[str, float, float | None, str, str]] = [
        (f"{each.subject} at {each.issuer}", each.created_at, None, "unlink-identity", f"{each.issuer} {each.subject}")
        for each in ways.identities
    ]
    taken += [
        (f"Passkey {each.label}", each.created_at, each.used_at, "remove-passkey", each.id) for each in ways.passkeys
    ]
    listed = [
        _way(name, _text(what), made, used, _button(act, name, "Take it off", token, which=which))
        for what, made, used, act, which in taken
    ]
    shown = f'<ul class="people">{"".join(listed)}</ul>' if listed else "<p>By login links and tokens alone.</p>"
    return (
        f"<p>Who logs in by an identity that was taken off {_text(name)} is somebody new here.</p>{shown}"
        f'<p><a href="/operator#{_text(name)}">Back to the operator\'s page</a></p>'
    )


def _way(name: str, what: str, created_at: float, used_at: float | None, button: str) -> str:
    used = "" if used_at is None else f", last used {_day(used_at)}"
    return (
        f'<li><h2>{what}</h2><p class="tag">since {_day(created_at)}{used}</p>'
        f'<div class="acts"><details><summary aria-label="Take off: {what}">Take off</summary>'
        f"<p>All browsers of {_text(name)} are logged out.</p>{button}</details></div></li>"
    )


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def _find(shown: Shown) -> str:
    more = ""
    if shown.matching > len(shown.people):
        more = f"<p>These are the first {len(shown.people)} of {shown.matching}. Look for a name to see others.</p>"
    return (
        '<form class="find" method="get" role="search"><label for="q">Look for a name</label>'
        f'<input id="q" name="q" type="search" value="{_text(shown.wanted)}" maxlength="39" autocapitalize="none">'
        f'<button class="quiet">Look</button></form>{more}'
    )


def _add(token: str) -> str:
    return (
        f'<h2 class="section">Somebody new</h2><form class="find" method="post" action="/operator/add">{_hidden(token)}'
        '<label for="name">Name</label><input id="name" name="name" required maxlength="39" autocapitalize="none" '
        'autocomplete="off" aria-describedby="how"><button>Add</button></form>'
        '<p id="how">Up to 39 of a-z, 0-9 and -, beginning with a letter.</p>'
    )


def _card(seen: Seen, shown: Shown) -> str:
    person, row = seen.person, seen.row
    name = _text(person.name)
    is_reader = person.name == shown.reader
    tag = "revoked" if person.revoked_at is not None else person.role + (", you" if is_reader else "")
    facts = [("Last seen", ago(person.last_seen_at if row is None else row.last_seen_at, shown.now))]
    if row is not None:
        facts = [
            ("State", row.state),
            ("Version", row.version or "-"),
            *facts,
            ("Open pages", str(row.clients)),
            ("Browsers", str(person.sessions)),
            ("Next due", until(row.next_due, shown.now)),
            ("Stored", "nothing" if row.store_behind is None else stored(row.store_behind, row.files_seen)),
            *((("Bridge", held_by(row)),) if row.bridge is not None else ()),
            ("Spent", f"${row.today_usd:.2f} today{_estimated(row)}, ${row.month_usd:.2f} this month"),
            *(
                ("Note", note[:_MAX_DETAIL_CHARACTERS])
                for note in (row.detail, row.store_trouble, damaged_words(row))
                if note
            ),
        ]
    listed = "".join(f"<dt>{_text(term)}</dt><dd>{_text(fact)}</dd>" for term, fact in facts)
    return (
        f'<li id="{name}"><h2>{name}</h2><p class="tag">{_text(tag)}</p><dl>{listed}</dl>'
        f'<div class="acts">{_acts(seen, shown.token, is_reader=is_reader)}</div></li>'
    )


def _estimated(row: Row) -> str:
    return f" (of which {estimate(row.estimated_usd)})" if row.estimated_usd else ""


def _acts(seen: Seen, token: str, *, is_reader: bool) -> str:
    person, row = seen.person, seen.row
    name = person.name
    if person.revoked_at is not None or row is None:
        return _button("restore", name, f"Let {name} in again", token)
    acts = [
        _button("link", name, f"New login link for {name}", token, short="New login link"),
        _button("deploy", name, f"Deploy {name}", token, short="Deploy"),
    ]
    if row.state == "absent" and row.store_behind is not None:
        acts.insert(0, _sure("restore-agent", name, "Restore", f"Restore the agent of {name}", token, _MADE_ANEW))
    if seen.kept_at is not None:
        words, sure = "New machine", f"Give up the machine of {name}, and restore"
        acts.append(_sure("new-machine", name, words, sure, token, _given_up(name, seen.kept_at), types=True))
    if not is_reader:
        if person.role == "operator":
            acts.append(_button("demote", name, f"Make {name} no operator", token, short="No operator any more"))
        else:
            acts.append(_sure("promote", name, "Make operator", f"Make {name} an operator", token, _OPERATES))
        acts.append(_sure("revoke", name, "Revoke", f"Revoke {name}", token, _OUT))
    acts.append(f'<a href="/operator/ways-in?name={_text(name)}" aria-label="How {_text(name)} logs in">Logins</a>')
    return "".join(acts)


_MADE_ANEW = (
    "Its machine is gone. It is made anew of what is stored, with all that the agent knew by then. Should something be "
    "there after all, nothing is replaced."
)
_GIVEN_UP = (
    "For a machine that is there and never comes up; deploy it first, which mends what is not the machine. It is given "
    "up, with whatever is on it alone. The agent of {name} is made anew of what is kept: everything that was said, "
    "remembered, drawn and filed until {kept}. What came after that is lost, and nobody can look whether anything did. "
    "If it can wait, wait: it is tried on. It takes a few minutes."
)
_OPERATES = "They may then do everything that this page can, to everybody here."
_OUT = "They are out at once: pages, links, tokens, passkeys, and the model. The agent and its memory stay."


def _given_up(name: str, kept_at: float) -> str:
    return _GIVEN_UP.format(name=name, kept=moment(kept_at))


def _button(
    act: str, name: str, words: str, token: str, *, short: str = "", which: str = "", types: bool = False
) -> str:
    named = f'<input type="hidden" name="which" value="{_text(which)}">' if which else ""
    if types:
        typed = f'id="type-{_text(name)}" name="which" required maxlength="39" autocapitalize="none" autocomplete="off"'
        named = f'<label for="type-{_text(name)}">Type {_text(name)} to go on</label> <input {typed}>'
    shown = f' aria-label="{_text(words)}">{_text(short)}' if short else f">{_text(words)}"
    return (
        f'<form method="post" action="/operator/{act}">{_hidden(token)}{named}'
        f'<input type="hidden" name="name" value="{_text(name)}"><button class="quiet"{shown}</button></form>'
    )


def _sure(act: str, name: str, words: str, sure: str, token: str, what: str, *, types: bool = False) -> str:
    """Return a button that asks for confirmation without a script; `types` requires typing the name."""
    button = _button(act, name, sure, token, types=types)
    return (
        f'<details><summary aria-label="{_text(f"{words}: {name}")}">{_text(words)}</summary>'
        f"<p>{_text(what)}</p>{button}</details>"
    )


def _log(audit: AuditLog) -> str:
    if not audit.entries:
        return "<p>Nothing yet.</p>"
    broken = ""
    if audit.broken_at is not None:
        broken = f'<p role="alert">Line {audit.broken_at} is not as it was written: somebody changed this log.</p>'
    rows = "".join(
        f"<tr><td>{datetime.fromtimestamp(entry.at, UTC):%Y-%m-%d %H:%M}</td><td>{_text(entry.actor)}</td>"
        f"<td>{_text(told(entry))}</td></tr>"
        for entry in reversed(audit.entries)
    )
    head = '<tr><th scope="col">When (UTC)</th><th scope="col">Who</th><th scope="col">What</th></tr>'
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    return f'{broken}<div class="log" tabindex="0" role="region" aria-label="Audit log">{table}</div>'


def _hidden(token: str) -> str:
    return f'<input type="hidden" name="token" value="{_text(token)}">'


def _text(text: str) -> str:
    return html.escape("".join(sign if sign.isprintable() else " " for sign in text))
