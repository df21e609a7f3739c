// Moving and resizing by mouse, pen and finger: pointer events, captured, so that nothing underneath is woken.

import { LEAST } from './packing.js';

/** Less than this is a click. */
const THRESHOLD = 4;
/** Within so many pixels of the board's edge it scrolls along, by so many pixels a frame at most. */
const EDGE = 48;
const SPEED = 18;

export class Drag {
  constructor(board) {
    this._board = board;
    this._grip = null;
  }

  /** The card being dragged, or null. */
  get view() {
    return this._grip?.moved ? this._grip.view : null;
  }

  attach(view) {
    view.head.addEventListener('pointerdown', (event) => {
      // A finger on the head scrolls the board; it drags by the button.
      if (event.pointerType !== 'touch' && !event.target.closest('button')) this._press(event, view, 'move', view.head);
    });
    view.mover.addEventListener('pointerdown', (event) => this._press(event, view, 'move', view.mover));
    view.sizer.addEventListener('pointerdown', (event) => this._press(event, view, 'resize', view.sizer));
  }

  _press(event, view, kind, handle) {
    if (event.button !== 0 || this._grip || this._board.narrow || view.place === null) return;
    handle.setPointerCapture(event.pointerId);
    const { scroller } = this._board;
    const ending = new AbortController();
    this._grip = {
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
    const on = (target, type, act) => target.addEventListener(type, act, { signal: ending.signal, capture: true });
    on(handle, 'pointermove', (move) => this._follow(move));
    on(handle, 'pointerup', () => this._drop());
    on(handle, 'pointercancel', () => this.cancel());
    on(handle, 'lostpointercapture', () => this.cancel());
    on(window, 'keydown', (key) => {
      if (key.key !== 'Escape') return;
      key.preventDefault();
      key.stopPropagation();
      this.cancel();
    });
  }

  _follow(event) {
    const grip = this._grip;
    if (!grip || event.pointerId !== grip.pointer) return;
    grip.at = { x: event.clientX, y: event.clientY };
    if (!grip.moved) {
      const { scroller } = this._board;
      const far = Math.hypot(
        event.clientX + scroller.scrollLeft - grip.from.x,
        event.clientY + scroller.scrollTop - grip.from.y,
      );
      if (far < THRESHOLD) return;
      grip.moved = true;
      this._board.hold(grip.view);
    }
    // At most once a frame, however often the pointer speaks.
    grip.frame ||= requestAnimationFrame(() => this._draw());
  }

  _draw() {
    const grip = this._grip;
    if (!grip) return;
    grip.frame = 0;
    const { scroller } = this._board;
    if (this._scrollAlong(grip.at, scroller.getBoundingClientRect())) {
      grip.frame = requestAnimationFrame(() => this._draw());
    }
    grip.view.put(this._target());
  }

  _target() {
    const { kind, origin, from, at } = this._grip;
    const { scroller } = this._board;
    const across = at.x + scroller.scrollLeft - from.x;
    const down = at.y + scroller.scrollTop - from.y;
    if (kind === 'resize') {
      const width = Math.max(LEAST.width, origin.width + across);
      return { ...origin, width, height: Math.max(LEAST.height, origin.height + down) };
    }
    return { ...origin, x: Math.max(0, origin.x + across), y: Math.max(0, origin.y + down) };
  }

  _scrollAlong(at, edges) {
    const { scroller } = this._board;
    const before = scroller.scrollTop + scroller.scrollLeft;
    const pull = (near, far) => (near < EDGE ? near - EDGE : far < EDGE ? EDGE - far : 0);
    const step = (distance) => Math.max(-SPEED, Math.min(SPEED, distance / 3));
    scroller.scrollTop += step(pull(at.y - edges.top, edges.bottom - at.y));
    scroller.scrollLeft += step(pull(at.x - edges.left, edges.right - at.x));
    return scroller.scrollTop + scroller.scrollLeft !== before;
  }

  _drop() {
    const grip = this._grip;
    if (!grip?.moved) {
      this._end();
      return;
    }
    const place = this._target();
    this._end();
    this._swallowClick(grip.handle);
    this._board.drop(grip.view, place, grip.kind);
  }

  /** The click that ends a drag is none on the button. */
  _swallowClick(handle) {
    const swallow = (event) => event.stopImmediatePropagation();
    handle.addEventListener('click', swallow, { capture: true, once: true });
    setTimeout(() => handle.removeEventListener('click', swallow, { capture: true }));
  }

  /** Lets go, and the card returns to where it was. */
  cancel() {
    const grip = this._grip;
    this._end();
    if (grip?.moved) this._board.release(grip.view);
  }

  _end() {
    const grip = this._grip;
    if (!grip) return;
    this._grip = null;
    grip.ending.abort();
    cancelAnimationFrame(grip.frame);
    if (grip.handle.hasPointerCapture(grip.pointer)) grip.handle.releasePointerCapture(grip.pointer);
  }
}
