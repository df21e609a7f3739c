// `?`: the sheet of keys, drawn from the list of commands so that it cannot say something else than is true.

import { html } from '../vendor/lit-html/lit-html.js';
import { caps } from './commands.js';
import { dialog } from './dialogs.js';

const ALWAYS = [
  { title: 'Send the message', keys: 'Enter', group: 'Writing' },
  { title: 'New line', keys: 'Shift+Enter', group: 'Writing' },
  { title: 'Edit the message that waits', keys: 'ArrowUp', group: 'Writing' },
  { title: 'Move or resize a card (after its button)', keys: 'Arrows', group: 'Canvas' },
  { title: 'In larger steps', keys: 'Shift+Arrows', group: 'Canvas' },
];

const WORDS = { ArrowUp: '↑', Arrows: '← ↑ ↓ →', Shift: '⇧' };

export function showShortcuts(commands) {
  const rows = [...commands.listed().filter((command) => command.keys), ...ALWAYS];
  const groups = [...new Set(rows.map((row) => row.group))];
  void dialog({
    title: 'Keyboard shortcuts',
    wide: true,
    body: html`<div class="sheet">${groups.map(
      (group) => html`
      <section><h3>${group}</h3><dl>${rows
        .filter((row) => row.group === group)
        .map(
          (row) => html`
        <div><dt>${row.title}</dt><dd>${[row.keys].flat().map((keys, index) => html`${index ? ' or ' : ''}${caps(keys).map((cap) => html`<kbd>${WORDS[cap] ?? cap}</kbd> `)}`)}</dd></div>`,
        )}</dl></section>`,
    )}</div>`,
    actions: [{ label: 'Close', value: null, primary: true }],
  });
}
