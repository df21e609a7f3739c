// The blocks of one card. An unchanged block keeps its elements, with scroll position, sort order and selection. A
// block that is being edited keeps its field whatever changes.

import { evenOutline } from '../outline.js';
import { byKey, elementOf } from '../template.js';
import { guard } from '../vendor/lit-html/directives/guard.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { authorOf, blockFrame, firstAddress, focusAddress } from './block_frame.js';
import { drawBlock, SIDE_BY_SIDE, undrawable } from './blocks.js';
import { NAMES } from './cell_address.js';
import { changeBlock } from './changes.js';
import { draftOf, Edit } from './edit.js';
import { TableView } from './table.js';

/** @import { Block, BlockData, Page } from '../types/page.js' */
/** @import { Address } from './cell_address.js' */
/** @import { Draft } from './edit.js' */

/** The level of a card's title. */
const CARD_HEADING = 3;

/**
 * `key` is the block's id, also of its place if two blocks have the same.
 * @typedef {{ key: string, json: string, place: number, block: Block, table: TableView | null,
 *   edit: Edit | null }} Drawn
 */

export class CardBody {
  /** @type {Map<string, Drawn>} */
  #drawn = new Map();
  /** @type {Block[]} */
  #blocks = [];
  #title = '';
  element = elementOf(html`<div class="card-body scroll"></div>`);

  /**
   * `grew()` is called when an edit needs another height.
   * @param {Page} page
   * @param {string} cardId
   * @param {() => void} grew
   */
  constructor(page, cardId, grew) {
    this.page = page;
    this.cardId = cardId;
    this.grew = grew;
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
    blocks.forEach((block, place) => {
      const key = this.#drawn.has(block.id) ? `${block.id}/${place}` : block.id;
      const known = before.get(key);
      const json = JSON.stringify(block);
      changed ||= known?.json !== json || known.place !== place;
      this.#drawn.set(key, known?.json === json ? { ...known, place } : this.#made(key, block, known, json, place));
    });
    // An unfinished edit of a removed block stays until the person ends it.
    for (const [key, drawn] of before) if (drawn.edit && !this.#drawn.has(key)) this.#drawn.set(key, drawn);
    if (changed) this.#draw();
    return changed;
  }

  /** Begins an edit at the keyboard focus, or in the first editable block; returns false if there is none. */
  begin() {
    const all = [...this.#drawn.values()].filter(({ block, table }) => table || NAMES.has(block.type));
    const key = document.activeElement?.closest('[data-key]')?.getAttribute('data-key');
    const chosen = (this.element.contains(document.activeElement) && all.find((each) => each.key === key)) || all[0];
    if (chosen?.edit) chosen.edit.focus();
    else if (chosen?.table) chosen.table.begin();
    else if (chosen) this.#begin(chosen.key, firstAddress(chosen.block.type));
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
   * @param {string} json
   * @param {number} place
   * @returns {Drawn}
   */
  #made(key, block, known, json, place) {
    const table = block.type === 'table' ? this.#table(key, block, known?.table) : null;
    const isEditable = block.type === 'table' ? table !== null : NAMES.has(block.type);
    const kept = isEditable && known?.block.type === block.type ? known.edit : null;
    if (known?.edit !== kept) known?.edit?.leave();
    return { key, json, place, block, table, edit: kept ?? (isEditable ? this.#resumed(key, block) : null) };
  }

  /**
   * Returns the view of a table; null if the data is no table.
   * @param {string} key
   * @param {Block} block
   * @param {TableView | null} [known]
   */
  #table(key, block, known) {
    const table =
      known ??
      new TableView(this.page, `Table in ${this.#title}`, {
        begin: (address) => this.#begin(key, address),
        change: async (data) => {
          const seen = this.#drawn.get(key)?.block;
          const changed = (/** @type {Block} */ now) => (now.version === seen?.version ? data : null);
          return seen !== undefined && (await changeBlock(this.page, this.cardId, seen.id, changed));
        },
      });
    try {
      table.update(block.data ?? {}, authorOf(block));
      table.element.dataset.key = key;
      return table;
    } catch {
      return null;
    }
  }

  // --- drawing ---

  #draw() {
    const { activeElement: focused } = document;
    const rows = repeat(this.#rows(), byKey, (row) => this.#row(row));
    render(this.#drawn.size ? rows : html`<p class="muted">An empty card</p>`, this.element);
    evenOutline(this.element, CARD_HEADING);
    // A block that has moved has lost the focus.
    if (focused instanceof HTMLElement && focused !== document.activeElement && this.element.contains(focused))
      focused.focus({ preventScroll: true });
  }

  /** Groups stats beside stats and badges beside badges; other blocks stand alone. */
  #rows() {
    /** @type {{ key: string, type: string, blocks: Drawn[] }[]} */
    const rows = [];
    for (const drawn of this.#drawn.values()) {
      const { type } = drawn.block;
      const last = rows.at(-1);
      if (SIDE_BY_SIDE.has(type) && last?.type === type) last.blocks.push(drawn);
      else rows.push({ key: drawn.key, type, blocks: [drawn] });
    }
    return rows;
  }

  /** @param {{ type: string, blocks: Drawn[] }} row */
  #row({ type, blocks }) {
    const drawn = blocks.map((block) => this.#block(block));
    return SIDE_BY_SIDE.has(type) ? html`<div class="run ${type}s">${drawn}</div>` : drawn[0];
  }

  /** @param {Drawn} drawn */
  #block({ key, json, block, table, edit }) {
    table?.show(edit);
    if (table) return table.element;
    // Drawn as the person saw it while they write.
    return guard(edit ? [edit] : [json], () => {
      if (block.type === 'table') return undrawable('A table block with invalid data', block.data);
      if (!NAMES.has(block.type)) return drawBlock(block);
      const change = (/** @type {(now: Block) => BlockData | null} */ changed) =>
        changeBlock(this.page, this.cardId, block.id, changed);
      return blockFrame(key, block, this.#title, edit, (address) => this.#begin(key, address), change);
    });
  }

  // --- writing ---

  /**
   * Restores an unfinished edit from before a reload.
   * @param {string} key
   * @param {Block} block
   */
  #resumed(key, block) {
    const draft = draftOf(this.cardId, block.id);
    if (draft === null) return null;
    const edit = this.#edit(key, block, draft.address, draft);
    requestAnimationFrame(() => edit.fit());
    return edit;
  }

  /** @param {string} key @param {Address} address */
  #begin(key, address) {
    const drawn = this.#drawn.get(key);
    if (!drawn) return;
    if (!drawn.edit) {
      drawn.edit = this.#edit(key, drawn.block, address);
      this.#draw();
    }
    drawn.edit.focus();
  }

  /** @param {string} key @param {Block} block @param {Address} address @param {Draft | null} [draft] */
  #edit(key, block, address, draft = null) {
    const ended = (/** @type {boolean} */ focused) => this.#ended(key, address, focused);
    return new Edit(this.page, this.cardId, block, address, { ended, grew: this.grew }, draft);
  }

  /** @param {string} key @param {Address} address @param {boolean} focused */
  #ended(key, address, focused) {
    const drawn = this.#drawn.get(key);
    if (!drawn) return;
    Object.assign(drawn, { edit: null, json: '' });
    this.update(this.page.store.state.cards.get(this.cardId)?.blocks ?? this.#blocks, this.#title);
    this.grew();
    if (!focused) return;
    const now = this.#drawn.get(key);
    if (now?.table) now.table.focus(address);
    else if (now) focusAddress(this.element.querySelector(`[data-key="${CSS.escape(key)}"]`), address);
  }
}
