// A hint about a changed card outside the visible area, with a link to it. It never scrolls by itself.

import { h } from '../dom.js';

/** @import { CardView } from './card_view.js' */

const SHOWN_MS = 8000;
/** Pixels of a card that must be visible for it to count as seen. */
const EDGE = 32;

export class Highlights {
  /** @type {HTMLElement} */
  #scroller;
  /** @type {(view: CardView) => void} */
  #show;
  /** @type {CardView | null} */
  #view = null;
  /** @type {number | undefined} */
  #clock;

  /**
   * `show(view)` scrolls a card into view.
   * @param {HTMLElement} scroller
   * @param {(view: CardView) => void} show
   */
  constructor(scroller, show) {
    this.#scroller = scroller;
    this.#show = show;
    this.element = h('button', { type: 'button', class: 'button small board-highlight', hidden: true });
    this.element.addEventListener('click', () => {
      const view = this.#view;
      this.hide();
      if (view) this.#show(view);
    });
    scroller.addEventListener('scroll', () => this.#view !== null && this.#inSight(this.#view) && this.hide(), {
      passive: true,
    });
  }

  /**
   * Announces a new or changed card, unless it is visible.
   * @param {CardView} view
   */
  tell(view) {
    if (this.#inSight(view)) return;
    this.#view = view;
    this.element.textContent = `“${view.card.title}” is new or has changed. Show it`;
    this.element.hidden = false;
    clearTimeout(this.#clock);
    this.#clock = setTimeout(() => this.hide(), SHOWN_MS);
  }

  hide() {
    this.#view = null;
    this.element.hidden = true;
  }

  /** @param {CardView} view */
  #inSight(view) {
    const card = view.element.getBoundingClientRect();
    const frame = this.#scroller.getBoundingClientRect();
    return card.top < frame.bottom - EDGE && card.bottom > frame.top + EDGE;
  }
}
