// A word about a card that has changed out of sight, and the way there. It never scrolls by itself.

import { h } from '../dom.js';

/** @import { CardView } from './card_view.js' */

const SHOWN_MS = 8000;
/** So much of a card has to be on the screen to be seen. */
const EDGE = 32;

export class News {
  /** @type {HTMLElement} */
  #scroller;
  /** @type {(view: CardView) => void} */
  #show;
  /** @type {CardView | null} */
  #view = null;
  /** @type {number | undefined} */
  #clock;

  /**
   * `show(view)` brings a card into sight.
   * @param {HTMLElement} scroller
   * @param {(view: CardView) => void} show
   */
  constructor(scroller, show) {
    this.#scroller = scroller;
    this.#show = show;
    this.element = h('button', { type: 'button', class: 'button small board-news', hidden: true });
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
   * Says that a card is new or has changed, unless it can be seen.
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
