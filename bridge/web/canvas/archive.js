// Archived stacks and cards, each with a button to restore it.

import { plural } from '../format.js';
import { button, elementOf } from '../template.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { archivedOf } from './stacks.js';

/** @import { Page } from '../types/page.js' */
/** @import { Stacks } from './stacks.js' */

/** @typedef {{ id: string, name: string, what: string, restore: () => Promise<unknown> }} Row */

/**
 * Shows the list until it is closed; it follows restores meanwhile.
 * @param {Page} page
 * @param {Stacks} stacks
 */
export async function showArchived(page, stacks) {
  const body = elementOf(html`<div class="archive-list"></div>`);
  const draw = () => {
    const rows = rowsOf(page, stacks);
    render(rows.length ? html`<ul class="plain">${repeat(rows, ({ id }) => id, row)}</ul>` : EMPTY, body);
  };
  draw();
  const stop = page.store.subscribe(['stacks', 'cards'], draw);
  await page.dialog({ title: 'Archived', body, actions: [{ label: 'Close', value: null, primary: true }] });
  stop();
}

const EMPTY = html`<p>Nothing is archived. Cards and stacks you archive wait here.</p>`;

/** @param {Page} page @param {Stacks} stacks @returns {Row[]} */
function rowsOf({ store }, stacks) {
  const archived = archivedOf(store.state);
  const cards = [...store.state.cards.values()];
  return [
    ...archived.stacks.map((stack) => {
      const count = cards.filter((card) => card.stack_id === stack.stack_id).length;
      const what = `Stack, ${plural(count, 'card')}`;
      return { id: stack.stack_id, name: stack.name, what, restore: () => stacks.restore(stack) };
    }),
    ...archived.cards.map((card) => {
      const stack = stacks.all.find(({ stack_id: id }) => id === card.stack_id)?.name ?? 'a stack';
      return { id: card.card_id, name: card.title, what: `Card on ${stack}`, restore: () => stacks.restoreCard(card) };
    }),
  ];
}

/** @param {Row} row */
function row({ name, what, restore }) {
  /** @param {Event} event */
  const act = async ({ currentTarget }) => {
    const pressed = /** @type {HTMLButtonElement} */ (currentTarget);
    pressed.disabled = true;
    await restore();
    pressed.disabled = false;
  };
  return html`<li class="list-row">
    <div class="grow">
      <div class="cut archive-name">${name}</div>
      <div class="muted small-text">${what}</div>
    </div>
    ${button('Restore', act, { label: `Restore ${name}` })}
  </li>`;
}
