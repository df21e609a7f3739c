// Move and resize cards by keys: arrows on the Move and Resize buttons, saved on leaving, undone by Escape.

import { LEAST, UNIT } from './packing.js';

/** @import { Grip, Page, Place } from '../types/page.js' */
/** @import { Board } from './board.js' */
/** @import { CardView } from './card_view.js' */

const STRIDE = 4 * UNIT;
/** @type {Record<string, [across: number, down: number]>} */
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
/** A screen reader announces the position when the keys rest, not at each step. */
const REST_MS = 250;
const HOW = `Arrow keys move it by ${UNIT} pixels, with Shift by ${STRIDE}. Enter keeps the result, Escape undoes it.`;

/** @typedef {{ view: CardView, kind: Grip, place: Place }} Going */

export class KeyboardMove {
  #page;
  #board;
  /** @type {Going | null} */
  #going = null;
  /** @type {number | undefined} */
  #saying;

  /** @param {Page} page @param {Board} board */
  constructor(page, board) {
    this.#page = page;
    this.#board = board;
  }

  /** Says how the keys work, on a click that moved nothing. */
  explain() {
    if (this.#going === null) this.#page.toast({ kind: 'info', text: HOW });
  }

  /** @param {KeyboardEvent} event @param {CardView} view @param {Grip} kind */
  key(event, view, kind) {
    const step = STEPS[event.key];
    if (step) {
      if (view.place === null) return;
      this.#step(view, kind, step, event.shiftKey ? STRIDE : UNIT);
    } else if (this.#going !== null && (event.key === 'Enter' || event.key === ' ')) {
      this.keep();
    } else if (this.#going !== null && event.key === 'Escape') {
      this.cancel();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {CardView} view @param {Grip} kind @param {[across: number, down: number]} step @param {number} pixels */
  #step(view, kind, [across, down], pixels) {
    const going = this.#going ?? this.#begun(view, kind);
    if (going === null) return;
    const { place } = going;
    /** @param {number} value @param {number} by @param {number} least */
    const shifted = (value, by, least) => Math.max(least, value + by * pixels);
    if (kind === 'move') {
      place.x = shifted(place.x, across, 0);
      place.y = shifted(place.y, down, 0);
    } else {
      place.width = shifted(place.width, across, LEAST.width);
      place.height = shifted(place.height, down, LEAST.height);
    }
    view.put({ ...place });
    view.element.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    this.#sayAtRest(view, kind, place);
  }

  /** @param {CardView} view @param {Grip} kind */
  #begun(view, kind) {
    if (view.place === null) return null;
    this.#going = { view, kind, place: { ...view.place } };
    this.#board.hold(view);
    return this.#going;
  }

  /** @param {CardView} view @param {Grip} kind @param {Place} place */
  #sayAtRest(view, kind, { x, y, width, height }) {
    clearTimeout(this.#saying);
    const where = kind === 'move' ? `${x} across, ${y} down` : `${width} wide, ${height} high`;
    this.#saying = setTimeout(() => this.#page.announce(`${view.card.title}: ${where}`), REST_MS);
  }

  /** Saves the new place. */
  keep() {
    const going = this.#ended();
    if (going) this.#board.drop(going.view, going.place, going.kind);
  }

  /** Returns the card to its former place. */
  cancel() {
    const going = this.#ended();
    if (!going) return;
    this.#board.release(going.view);
    this.#page.announce(`${going.view.card.title} is back in its place`);
  }

  #ended() {
    const going = this.#going;
    this.#going = null;
    if (going) clearTimeout(this.#saying);
    return going;
  }
}
