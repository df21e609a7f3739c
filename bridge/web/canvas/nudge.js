// Moving and resizing by keys: arrows on the Move and Resize buttons, kept when one leaves, undone by Escape.

import { LEAST, UNIT, snap } from './packing.js';

const STRIDE = 4 * UNIT;
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
/** A screen reader says where the card is when the keys rest, not at each step. */
const REST_MS = 250;
const HOW =
  `Arrow keys go ${UNIT} pixels at a time, with Shift ${STRIDE}. Enter keeps the result, Escape undoes it.`;

export class Nudge {
  constructor(page, board) {
    this._page = page;
    this._board = board;
    this._going = null;
  }

  /** The card being moved by keys, or null. */
  get view() {
    return this._going?.view ?? null;
  }

  attach(view) {
    this._listen(view, view.mover, 'move');
    this._listen(view, view.sizer, 'resize');
  }

  _listen(view, button, kind) {
    button.addEventListener('keydown', (event) => this._key(event, view, kind));
    button.addEventListener('blur', () => this.keep());
    button.addEventListener('click', () => {
      if (this._going === null) this._page.toast({ kind: 'info', text: HOW });
    });
  }

  _key(event, view, kind) {
    const step = STEPS[event.key];
    if (step) {
      if (view.place === null) return;
      this._step(view, kind, step, event.shiftKey ? STRIDE : UNIT);
    } else if (this._going !== null && (event.key === 'Enter' || event.key === ' ')) {
      this.keep();
    } else if (this._going !== null && event.key === 'Escape') {
      this.cancel();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  _step(view, kind, [across, down], pixels) {
    if (this._going === null) {
      this._going = { view, kind, place: { ...view.place } };
      this._board.hold(view);
    }
    const { place } = this._going;
    const shifted = (value, by, least) => Math.max(least, snap(value + by * pixels));
    if (kind === 'move') {
      place.x = shifted(place.x, across, 0);
      place.y = shifted(place.y, down, 0);
    } else {
      place.width = shifted(place.width, across, LEAST.width);
      place.height = shifted(place.height, down, LEAST.height);
    }
    view.put({ ...place });
    view.element.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    this._sayAtRest(view, kind, place);
  }

  _sayAtRest(view, kind, { x, y, width, height }) {
    clearTimeout(this._saying);
    const where = kind === 'move' ? `${x} across, ${y} down` : `${width} wide, ${height} high`;
    this._saying = setTimeout(() => this._page.announce(`${view.card.title}: ${where}`), REST_MS);
  }

  /** Keeps the place the keys have led to. */
  keep() {
    const going = this._going;
    if (going === null) return;
    this._going = null;
    clearTimeout(this._saying);
    this._board.drop(going.view, going.place, going.kind);
  }

  /** Puts the card back to where it was. */
  cancel() {
    const going = this._going;
    if (going === null) return;
    this._going = null;
    clearTimeout(this._saying);
    this._board.release(going.view);
    this._page.announce(`${going.view.card.title} is back in its place`);
  }
}
