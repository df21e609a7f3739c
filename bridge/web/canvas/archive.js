// Archived stacks and cards, each with a button to restore it.

import { h } from '../dom.js';
import { plural } from '../format.js';
import { archivedOf } from './stacks.js';

/** @import { Card, Page, Stack } from '../types/page.js' */
/** @import { Stacks } from './stacks.js' */

/**
 * Shows the list until it is closed; it follows restores meanwhile.
 * @param {Page} page
 * @param {Stacks} stacks
 */
export async function showArchived(page, stacks) {
  const body = h('div', { class: 'archive-list' });
  const draw = () => body.replaceChildren(...lists(page, stacks));
  draw();
  const stop = page.store.subscribe(['stacks', 'cards'], draw);
  await page.dialog({ title: 'Archived', body, actions: [{ label: 'Close', value: null, primary: true }] });
  stop();
}

/**
 * @param {Page} page
 * @param {Stacks} stacks
 */
function lists(page, stacks) {
  const archived = archivedOf(page.store.state);
  /** @param {Stack} stack */
  const cardsOf = (stack) => [...page.store.state.cards.values()].filter((card) => card.stack_id === stack.stack_id);
  const rows = [
    ...archived.stacks.map((stack) =>
      row(stack.name, `Stack, ${plural(cardsOf(stack).length, 'card')}`, () => stacks.restore(stack)),
    ),
    ...archived.cards.map((card) => row(card.title, nameOf(stacks, card), () => stacks.restoreCard(card))),
  ];
  if (rows.length === 0) return [h('p', null, 'Nothing is archived. Cards and stacks you archive wait here.')];
  return [h('ul', { class: 'plain' }, rows)];
}

/**
 * @param {Stacks} stacks
 * @param {Card} card
 */
const nameOf = (stacks, card) =>
  `Card on ${stacks.all.find(({ stack_id: id }) => id === card.stack_id)?.name ?? 'a stack'}`;

/**
 * @param {string} name
 * @param {string} what
 * @param {() => Promise<unknown>} restore
 */
function row(name, what, restore) {
  const button = h('button', { type: 'button', class: 'button small', 'aria-label': `Restore ${name}` }, 'Restore');
  button.addEventListener('click', async () => {
    button.disabled = true;
    await restore();
    button.disabled = false;
  });
  const words = h(
    'div',
    { class: 'grow' },
    h('div', { class: 'cut archive-name' }, name),
    h('div', { class: 'muted small-text' }, what),
  );
  return h('li', { class: 'list-row' }, words, button);
}
