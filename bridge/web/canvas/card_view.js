// One card on the board: its frame, handles and place. drag.js and keyboard_move.js move it.

import { icon } from '../icons.js';
import { elementOf, iconButton } from '../template.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { CardBody } from './card_body.js';

/** @import { Block, Card, Grip, Page, Place } from '../types/page.js' */
/** @import { Drag } from './drag.js' */
/** @import { KeyboardMove } from './keyboard_move.js' */

/** @type {Record<string, string>} */
const ICONS = { table: 'table', document: 'document', notes: 'note' };
const FLASH_MS = 1800;
/** Tables with more columns than this take two columns of the board. */
const WIDE_TABLE = 5;

let made = 0;

export class CardView {
  #id;
  #hands;
  #flashing = 0;

  /**
   * `hands` act on the card for the person.
   * @param {Page} page
   * @param {Card} card
   * @param {{ archive: (view: CardView) => void, drag: Drag, keys: KeyboardMove }} hands
   */
  constructor(page, card, hands) {
    made += 1;
    this.#id = `card-title-${made}`;
    this.#hands = hands;
    this.card = card;
    this.place = null;
    /** Natural height in pixels, and the width at which it was measured: 0 if it must be measured before display. */
    this.measured = { height: 0, width: 0 };
    this.body = new CardBody(page, card.card_id, () => {
      this.measured.width = 0;
      page.store.touch('cards');
    });
    this.element = elementOf(html`<article class="canvas-card" tabindex="-1" aria-labelledby=${this.#id}
      data-card-id=${card.card_id}></article>`);
    /** The browser skips the rendering of distant cards; measuring their content would undo that. */
    this.skipped = true;
    this.element.addEventListener('contentvisibilityautostatechange', (event) => {
      if (!(event instanceof ContentVisibilityAutoStateChangeEvent)) return;
      this.skipped = event.skipped;
      if (!event.skipped) this.markScrolling();
    });
    this.#drawFrame();
    this.body.update(card.blocks, card.title);
  }

  /**
   * Draws the current card; returns true if its content looks different (a new place alone does not count).
   * @param {Card} card
   */
  update(card) {
    const before = this.card;
    this.card = card;
    const renamed = before.title !== card.title || before.card_type !== card.card_type;
    if (renamed) this.#drawFrame();
    const changed = this.body.update(card.blocks, card.title) || renamed;
    if (changed) this.measured.width = 0;
    return changed;
  }

  #drawFrame() {
    const { title, card_type: type } = this.card;
    const { archive, drag } = this.#hands;
    render(
      html`<header class="card-head" @pointerdown=${(/** @type {PointerEvent} */ event) => drag.pressHead(event, this)}>
          <span class="card-icon">${icon(ICONS[type] ?? 'canvas', true)}</span>
          <h3 id=${this.#id} class="cut" title=${title}>${title}</h3>
          <div class="card-tools">
            ${this.#handle('move', 'icon-button small mover', 'Move')}
            ${iconButton('archive', `Archive ${title}`, () => archive(this), { title: 'Archive' })}
          </div>
        </header>
        ${this.body.element} ${this.#handle('resize', 'sizer', 'Resize')}`,
      this.element,
    );
  }

  /**
   * Returns a button by which the card is moved or resized, by pointer and by keys.
   * @param {Grip} kind
   * @param {string} look
   * @param {string} verb
   */
  #handle(kind, look, verb) {
    const { drag, keys } = this.#hands;
    return html`<button type="button" class=${look} title=${verb} aria-label="${verb} ${this.card.title}"
      @pointerdown=${(/** @type {PointerEvent} */ event) => drag.press(event, this, kind)}
      @keydown=${(/** @type {KeyboardEvent} */ event) => keys.key(event, this, kind)}
      @blur=${() => keys.keep()}
      @click=${() => keys.explain()}>${icon(kind, true)}</button>`;
  }

  /** The number of board columns for the card. */
  get span() {
    /** @param {Block} block */
    const wide = ({ type, data }) =>
      type === 'table' && Array.isArray(data?.columns) && data.columns.length > WIDE_TABLE;
    return this.card.card_type === 'document' || this.card.blocks.some(wide) ? 2 : 1;
  }

  /**
   * Puts it at `{x, y, width, height}` on the board; null lets it flow.
   * @param {Place | null} place
   */
  put(place) {
    const { style } = this.element;
    const before = this.place;
    this.place = place;
    if (place === null) {
      for (const name of ['translate', 'width', 'height']) style.removeProperty(name);
      return;
    }
    if (before?.x !== place.x || before?.y !== place.y) style.translate = `${place.x}px ${place.y}px`;
    if (before?.width !== place.width) style.width = `${place.width}px`;
    if (before?.height !== place.height) style.height = `${place.height}px`;
  }

  /**
   * Sets a width and an automatic height; `measureEnd` reads the resulting height.
   * @param {number} width
   */
  measureBegin(width) {
    this.element.classList.add('measuring');
    this.element.style.width = `${width}px`;
    this.element.style.height = 'auto';
  }

  /** @param {number} width */
  measureEnd(width) {
    this.measured = { height: this.element.offsetHeight, width };
  }

  measureOver() {
    this.element.classList.remove('measuring');
    // Measuring has changed both.
    if (this.place !== null) this.place = { ...this.place, width: NaN, height: NaN };
  }

  /** Highlights the card briefly. */
  flash() {
    const { classList } = this.element;
    clearTimeout(this.#flashing);
    classList.remove('flash');
    requestAnimationFrame(() => classList.add('flash'));
    this.#flashing = setTimeout(() => classList.remove('flash'), FLASH_MS);
  }

  /** Notes whether its content overflows: then its body can be scrolled by keys. */
  markScrolling() {
    if (this.skipped) return;
    const body = this.body.element;
    const cut = body.scrollHeight > body.clientHeight + 1;
    if (cut === body.hasAttribute('tabindex')) return;
    if (cut) {
      body.tabIndex = 0;
      body.setAttribute('role', 'group');
      body.setAttribute('aria-label', `${this.card.title}, content`);
    } else {
      for (const name of ['tabindex', 'role', 'aria-label']) body.removeAttribute(name);
    }
  }
}
