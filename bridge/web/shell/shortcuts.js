// `?`: the sheet of shortcuts, drawn from the list of commands so that it is always correct.

import { html } from '../vendor/lit-html/lit-html.js';
import { caps } from './commands.js';
import { dialog } from './dialogs.js';

/** @import { Commands, Row } from '../types/page.js' */

/** @typedef {Pick<Row, 'title' | 'keys' | 'group'>} Key */

/** @type {Key[]} */
const ALWAYS = [
  { title: 'Send the message', keys: 'Enter', group: 'Writing' },
  { title: 'New line', keys: 'Shift+Enter', group: 'Writing' },
  { title: 'Edit the message that waits', keys: 'ArrowUp', group: 'Writing' },
  { title: 'Move or resize a card (after its button)', keys: 'Arrows', group: 'Canvas' },
  { title: 'In larger steps', keys: 'Shift+Arrows', group: 'Canvas' },
];

/** @type {Record<string, string>} */
const WORDS = { ArrowUp: '↑', Arrows: '← ↑ ↓ →', Shift: '⇧' };

/** @param {Commands} commands */
export function showShortcuts(commands) {
  const rows = [...commands.listed().filter((command) => command.keys), ...ALWAYS];
  const groups = [...new Set(rows.map((row) => row.group ?? ''))];
  const body = groups.map((group) =>
    section(
      group,
      rows.filter((row) => row.group === group),
    ),
  );
  void dialog({
    title: 'Keyboard shortcuts',
    wide: true,
    body: html`<div class="sheet">${body}</div>`,
    actions: [{ label: 'Close', value: null, primary: true }],
  });
}

/** @param {string} name @param {Key[]} rows */
const section = (name, rows) =>
  html`<section>
    <h3>${name}</h3>
    <dl>
      ${rows.map(
        (row) =>
          html`<div>
            <dt>${row.title}</dt>
            <dd>${[row.keys ?? []].flat().map(printed)}</dd>
          </div>`,
      )}
    </dl>
  </section>`;

/** @param {string} keys @param {number} index */
const printed = (keys, index) =>
  html`${index ? ' or ' : ''}${caps(keys).map((cap) => html`<kbd>${WORDS[cap] ?? cap}</kbd> `)}`;
