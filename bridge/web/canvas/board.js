// The cards of one stack: makes their views a few at a time, and says where each stands.
//
// A card in somebody's hand (dragged, or moved by keys) is never moved by anything else.

import { h } from '../dom.js';
import { CardView } from './card_view.js';
import { Drag } from './drag.js';
import { Moves } from './moves.js';
import { Nudge } from './nudge.js';
import { NARROW, UNIT, bounded, columnsOf, pack, snap, widthOf } from './packing.js';

/** A card that nobody has sized is no higher than this; its content scrolls. */
const HIGHEST = 30 * UNIT;
const LOWEST = 5 * UNIT;
/** Cards are made for so long, then the browser gets its turn. */
const SLICE_MS = 8;
/** Cards measured in one go; each go lays the page out. */
const AT_ONCE = 4;
const NEWS_MS = 8000;

export class Board {
  /**
   * `archive(view)` is called when the person takes a card off the canvas; `touched` are the ids of cards that the agent
   * has just changed: each gets one highlight when it is drawn.
   */
  constructor(page, archive, touched) {
    this._page = page;
    this._archive = archive;
    this._views = new Map();
    this._stackId = null;
    this._columns = null;
    this._columnOf = new Map();
    this._held = null;
    this._heldFrom = null;
    this._visible = false;
    this._frame = 0;
    this._touched = touched;
    this.narrow = false;
    this.moves = new Moves(page, () => this._soon());
    this._drag = new Drag(this);
    this._nudge = new Nudge(page, this);
    this._sheet = h('div', { class: 'board-sheet' });
    this._news = h('button', { type: 'button', class: 'button small board-news', hidden: true });
    this.scroller = h('div', { class: 'board scroll', id: 'canvas-board', role: 'tabpanel', tabIndex: 0 }, this._sheet);
    this.element = h('div', { class: 'board-frame' }, this.scroller, this._news);
    this.scroller.addEventListener('scroll', () => this._hideNewsInSight(), { passive: true });
    new ResizeObserver(() => this._soon()).observe(this.scroller);
  }

  show(visible) {
    this._visible = visible;
    if (visible) this._soon();
    else this._letGo();
  }

  /** Shows another stack's cards; null shows none. */
  open(stackId) {
    if (stackId === this._stackId) return;
    this._letGo();
    this._stackId = stackId;
    this._views.clear();
    this._columnOf.clear();
    this._sheet.replaceChildren();
    this._news.hidden = true;
    this.scroller.scrollTo(0, 0);
    this._soon();
  }

  /** Follows the store; called whenever cards may have changed. */
  follow() {
    this._soon();
  }

  /** The cards of this stack, in the order they were made. */
  get cards() {
    const all = [...this._page.store.state.cards.values()];
    return all.filter((card) => card.stack_id === this._stackId && !card.archived);
  }

  /** Brings a card into sight, and the keyboard to it. */
  focus(cardId) {
    if (!this._views.has(cardId)) this._draw(Infinity);
    const view = this._views.get(cardId);
    if (!view) return;
    view.element.scrollIntoView({ block: 'center', inline: 'nearest' });
    view.element.focus({ preventScroll: true });
    view.flash();
  }

  // --- a card in somebody's hand ---

  hold(view) {
    this._held = view;
    this._heldFrom = view.place;
    view.hold(true);
  }

  /** A person has put a card somewhere. */
  drop(view, place, kind) {
    this._free(view);
    const kept = bounded({ x: snap(place.x), y: snap(place.y), width: snap(place.width), height: snap(place.height) });
    this.moves.keep(view.card, kept);
    this._page.announce(
      kind === 'move'
        ? `${view.card.title} moved to ${kept.x} across, ${kept.y} down`
        : `${view.card.title} is now ${kept.width} wide, ${kept.height} high`,
    );
    this._layout();
  }

  /** The card goes back to where it was. */
  release(view) {
    this._free(view);
    this._layout();
  }

  _free(view) {
    view.hold(false);
    if (this._held === view) this._held = null;
  }

  _letGo() {
    this._drag.cancel();
    this._nudge.keep();
  }

  // --- drawing ---

  _soon() {
    if (this._frame || !this._visible) return;
    this._frame = requestAnimationFrame(() => {
      this._frame = 0;
      if (this._visible) this._draw(performance.now() + SLICE_MS);
    });
  }

  /** Brings the views up to date; new ones are made until `deadline` (as performance.now), the others a frame later. */
  _draw(deadline) {
    const cards = this.cards;
    this._drop(new Set(cards.map((card) => card.card_id)));
    const lit = [];
    let behind = null;
    let left = false;
    for (const card of cards) {
      let view = this._views.get(card.card_id);
      if (view === undefined) {
        if (performance.now() > deadline) {
          left = true;
          break;
        }
        view = this._make(card, behind);
        if (this._touched.has(card.card_id)) lit.push(view);
      } else if (view.card !== card && view.update(card) && this._touched.has(card.card_id)) {
        lit.push(view);
      }
      behind = view;
    }
    this._layout(deadline);
    if (left) this._soon();
    else this._touched.clear();
    for (const view of lit) view.flash();
    this._tellOutOfSight(lit.at(-1));
  }

  _make(card, behind) {
    const view = new CardView(this._page, card, this._archive);
    this._drag.attach(view);
    this._nudge.attach(view);
    this._views.set(card.card_id, view);
    if (behind === null) this._sheet.prepend(view.element);
    else behind.element.after(view.element);
    return view;
  }

  _drop(ids) {
    for (const [id, view] of this._views) {
      if (ids.has(id)) continue;
      if (this._held === view) this._letGo();
      const focused = view.element.contains(document.activeElement);
      this._views.delete(id);
      view.element.remove();
      if (focused) this.scroller.focus({ preventScroll: true });
    }
  }

  // --- places ---

  /** Says where each card stands; heights that nobody sees are measured until `deadline`, the others later. */
  _layout(deadline = performance.now()) {
    // The sheet may be wider, where somebody with a larger screen has placed a card.
    const width = this.scroller.clientWidth - 2 * UNIT;
    if (width <= 0) return;
    this.narrow = width < NARROW;
    this.element.classList.toggle('narrow', this.narrow);
    if (this.narrow) this._flow();
    else this._pack(columnsOf(width), deadline);
    for (const view of this._views.values()) view.markScrolling();
  }

  _flow() {
    this._columns = null;
    this._sheet.style.removeProperty('height');
    for (const view of this._views.values()) view.put(null);
  }

  _pack(columns, deadline) {
    if (columns.count !== this._columns?.count) this._columnOf.clear();
    this._columns = columns;
    const views = this._inOrder();
    this._measureAll(views, columns, deadline);
    const items = views.map((view) => this._item(view, columns));
    const { places, columnOf, width, height } = pack(items, columns, this._columnOf);
    this._columnOf = columnOf;
    for (const view of views) {
      if (view === this._held) continue;
      const first = view.place === null;
      view.put(places.get(view.card.card_id));
      // Its first place is no movement.
      if (first) requestAnimationFrame(() => view.element.classList.add('settled'));
    }
    this._sheet.style.height = `${height + 2 * UNIT}px`;
    this._sheet.style.minWidth = `${width + 2 * UNIT}px`;
  }

  _inOrder() {
    return this.cards.map((card) => this._views.get(card.card_id)).filter(Boolean);
  }

  /**
   * Heights of cards that nobody has sized. New and changed ones, and those in sight, are measured now; the others keep
   * the height they had at another width until their turn comes.
   */
  _measureAll(views, columns, deadline) {
    const asked = views
      .filter((view) => this._sizeOf(view) === null && view !== this._held)
      .map((view) => ({ view, width: widthOf(view.span, columns) }))
      .filter(({ view, width }) => view.measured.width !== width);
    const urgent = asked.filter(({ view }) => view.measured.width === 0 || !view.skipped);
    this._measure(urgent);
    const rest = asked.filter((each) => !urgent.includes(each));
    let at = 0;
    for (; at < rest.length && performance.now() < deadline; at += AT_ONCE) this._measure(rest.slice(at, at + AT_ONCE));
    if (at < rest.length) this._soon();
  }

  /** All widths first, then all heights, so that the page is laid out once. */
  _measure(asked) {
    for (const { view, width } of asked) view.measureBegin(width);
    for (const { view, width } of asked) view.measureEnd(width);
    for (const { view } of asked) view.measureOver();
  }

  _sizeOf(view) {
    return this.moves.of(view.card.card_id) ?? view.card.size;
  }

  _item(view, columns) {
    const { card } = view;
    const natural = Math.min(HIGHEST, Math.max(LOWEST, Math.ceil(view.measured.height / UNIT) * UNIT));
    const size = this._sizeOf(view) ?? { width: widthOf(view.span, columns), height: natural };
    const item = { id: card.card_id, span: view.span, height: size.height };
    // Until it is dropped, the gap it came from stays open, and nothing else moves.
    if (view === this._held) return { ...item, placed: this._heldFrom };
    const position = this.moves.of(card.card_id) ?? card.position;
    return position ? { ...item, placed: { ...size, x: position.x, y: position.y } } : item;
  }

  // --- news out of sight ---

  _tellOutOfSight(view) {
    if (!view || this._inSight(view)) return;
    this._news.textContent = `“${view.card.title}” is new or has changed. Show it`;
    this._news.hidden = false;
    this._news.onclick = () => {
      this._news.hidden = true;
      this.focus(view.card.card_id);
    };
    this._newsOf = view;
    clearTimeout(this._newsTimer);
    this._newsTimer = setTimeout(() => {
      this._news.hidden = true;
    }, NEWS_MS);
  }

  _hideNewsInSight() {
    if (!this._news.hidden && this._inSight(this._newsOf)) this._news.hidden = true;
  }

  _inSight(view) {
    const card = view.element.getBoundingClientRect();
    const frame = this.scroller.getBoundingClientRect();
    return card.top < frame.bottom - 32 && card.bottom > frame.top + 32;
  }
}
