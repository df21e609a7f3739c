// Placeholder of the canvas while there are no cards: the reason, and one action.

import { h } from '../dom.js';

const FIRST_WORDS = 'Make a table of the five largest cities of Europe with their population';

/** @typedef {'loading' | 'unreachable' | 'first' | 'clear'} What */

export class Placeholder {
  #shown = '';
  /** @type {(text: string) => void} */
  #draft;
  /** @type {() => void} */
  #writeNote;

  /**
   * `draft(text)` puts a text into the message field, `writeNote()` opens the note form.
   * @param {{ draft: (text: string) => void, writeNote: () => void }} acts
   */
  constructor({ draft, writeNote }) {
    this.#draft = draft;
    this.#writeNote = writeNote;
    this.element = h('div', { class: 'canvas-placeholder' });
  }

  /**
   * Shows `loading`, `unreachable`, `first` or `clear`, null for nothing; `detail` explains why it is unreachable,
   * `isLost` means permanently.
   * @param {What | null} what
   * @param {string} [detail]
   * @param {boolean} [isLost]
   */
  show(what, detail = '', isLost = false) {
    this.element.hidden = what === null;
    const shown = `${what} ${isLost} ${detail}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.replaceChildren(...(what === null ? [] : [this.#made(what, detail, isLost)]));
  }

  /**
   * @param {What} what
   * @param {string} detail
   * @param {boolean} isLost
   */
  #made(what, detail, isLost) {
    switch (what) {
      case 'loading':
        return loading();
      case 'unreachable':
        return empty(
          'The canvas cannot be reached',
          `${detail || 'There is no connection to your sprite.'} ` +
            (isLost
              ? 'Your cards come back with it, as they were then.'
              : 'Your cards are safe there, and appear as soon as it answers.'),
        );
      case 'clear':
        return empty(
          'An empty stack',
          'While this stack is in front, the cards you ask for are drawn here. You can write here, too.',
          { label: 'Write a note', run: () => this.#writeNote() },
        );
      default:
        return empty(
          'Your canvas',
          'What the agent makes for you stands here as cards: tables, documents, notes. Ask for one to see it appear.',
          { label: 'Ask for a table', run: () => this.#draft(FIRST_WORDS) },
        );
    }
  }
}

/**
 * @param {string} title
 * @param {string} words
 * @param {{ label: string, run: () => void } | null} [action]
 */
function empty(title, words, action = null) {
  const button = action && h('button', { type: 'button', class: 'button primary', onclick: action.run }, action.label);
  return h('div', { class: 'empty' }, h('h3', null, title), h('p', null, words), button);
}

function loading() {
  const skeletons = [0, 1, 2].map(() => h('div', { class: 'skeleton' }));
  return h('div', { class: 'canvas-loading', role: 'status', 'aria-label': 'The canvas is loading' }, skeletons);
}
