/**
 * The blocks of one card. An unchanged block keeps its element, with scroll position, sort order and selection. A block
 * that is being edited keeps its element whatever changes.
 */

import { h } from '../dom.js';
import { evenOutline } from '../outline.js';
import { authorOf, BlockFrame } from './block_frame.js';
import { drawBlock, SIDE_BY_SIDE, undrawable } from './blocks.js';
import { NAMES } from './cell_address.js';
import { draftOf, Edit } from './edit.js';
import { TableView } from './table.js';

/** @import { Block, Page } from '../types/page.js' */
/** @import { Draft } from './edit.js' */
/** @import { Address } from './cell_address.js' */

/** The level of a card's title. */
const CARD_HEADING = 3;

/**
 * @typedef {object} Drawn
 * @property {string} json
 * @property {number} place
 * @property {Block} block
 * @property {HTMLElement} element
 * @property {TableView | null} table
 * @property {BlockFrame | null} frame
 * @property {Edit | null} edit
 */

export class CardBody {
  /** @type {Page} */
  #page;
  #cardId;
  /** @type {() => void} */
  #grew;
  /** @type {Map<string, Drawn>} */
  #drawn = new Map();
  /** @type {Block[]} */
  #blocks = [];
  #title = '';

  /**
   * `grew()` is called when an edit needs another height.
   * @param {Page} page
   * @param {string} cardId
   * @param {() => void} grew
   */
  constructor(page, cardId, grew) {
    this.#page = page;
    this.#cardId = cardId;
    this.#grew = grew;
    this.element = h('div', { class: 'card-body scroll' });
  }

  /**
   * Draws the blocks; returns true if the appearance has changed.
   * @param {Block[]} blocks
   * @param {string} title
   */
  update(blocks, title) {
    this.#blocks = blocks;
    this.#title = title;
    const before = this.#drawn;
    this.#drawn = new Map();
    let changed = before.size !== blocks.length;
    let place = 0;
    for (const block of blocks) {
      const key = this.#drawn.has(block.id) ? `${block.id}/${place}` : block.id;
      const known = before.get(key);
      const json = JSON.stringify(block);
      const same = known?.json === json;
      changed ||= !same || known.place !== place;
      this.#drawn.set(key, { ...(same ? known : this.#draw(key, block, known)), json, place });
      place += 1;
    }
    // An unfinished edit of a removed block stays until the person ends it.
    for (const [key, drawn] of before) if (drawn.edit && !this.#drawn.has(key)) this.#drawn.set(key, drawn);
    if (changed) {
      this.#arrange(this.#drawn.size > 0 ? this.#grouped() : [h('p', { class: 'muted' }, 'An empty card')]);
      evenOutline(this.element, CARD_HEADING);
    }
    return changed;
  }

  /** Begins an edit at the keyboard focus, or in the first editable block; returns false if there is none. */
  begin() {
    const drawn = [...this.#drawn.values()];
    const focused = drawn.find(({ element }) => element.contains(document.activeElement));
    const chosen = focused?.frame || focused?.table ? focused : drawn.find(({ frame, table }) => frame || table);
    if (chosen?.edit) chosen.edit.focus();
    else (chosen?.frame ?? chosen?.table)?.begin();
    return chosen !== undefined;
  }

  /** Ends the use of the card's elements. */
  leave() {
    for (const { edit } of this.#drawn.values()) edit?.leave();
  }

  /**
   * @param {string} key
   * @param {Block} block
   * @param {Drawn | undefined} known
   * @returns {Drawn}
   */
  #draw(key, block, known) {
    const bare = { json: '', place: 0, block, table: null, frame: null, edit: null };
    if (block.type === 'table') return { ...bare, ...this.#table(key, block, known) };
    // Its element holds the field.
    if (known?.edit && known.block.type === block.type) return { ...known, block };
    known?.edit?.leave();
    if (!NAMES.has(block.type)) return { ...bare, element: drawBlock(block) };
    const frame = new BlockFrame(block, this.#title, (address) => this.#begin(key, address));
    const drawn = { ...bare, element: frame.element, frame };
    return { ...drawn, edit: this.#resumed(key, block, (edit) => frame.show(edit)) };
  }

  /**
   * @param {string} key
   * @param {Block} block
   * @param {Drawn | undefined} known
   */
  #table(key, block, known) {
    const begin = (/** @type {Address} */ address) => this.#begin(key, address);
    const table = known?.table ?? new TableView(this.#page, `Table in ${this.#title}`, begin);
    try {
      table.update(block.data ?? {}, authorOf(block));
    } catch {
      known?.edit?.leave();
      return { element: undrawable('A table block whose data does not fit', block.data) };
    }
    const edit = known?.edit ?? this.#resumed(key, block, (made) => table.show(made));
    return { element: table.element, table, edit };
  }

  // --- writing ---

  /**
   * Restores an unfinished edit from before a reload.
   * @param {string} key
   * @param {Block} block
   * @param {(edit: Edit) => void} show
   */
  #resumed(key, block, show) {
    const draft = draftOf(this.#cardId, block.id);
    if (draft === null) return null;
    const edit = this.#edit(key, block, draft.address, draft);
    show(edit);
    requestAnimationFrame(() => edit.fit());
    return edit;
  }

  /**
   * @param {string} key
   * @param {Address} address
   */
  #begin(key, address) {
    const drawn = this.#drawn.get(key);
    if (!drawn) return;
    if (drawn.edit) {
      drawn.edit.focus();
      return;
    }
    const edit = this.#edit(key, drawn.block, address);
    this.#drawn.set(key, { ...drawn, edit });
    (drawn.frame ?? drawn.table)?.show(edit);
    edit.focus();
  }

  /**
   * @param {string} key
   * @param {Block} block
   * @param {Address} address
   * @param {Draft | null} [draft]
   */
  #edit(key, block, address, draft = null) {
    const ended = (/** @type {boolean} */ focused) => this.#ended(key, address, focused);
    return new Edit(this.#page, this.#cardId, block, address, { ended, grew: this.#grew }, draft);
  }

  /**
   * @param {string} key
   * @param {Address} address
   * @param {boolean} focused
   */
  #ended(key, address, focused) {
    const drawn = this.#drawn.get(key);
    if (!drawn) return;
    drawn.edit?.element.remove();
    drawn.table?.hide();
    this.#drawn.set(key, { ...drawn, edit: null, json: '' });
    const card = this.#page.store.state.cards.get(this.#cardId);
    this.update(card?.blocks ?? this.#blocks, this.#title);
    this.#grew();
    if (!focused) return;
    const now = this.#drawn.get(key);
    (now?.frame ?? now?.table)?.focus(address);
  }

  // --- places ---

  /**
   * Arranges the rows in order; it does not touch rows that are already in place, or the field with the focus.
   * @param {HTMLElement[]} rows
   */
  #arrange(rows) {
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    const wanted = new Set(rows);
    for (const there of [...this.element.children]) if (!wanted.has(/** @type {HTMLElement} */ (there))) there.remove();
    rows.forEach((row, place) => {
      const there = this.element.children[place] ?? null;
      if (there !== row) this.element.insertBefore(row, there);
    });
    if (focused instanceof HTMLElement && focused !== document.activeElement) focused.focus({ preventScroll: true });
  }

  /** Groups stats beside stats and badges beside badges; other blocks stand alone. */
  #grouped() {
    /** @type {HTMLElement[]} */
    const rows = [];
    /** @type {HTMLElement | null} */
    let run = null;
    let runOf = '';
    for (const { block, element } of this.#drawn.values()) {
      if (!SIDE_BY_SIDE.has(block.type)) {
        run = null;
        rows.push(element);
      } else if (run !== null && runOf === block.type) {
        run.append(element);
      } else {
        run = h('div', { class: `run ${block.type}s` }, element);
        runOf = block.type;
        rows.push(run);
      }
    }
    return rows;
  }
}
