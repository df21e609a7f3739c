// The cards of one stack: creates their views a few at a time, and places them.
//
// A card that is dragged, or moved by keys, is never moved by other code.

import { elementOf, itself } from '../template.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { CardView } from './card_view.js';
import { Drag } from './drag.js';
import { Highlights } from './highlights.js';
import { KeyboardMove } from './keyboard_move.js';
import { Moves } from './moves.js';
import { bounded, columnsOf, NARROW, pack, UNIT, widthOf } from './packing.js';

/** @import { Grip, Page, Place } from '../types/page.js' */
/** @import { Columns, Item } from './packing.js' */

/** Largest height of a card without a chosen size; its content scrolls. */
const HIGHEST = 30 * UNIT;
const LOWEST = 5 * UNIT;
/** Time for creating cards before the browser gets its turn. */
const SLICE_MS = 16;
/** Cards measured at once; each batch lays the page out. */
const AT_ONCE = 4;
/** A width that has not changed for this long counts as final. */
const CALM_MS = 120;

/** @typedef {{ view: CardView, width: number }} Asked */

export class Board {
  #page;
  #hands;
  /** @type {Map<string, CardView>} */
  #views = new Map();
  /** @type {string | null} */
  #stackId = null;
  /** @type {Columns | null} */
  #columns = null;
  /** @type {Map<string, number>} */
  #columnOf = new Map();
  /** @type {CardView | null} */
  #held = null;
  /** @type {Place | null} */
  #heldFrom = null;
  #visible = false;
  #frame = 0;
  #touched;
  #sheet;
  #highlights;
  #width = 0;
  #resizing = false;
  #calming = 0;

  /**
   * `archive(view)` is called when the person archives a card; `touched` are the ids of cards that the agent has just
   * changed: each is highlighted once when it is drawn.
   * @param {Page} page
   * @param {(view: CardView) => void} archive
   * @param {Set<string>} touched
   */
  constructor(page, archive, touched) {
    this.#page = page;
    this.#hands = { archive, drag: new Drag(this), keys: new KeyboardMove(page, this) };
    this.#touched = touched;
    this.narrow = false;
    this.moves = new Moves(page, () => this.follow());
    this.#sheet = elementOf(html`<div class="board-sheet"></div>`);
    this.scroller = elementOf(
      html`<div class="board scroll" id="canvas-board" role="tabpanel" tabindex="0">${this.#sheet}</div>`,
    );
    this.#highlights = new Highlights(this.scroller, (view) => this.focus(view.card.card_id));
    this.element = elementOf(html`<div class="board-frame">${this.scroller}${this.#highlights.element}</div>`);
    new ResizeObserver(() => this.#resized()).observe(this.scroller);
  }

  /** @param {boolean} visible */
  show(visible) {
    this.#visible = visible;
    if (visible) this.follow();
    else this.#letGo();
  }

  /**
   * Shows the cards of another stack; null shows none.
   * @param {string | null} stackId
   */
  open(stackId) {
    if (stackId === this.#stackId) return;
    this.#letGo();
    this.#stackId = stackId;
    for (const view of this.#views.values()) view.body.leave();
    this.#views.clear();
    this.#columnOf.clear();
    this.#arrange();
    this.#highlights.hide();
    this.scroller.scrollTo(0, 0);
    this.follow();
  }

  /** The cards of this stack, in order of creation. */
  get cards() {
    const all = [...this.#page.store.state.cards.values()];
    return all.filter((card) => card.stack_id === this.#stackId && !card.archived);
  }

  /**
   * Scrolls a card into view and focuses it.
   * @param {string} cardId
   */
  focus(cardId) {
    if (!this.#views.has(cardId)) this.#draw(Infinity);
    const view = this.#views.get(cardId);
    if (!view) return;
    view.element.scrollIntoView({ block: 'center', inline: 'nearest' });
    view.element.focus({ preventScroll: true });
    view.flash();
  }

  /** The card with the keyboard focus, or null. */
  get focused() {
    return [...this.#views.values()].find((view) => view.element.contains(document.activeElement)) ?? null;
  }

  // --- a card that is being moved ---

  /** @param {CardView} view */
  hold(view) {
    this.#held = view;
    this.#heldFrom = view.place;
    view.element.classList.add('held');
  }

  /**
   * Saves the place that a person has given a card.
   * @param {CardView} view
   * @param {Place} place
   * @param {Grip} kind
   */
  drop(view, place, kind) {
    this.#free(view);
    const kept = bounded(place);
    this.moves.keep(view.card, kept);
    this.#page.announce(
      kind === 'move'
        ? `${view.card.title} moved to ${kept.x} across, ${kept.y} down`
        : `${view.card.title} is now ${kept.width} wide, ${kept.height} high`,
    );
    this.#layout();
  }

  /**
   * Returns a card to its former place.
   * @param {CardView} view
   */
  release(view) {
    this.#free(view);
    this.#layout();
  }

  /** @param {CardView} view */
  #free(view) {
    view.element.classList.remove('held');
    if (this.#held === view) this.#held = null;
  }

  #letGo() {
    this.#hands.drag.cancel();
    this.#hands.keys.keep();
  }

  /** During a resize, cards follow in coarse steps and keep their heights; afterwards they are measured. */
  #resized() {
    const before = this.#width;
    this.#width = this.scroller.clientWidth;
    this.follow();
    // Becoming visible is no change of width, and must not move cards.
    if (before === 0 || this.#width === 0 || before === this.#width) return;
    clearTimeout(this.#calming);
    this.#setResizing(true);
    this.#calming = setTimeout(() => {
      this.#setResizing(false);
      this.follow();
    }, CALM_MS);
  }

  /** @param {boolean} resizing */
  #setResizing(resizing) {
    this.#resizing = resizing;
    this.element.classList.toggle('resizing', resizing);
  }

  // --- drawing ---

  /** Schedules an update from the store; call it whenever cards may have changed. */
  follow() {
    if (this.#frame || !this.#visible) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#visible) this.#draw(performance.now() + SLICE_MS);
    });
  }

  /**
   * Updates the views; new ones are created until `deadline` (as performance.now), the others a frame later.
   * @param {number} deadline
   */
  #draw(deadline) {
    const cards = this.cards;
    this.#drop(new Set(cards.map((card) => card.card_id)));
    const lit = [];
    let left = false;
    for (const card of cards) {
      let view = this.#views.get(card.card_id);
      if (view === undefined) {
        if (performance.now() > deadline) {
          left = true;
          break;
        }
        view = new CardView(this.#page, card, this.#hands);
        this.#views.set(card.card_id, view);
        if (this.#touched.has(card.card_id)) lit.push(view);
      } else if (view.card !== card && view.update(card) && this.#touched.has(card.card_id)) {
        lit.push(view);
      }
    }
    this.#arrange();
    this.#layout(deadline);
    if (left) this.follow();
    else this.#touched.clear();
    for (const view of lit) view.flash();
    const last = lit.at(-1);
    if (last) this.#highlights.tell(last);
  }

  /** Puts the cards' elements into their order; drawn cards stay where they are. */
  #arrange() {
    const elements = repeat(this.#inOrder(), itself, (view) => view.element);
    render(elements, this.#sheet);
  }

  /** @param {Set<string>} ids */
  #drop(ids) {
    for (const [id, view] of this.#views) {
      if (ids.has(id)) continue;
      if (this.#held === view) this.#letGo();
      const focused = view.element.contains(document.activeElement);
      this.#views.delete(id);
      view.body.leave();
      if (focused) this.scroller.focus({ preventScroll: true });
    }
  }

  // --- places ---

  /**
   * Places the cards; hidden heights are measured until `deadline`, the others later.
   * @param {number} [deadline]
   */
  #layout(deadline = performance.now()) {
    // The sheet may be wider, if a card was placed on a larger screen.
    const width = this.scroller.clientWidth - 2 * UNIT;
    if (width <= 0) return;
    this.narrow = width < NARROW;
    this.element.classList.toggle('narrow', this.narrow);
    if (this.narrow) this.#flow();
    else this.#pack(columnsOf(width, this.#resizing ? UNIT : 1), deadline);
    if (!this.#resizing) for (const view of this.#views.values()) view.markScrolling();
  }

  #flow() {
    this.#columns = null;
    for (const name of ['height', 'width']) this.#sheet.style.removeProperty(name);
    for (const view of this.#views.values()) view.put(null);
  }

  /** @param {Columns} columns @param {number} deadline */
  #pack(columns, deadline) {
    if (columns.count !== this.#columns?.count) this.#columnOf.clear();
    this.#columns = columns;
    const views = this.#inOrder();
    this.#measureAll(views, columns, deadline);
    const items = views.map((view) => this.#item(view, columns));
    const { places, columnOf, width, height } = pack(items, columns, this.#columnOf);
    this.#columnOf = columnOf;
    for (const view of views) {
      if (view === this.#held) continue;
      const first = view.place === null;
      view.put(places.get(view.card.card_id) ?? null);
      // The first placement is not animated.
      if (first) requestAnimationFrame(() => view.element.classList.add('settled'));
    }
    this.#sheet.style.height = `${height + 2 * UNIT}px`;
    // Not the board's own width, so that its content needs no layout during a resize.
    this.#sheet.style.width = `${width + 2 * UNIT}px`;
  }

  #inOrder() {
    return this.cards.map((card) => this.#views.get(card.card_id)).filter((view) => view !== undefined);
  }

  /**
   * Measures cards without a chosen size. New, changed and visible ones are measured now; the others keep their former
   * height until their turn comes.
   * @param {CardView[]} views
   * @param {Columns} columns
   * @param {number} deadline
   */
  #measureAll(views, columns, deadline) {
    const asked = views
      .filter((view) => this.#sizeOf(view) === null && view !== this.#held)
      .map((view) => ({ view, width: widthOf(view.span, columns) }))
      .filter(({ view, width }) => view.measured.width !== width);
    const urgent = asked.filter(({ view }) => view.measured.width === 0 || (!view.skipped && !this.#resizing));
    this.#measure(urgent);
    if (this.#resizing) return;
    const rest = asked.filter((each) => !urgent.includes(each));
    let at = 0;
    for (; at < rest.length && performance.now() < deadline; at += AT_ONCE) this.#measure(rest.slice(at, at + AT_ONCE));
    if (at < rest.length) this.follow();
  }

  /**
   * Sets all widths first and reads all heights afterwards, so that the page is laid out once.
   * @param {Asked[]} asked
   */
  #measure(asked) {
    for (const { view, width } of asked) view.measureBegin(width);
    for (const { view, width } of asked) view.measureEnd(width);
    for (const { view } of asked) view.measureOver();
  }

  /** @param {CardView} view */
  #sizeOf(view) {
    return this.moves.of(view.card.card_id) ?? view.card.size;
  }

  /** @param {CardView} view @param {Columns} columns @returns {Item} */
  #item(view, columns) {
    const { card } = view;
    const natural = Math.min(HIGHEST, Math.max(LOWEST, Math.ceil(view.measured.height / UNIT) * UNIT));
    const size = this.#sizeOf(view) ?? { width: widthOf(view.span, columns), height: natural };
    const item = { id: card.card_id, span: view.span, height: size.height };
    // Until the drop, its former gap stays open, and no other card moves.
    if (view === this.#held) return { ...item, placed: this.#heldFrom };
    const position = this.moves.of(card.card_id) ?? card.position;
    return position ? { ...item, placed: { ...size, x: position.x, y: position.y } } : item;
  }
}
