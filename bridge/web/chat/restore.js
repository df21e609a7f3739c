// Restore a person's agent from its replica, or choose between the two.

import { moment } from '../format.js';
import { wordsOf } from '../problem.js';

/** @import { Link, Page } from '../types/page.js' */

/** @typedef {'restore' | 'over' | 'keep'} Way */

/** @type {Record<NonNullable<Link['offer']>, string>} */
const LABELS = { restore: 'Restore', choose: 'Choose' };
const EVERYTHING = 'everything that was said, remembered, drawn and filed';

/**
 * Returns the label of the button for the link's offer; null if there is none.
 * @param {Link} link
 */
export const offerLabel = ({ state, offer }) =>
  offer && (state === 'unavailable' || state === 'ready') ? LABELS[offer] : null;

/**
 * Asks for the action; returns null for none.
 * @param {Page} page
 * @returns {Promise<Way | null>}
 */
async function chosen(page) {
  const { offer, keptAt } = page.store.state.link;
  const until = keptAt ? ` until ${moment(keptAt)}` : '';
  /** @type {import('../types/page.js').DialogAction<Way | null>} */
  const cancel = { label: 'Cancel', value: null };
  if (offer === 'choose') {
    return page.dialog({
      title: 'Which version should continue?',
      body:
        `Restore the replica: ${EVERYTHING}${until}. The agent’s present data is moved aside, where whoever runs ` +
        'this bridge can find it. Or continue with the agent as it is now. Then the replica stays for a month.',
      actions: [
        cancel,
        { label: 'Continue as it is now', value: 'keep' },
        { label: 'Restore the replica', value: 'over', danger: true },
      ],
    });
  }
  const sure = await page.confirm({
    title: 'Restore your agent?',
    body:
      `A new machine is created from the replica: ${EVERYTHING}${until}. Anything later is lost. ` +
      'The restore takes a few minutes.',
    confirm: 'Restore',
  });
  return sure ? 'restore' : null;
}

/**
 * Asks the person, and restores the agent as they choose.
 * @param {Page} page
 */
export async function restore(page) {
  const way = await chosen(page);
  if (!way) return;
  page.announce(way === 'keep' ? 'Your agent continues as it is.' : 'Your agent is being restored.');
  try {
    const headers = { Accept: 'application/json' };
    const response = await fetch(`/restore?how=${way}`, { method: 'POST', headers, cache: 'no-store' });
    const answer = await response.json();
    if (!response.ok) page.toast({ kind: 'error', text: answer.error.message });
    else if (way === 'keep') page.toast({ text: 'Your agent continues as it is.' });
    // A list of missing files stays until the person closes it.
    else if (answer.left_out) page.toast({ kind: 'error', text: `Your agent is restored. ${answer.left_out}` });
    else page.toast({ text: 'Your agent is restored.' });
  } catch (problem) {
    // The restore continues at the bridge, and the status line shows its progress.
    page.toast({ kind: 'error', text: `It is not known how the restore ended: ${wordsOf(problem)}` });
  }
}
