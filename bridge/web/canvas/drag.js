// Move and resize cards by mouse, pen and finger, with captured pointer events.

import { LEAST, snap } from './packing.js';

/** @import { Grip, Place, Point } from '../types/page.js' */
/** @import { Board } from './board.js' */
/** @import { CardView } from './card_view.js' */

/** A shorter movement is a click. */
const THRESHOLD = 4;
/** Distance in pixels from the board's edge within which it scrolls, and the largest step a frame. */
const EDGE = 48;
const SPEED = 18;

/**
 * @typedef {{ view: CardView, kind: Grip, handle: HTMLElement, ending: AbortController, pointer: number,
 *   origin: Place, from: Point, at: Point, moved: boolean, frame: number }} Held
 */

export class Drag {
  #board;
  /** @type {Held | null} */
  #grip = null;

  /** @param {Board} board */
  constructor(board) {
    this.#board = board;
  }

  /**
   * Begins to move a card by its head. A finger on the head scrolls the board; it drags by the button.
   * @param {PointerEvent} event
   * @param {CardView} view
   */
  pressHead(event, view) {
    const onButton = event.target instanceof Element && event.target.closest('button');
    if (event.pointerType !== 'touch' && !onButton) this.press(event, view, 'move');
  }

  /**
   * Begins to move or resize a card by the element that was pressed.
   * @param {PointerEvent} event
   * @param {CardView} view
   * @param {Grip} kind
   */
  press(event, view, kind) {
    const handle = /** @type {HTMLElement} */ (event.currentTarget);
    if (event.button !== 0 || this.#grip || this.#board.narrow || view.place === null) return;
    handle.setPointerCapture(event.pointerId);
    const { scroller } = this.#board;
    const ending = new AbortController();
    this.#grip = {
      view,
      kind,
      handle,
      ending,
      pointer: event.pointerId,
      origin: { ...view.place },
      from: { x: event.clientX + scroller.scrollLeft, y: event.clientY + scroller.scrollTop },
      at: { x: event.clientX, y: event.clientY },
      moved: false,
      frame: 0,
    };
    const options = { signal: ending.signal, capture: true };
    handle.addEventListener('pointermove', (move) => this.#follow(move), options);
    handle.addEventListener('pointerup', () => this.#drop(), options);
    handle.addEventListener('pointercancel', () => this.cancel(), options);
    handle.addEventListener('lostpointercapture', () => this.cancel(), options);
    const onEscape = (/** @type {KeyboardEvent} */ key) => {
      if (key.key !== 'Escape') return;
      key.preventDefault();
      key.stopPropagation();
      this.cancel();
    };
    window.addEventListener('keydown', onEscape, options);
  }

  /** @param {PointerEvent} event */
  #follow(event) {
    const grip = this.#grip;
    if (!grip || event.pointerId !== grip.pointer) return;
    grip.at = { x: event.clientX, y: event.clientY };
    if (!grip.moved) {
      const { scroller } = this.#board;
      const far = Math.hypot(
        event.clientX + scroller.scrollLeft - grip.from.x,
        event.clientY + scroller.scrollTop - grip.from.y,
      );
      if (far < THRESHOLD) return;
      grip.moved = true;
      this.#board.hold(grip.view);
    }
    // At most once a frame, however many pointer events arrive.
    grip.frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    const grip = this.#grip;
    if (!grip) return;
    grip.frame = 0;
    const { scroller } = this.#board;
    if (this.#scrollAlong(grip.at, scroller.getBoundingClientRect())) {
      grip.frame = requestAnimationFrame(() => this.#draw());
    }
    grip.view.put(this.#target(grip));
  }

  /** @param {Held} held */
  #target({ kind, origin, from, at }) {
    const { scroller } = this.#board;
    const across = at.x + scroller.scrollLeft - from.x;
    const down = at.y + scroller.scrollTop - from.y;
    if (kind === 'resize') {
      const width = Math.max(LEAST.width, origin.width + across);
      return { ...origin, width, height: Math.max(LEAST.height, origin.height + down) };
    }
    return { ...origin, x: Math.max(0, origin.x + across), y: Math.max(0, origin.y + down) };
  }

  /** @param {Point} at @param {DOMRect} edges */
  #scrollAlong(at, edges) {
    const { scroller } = this.#board;
    const before = scroller.scrollTop + scroller.scrollLeft;
    /** @param {number} near @param {number} far */
    const pull = (near, far) => (near < EDGE ? near - EDGE : far < EDGE ? EDGE - far : 0);
    /** @param {number} distance */
    const step = (distance) => Math.max(-SPEED, Math.min(SPEED, distance / 3));
    scroller.scrollTop += step(pull(at.y - edges.top, edges.bottom - at.y));
    scroller.scrollLeft += step(pull(at.x - edges.left, edges.right - at.x));
    return scroller.scrollTop + scroller.scrollLeft !== before;
  }

  #drop() {
    const grip = this.#grip;
    if (!grip?.moved) {
      this.#end();
      return;
    }
    const place = onGrid(this.#target(grip), grip.kind);
    this.#end();
    this.#swallowClick(grip.handle);
    this.#board.drop(grip.view, place, grip.kind);
  }

  /**
   * Suppresses the click that ends a drag.
   * @param {HTMLElement} handle
   */
  #swallowClick(handle) {
    /** @param {Event} event */
    const swallow = (event) => event.stopImmediatePropagation();
    handle.addEventListener('click', swallow, { capture: true, once: true });
    setTimeout(() => handle.removeEventListener('click', swallow, { capture: true }));
  }

  /** Ends the drag and returns the card to its former place. */
  cancel() {
    const grip = this.#grip;
    this.#end();
    if (grip?.moved) this.#board.release(grip.view);
  }

  #end() {
    const grip = this.#grip;
    if (!grip) return;
    this.#grip = null;
    grip.ending.abort();
    cancelAnimationFrame(grip.frame);
    if (grip.handle.hasPointerCapture(grip.pointer)) grip.handle.releasePointerCapture(grip.pointer);
  }
}

/**
 * Snaps the changed values to the grid and keeps the others.
 * @param {Place} place
 * @param {Grip} kind
 */
function onGrid({ x, y, width, height }, kind) {
  return kind === 'move'
    ? { x: snap(x), y: snap(y), width, height }
    : { x, y, width: snap(width), height: snap(height) };
}
