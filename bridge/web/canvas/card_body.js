/**
 * The blocks of one card: a block that did not change keeps its element, with its scroll place, order and selection.
 */

import { h } from '../dom.js';
import { evenOutline } from '../outline.js';
import { drawBlock, SIDE_BY_SIDE, undrawable } from './blocks.js';
import { TableView } from './table.js';

/** @import { Block, Page } from '../types/page.js' */

/** The level of a card's title. */
const CARD_HEADING = 3;

/**
 * @typedef {object} Drawn
 * @property {string} json
 * @property {number} place
 * @property {string} type
 * @property {HTMLElement} element
 * @property {TableView | null} table
 */

export class CardBody {
  /** @type {Page} */
  #page;
  /** @type {Map<string, Drawn>} */
  #drawn = new Map();

  /** @param {Page} page */
  constructor(page) {
    this.#page = page;
    this.element = h('div', { class: 'card-body scroll' });
  }

  /**
   * Draws the blocks; true if anything looks different from before.
   * @param {Block[]} blocks
   * @param {string} title
   */
  update(blocks, title) {
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
      const { element, table } = same ? known : this.#draw(block, known, title);
      this.#drawn.set(key, { json, place, type: block.type, element, table });
      place += 1;
    }
    if (changed) {
      this.element.replaceChildren(...this.#grouped());
      evenOutline(this.element, CARD_HEADING);
    }
    if (blocks.length === 0) this.element.replaceChildren(h('p', { class: 'muted' }, 'An empty card'));
    return changed;
  }

  /**
   * @param {Block} block
   * @param {Drawn | undefined} known
   * @param {string} title
   */
  #draw(block, known, title) {
    if (block.type !== 'table') return { element: drawBlock(block), table: null };
    const table = known?.table ?? new TableView(this.#page, `Table in ${title}`);
    try {
      table.update(block.data ?? {});
    } catch {
      return { element: undrawable('A table block whose data does not fit', block.data), table: null };
    }
    return { element: table.element, table };
  }

  /** Stats beside stats, badges beside badges, everything else below each other. */
  #grouped() {
    /** @type {HTMLElement[]} */
    const rows = [];
    /** @type {HTMLElement | null} */
    let run = null;
    let runOf = '';
    for (const { type, element } of this.#drawn.values()) {
      if (!SIDE_BY_SIDE.has(type)) {
        run = null;
        rows.push(element);
      } else if (run !== null && runOf === type) {
        run.append(element);
      } else {
        run = h('div', { class: `run ${type}s` }, element);
        runOf = type;
        rows.push(run);
      }
    }
    return rows;
  }
}
