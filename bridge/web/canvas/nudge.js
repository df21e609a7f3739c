// Moving and resizing by keys: arrows on the Move and Resize buttons, kept when one leaves, undone by Escape.

import { LEAST, UNIT } from './packing.js';

const STRIDE = 4 * UNIT;
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
/** A screen reader says where the card is when the keys rest, not at each step. */
const REST_MS = 250;
const HOW = `Arrow keys go ${UNIT} pixels at a time, with Shift ${STRIDE}. Enter keeps the result, Escape undoes it.`;

export class Nudge {
  #page;
  #board;
  #going = null;
  #saying;

  constructor(page, board) {
    this.#page = page;
    this.#board = board;
  }

  /** The card being moved by keys, or null. */
  get view() {
    return this.#going?.view ?? null;
  }

  attach(view) {
    this.#listen(view, view.mover, 'move');
    this.#listen(view, view.sizer, 'resize');
  }

  #listen(view, button, kind) {
    button.addEventListener('keydown', (event) => this.#key(event, view, kind));
    button.addEventListener('blur', () => this.keep());
    button.addEventListener('click', () => {
      if (this.#going === null) this.#page.toast({ kind: 'info', text: HOW });
    });
  }

  #key(event, view, kind) {
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

  #step(view, kind, [across, down], pixels) {
    if (this.#going === null) {
      this.#going = { view, kind, place: { ...view.place } };
      this.#board.hold(view);
    }
    const { place } = this.#going;
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

  #sayAtRest(view, kind, { x, y, width, height }) {
    clearTimeout(this.#saying);
    const where = kind === 'move' ? `${x} across, ${y} down` : `${width} wide, ${height} high`;
    this.#saying = setTimeout(() => this.#page.announce(`${view.card.title}: ${where}`), REST_MS);
  }

  /** Keeps the place the keys have led to. */
  keep() {
    const going = this.#going;
    if (going === null) return;
    this.#going = null;
    clearTimeout(this.#saying);
    this.#board.drop(going.view, going.place, going.kind);
  }

  /** Puts the card back to where it was. */
  cancel() {
    const going = this.#going;
    if (going === null) return;
    this.#going = null;
    clearTimeout(this.#saying);
    this.#board.release(going.view);
    this.#page.announce(`${going.view.card.title} is back in its place`);
  }
}
