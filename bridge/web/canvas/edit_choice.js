// Ask the person which of two versions of a text to keep.

import { loadStyle } from '../style.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** @import { Page } from '../types/page.js' */

/** @typedef {'copy' | 'theirs' | 'mine'} Choice */

/**
 * Shows the difference and asks; returns null if the person wants to continue writing.
 * @param {Page} page
 * @param {string} who
 * @param {string} theirs
 * @param {string} mine
 * @returns {Promise<Choice | null>}
 */
export async function chosen(page, who, theirs, mine) {
  const shown = await difference(theirs, mine);
  return page.dialog({
    title: 'This has changed meanwhile',
    body: html`<div class="edit-choice">
      <p>It was changed by ${who} while you were writing. Which version do you want to keep?</p>
      ${shown}
    </div>`,
    actions: [
      { label: 'Copy mine', value: 'copy' },
      { label: 'Take theirs', value: 'theirs', danger: true },
      { label: 'Keep mine', value: 'mine', danger: true, primary: true },
    ],
    wide: true,
  });
}

/**
 * Returns the difference line by line; both versions if the diff code cannot be loaded.
 * @param {string} theirs
 * @param {string} mine
 */
async function difference(theirs, mine) {
  try {
    const [{ diffElement, diffOf }] = await Promise.all([import('../memory/diff.js'), loadStyle('memory.css')]);
    return diffElement(await diffOf(theirs, mine), 'From the current text to yours');
  } catch {
    return html`<div><h3>There now</h3><pre>${theirs}</pre><h3>Yours</h3><pre>${mine}</pre></div>`;
  }
}
