// Placeholder of the canvas while there are no cards: the reason, and one action.

import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @import { Link } from '../types/page.js' */

const FIRST_WORDS = 'Make a table of the five largest cities of Europe with their population';

/**
 * `draft(text)` puts a text into the message field, `writeNote()` opens the note form.
 * @param {'loading' | 'unreachable' | 'first' | 'clear'} reason
 * @param {Link} link
 * @param {{ draft: (text: string) => void, writeNote: () => void }} acts
 */
export function placeholder(reason, { detail, offer }, { draft, writeNote }) {
  switch (reason) {
    case 'loading':
      return html`<div class="canvas-placeholder">
        <div class="canvas-loading" role="status" aria-label="The canvas is loading">
          <div class="skeleton"></div><div class="skeleton"></div><div class="skeleton"></div>
        </div>
      </div>`;
    case 'unreachable': {
      const cards =
        offer === 'restore'
          ? 'Your cards come back with it, as they were then.'
          : 'Your cards are safe there, and appear as soon as it answers.';
      const words = `${detail || 'There is no connection to your sprite.'} ${cards}`;
      return empty('The canvas cannot be reached', words);
    }
    case 'clear': {
      const words = 'While this stack is open, new cards appear here. You can also write a note.';
      return empty('An empty stack', words, { label: 'Write a note', run: writeNote });
    }
    case 'first': {
      const words = 'The agent draws tables, documents and notes here as cards. Ask for one to see it appear.';
      return empty('Your canvas', words, { label: 'Ask for a table', run: () => draft(FIRST_WORDS) });
    }
  }
}

/** @param {string} title @param {string} words @param {{ label: string, run: () => void }} [action] */
function empty(title, words, action) {
  const button = html`<button type="button" class="button primary" @click=${action?.run}>${action?.label}</button>`;
  return html`<div class="canvas-placeholder">
    <div class="empty"><h3>${title}</h3><p>${words}</p>${action ? button : nothing}</div>
  </div>`;
}
