// A hint about a changed card outside the visible area, with a link to it. It never scrolls by itself.

import { elementOf } from '../template.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** @import { CardView } from './card_view.js' */

const SHOWN_MS = 8000;
/** Pixels of a card that must be visible for it to count as seen. */
const EDGE = 32;

export class Highlights {
  /** @type {CardView | null} */
  #view = null;
  #clock = 0;

  /**
   * `show(view)` scrolls a card into view.
   * @param {HTMLElement} scroller
   * @param {(view: CardView) => void} show
   */
  constructor(scroller, show) {
    this.scroller = scroller;
    const clicked = () => {
      const view = this.#view;
      this.hide();
      if (view) show(view);
    };
    this.element = elementOf(
      html`<button type="button" class="button small board-highlight" hidden @click=${clicked}></button>`,
    );
    scroller.addEventListener('scroll', () => this.#view && this.#isVisible(this.#view) && this.hide(), {
      passive: true,
    });
  }

  /**
   * Announces a new or changed card, unless it is visible.
   * @param {CardView} view
   */
  tell(view) {
    if (this.#isVisible(view)) return;
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
  #isVisible(view) {
    const card = view.element.getBoundingClientRect();
    const frame = this.scroller.getBoundingClientRect();
    return card.top < frame.bottom - EDGE && card.bottom > frame.top + EDGE;
  }
}
