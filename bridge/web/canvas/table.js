/**
 * A table block: sorts by its column heads, copies as CSV, and draws only the visible rows of a long table. A person
 * edits a cell by a click, or with the arrow keys and Enter.
 *
 * Built without templates: ten thousand rows stay data, not elements.
 */

import { copyText, h } from '../dom.js';
import { number, plural } from '../format.js';
import { csvOf } from './csv.js';
import { aligned, cellText, decimalsOf, isFigures } from './figures.js';
import { nextSort, orderOf } from './sorting.js';

/** @import { BlockData, Page } from '../types/page.js' */
/** @import { Edit } from './edit.js' */
/** @import { Sort } from './sorting.js' */
/** @import { Address } from './cell_address.js' */

/** Up to this size every row is an element, may be as high as its text, and the browser's find sees it. */
const ALL_ROWS = 150;
/** Height of a windowed row in pixels, the same as in canvas.css. */
const ROW = 33;
/** Rows drawn above and below the visible ones, so that fast scrolling shows no gap. */
const SPARE = 12;
/** Rows whose text length determines the width of a windowed column. */
const SAMPLE = 200;
const NARROWEST = 5;
const WIDEST = 32;
/** Smallest width of a cell's field in pixels, with room for its buttons. */
const FIELD = 232;
/** @type {Record<string, [down: number, across: number]>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class TableView {
  /** @type {Page} */
  #page;
  /** @type {Sort | null} */
  #sort = null;
  #drawn = '';
  #frame = 0;
  #group;
  #head;
  #body;
  #table;
  #scroller;
  #count;
  #copy;
  /** @type {string[]} */
  #columns = [];
  /** @type {unknown[][]} */
  #rows = [];
  /** @type {boolean[]} */
  #figures = [];
  /** @type {number[]} */
  #decimals = [];
  #windowed = false;
  /** @type {number[]} */
  #order = [];
  /** The cell with the keyboard focus: its row in the current order, and its column. */
  #current = { place: 0, column: 0 };
  /** @type {(address: Address) => void} */
  #begin;
  /** @type {Edit | null} */
  #edit = null;
  #author;

  /**
   * `page` announces and shows messages; `name` is the table's accessible name; `begin(address)` is called when the
   * person wants to edit a cell.
   * @param {Page} page
   * @param {string} name
   * @param {(address: Address) => void} begin
   */
  constructor(page, name, begin) {
    this.#page = page;
    this.#begin = begin;
    this.#group = h('colgroup');
    this.#head = h('tr');
    this.#body = h('tbody');
    this.#body.addEventListener('click', (event) => this.#clicked(event));
    this.#body.addEventListener('keydown', (event) => this.#keyed(event));
    this.#table = h('table', null, this.#group, h('thead', null, this.#head), this.#body);
    this.#scroller = h('div', { class: 'table-scroll scroll', role: 'region', tabIndex: 0, 'aria-label': name });
    this.#scroller.append(this.#table);
    this.#scroller.addEventListener('scroll', () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#soon()).observe(this.#scroller);
    this.#count = h('span', { class: 'tabular' });
    this.#copy = h('button', { type: 'button', class: 'button quiet small' }, 'Copy as CSV');
    this.#copy.addEventListener('click', () => this.#copyAll());
    this.element = h('div', { class: 'table-block' }, this.#scroller);
    this.#author = h('span', { class: 'block-author grow' });
    this.element.append(h('div', { class: 'table-foot' }, this.#count, this.#author, this.#copy));
  }

  /**
   * Shows other data; the person's sort order stays while its column exists. Throws for data that is no table. `author`
   * names who changed it last.
   * @param {BlockData} data
   * @param {string} author
   */
  update({ columns, rows }, author) {
    if (!Array.isArray(columns) || !Array.isArray(rows)) throw new TypeError('no table');
    const names = columns.map(cellText);
    const listed = rows.map((row) => (Array.isArray(row) ? row : columns.map((column) => row?.[column])));
    if (this.#sort !== null && names[this.#sort.column] !== this.#columns[this.#sort.column]) this.#sort = null;
    this.#columns = names;
    this.#rows = listed;
    this.#figures = names.map((_, column) => isFigures(listed, column));
    this.#decimals = names.map((_, column) => (this.#figures[column] ? decimalsOf(listed, column) : 0));
    this.#windowed = listed.length > ALL_ROWS;
    this.element.classList.toggle('windowed', this.#windowed);
    this.#table.setAttribute('aria-rowcount', String(listed.length + 1));
    this.#count.textContent = plural(listed.length, 'row');
    this.#author.textContent = author;
    this.#copy.hidden = listed.length === 0;
    const { place, column } = this.#current;
    this.#current = {
      place: Math.max(0, Math.min(place, listed.length - 1)),
      column: Math.max(0, Math.min(column, names.length - 1)),
    };
    this.#drawHead();
    this.#arrange();
  }

  #drawHead() {
    this.#head.replaceChildren(...this.#columns.map((name, column) => this.#heading(name, column)));
    this.#group.replaceChildren(...(this.#windowed ? this.#columns.map((_, column) => this.#column(column)) : []));
  }

  /**
   * @param {string} name
   * @param {number} column
   */
  #heading(name, column) {
    const button = h('button', { type: 'button', class: 'sort' }, h('span', null, name || `Column ${column + 1}`));
    button.addEventListener('click', () => this.#sortBy(column));
    return h('th', { scope: 'col', class: this.#figures[column] ? 'figure' : '' }, button);
  }

  /**
   * Fixes the widths of the columns, because the visible rows change during scrolling.
   * @param {number} column
   */
  #column(column) {
    const longest = this.#rows
      .slice(0, SAMPLE)
      .reduce((most, row) => Math.max(most, cellText(row[column]).length), (this.#columns[column]?.length ?? 0) + 2);
    const element = h('col');
    element.style.width = `${Math.min(WIDEST, Math.max(NARROWEST, longest)) + 3}ch`;
    return element;
  }

  /** @param {number} column */
  #sortBy(column) {
    this.#sort = nextSort(this.#sort, column);
    this.#arrange();
    const how = this.#sort === null ? 'in their own order' : `by ${this.#columns[column]}, ${this.#sort.direction}`;
    this.#page.announce(`Rows ${how}`);
  }

  #arrange() {
    this.#order = orderOf(this.#rows, this.#sort, this.#sort !== null && this.#figures[this.#sort.column] === true);
    [...this.#head.children].forEach((head, column) => {
      if (this.#sort?.column === column) head.setAttribute('aria-sort', this.#sort.direction);
      else head.removeAttribute('aria-sort');
    });
    this.#drawn = '';
    this.#draw();
  }

  #soon() {
    if (!this.#windowed || this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const total = this.#order.length;
    if (total === 0) {
      const none = h('td', { class: 'none', colSpan: Math.max(1, this.#columns.length) }, 'No rows');
      this.#body.replaceChildren(h('tr', null, none));
      return;
    }
    if (!this.#windowed) {
      this.#put(this.#order.map((_, place) => this.#row(place)));
      return;
    }
    const above = Math.floor(this.#scroller.scrollTop / ROW);
    const shown = Math.ceil((this.#scroller.clientHeight || 480) / ROW);
    const first = Math.max(0, Math.min(above, total - shown) - SPARE);
    const last = Math.min(total, first + shown + 2 * SPARE);
    const drawn = `${first}-${last}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const row = this.#row(index, true);
      row.setAttribute('aria-rowindex', String(index + 2));
      rows.push(row);
    }
    this.#put([spacer(first), ...rows, spacer(total - last)]);
  }

  /**
   * Returns the cells of the row at a place in the current order.
   * @param {number} place
   */
  #cells(place) {
    return this.#rows[this.#order[place] ?? -1] ?? [];
  }

  /**
   * Replaces the rows; a focused cell keeps the focus.
   * @param {HTMLElement[]} rows
   */
  #put(rows) {
    const focused = this.#body.contains(document.activeElement);
    this.#body.replaceChildren(...rows);
    if (focused) this.#cellAt(this.#current)?.focus({ preventScroll: true });
  }

  /**
   * @param {number} place
   * @param {boolean} [cut]
   */
  #row(place, cut = false) {
    const cells = this.#cells(place);
    const row = document.createElement('tr');
    row.dataset.place = String(place);
    for (let column = 0; column < this.#columns.length; column += 1) {
      const cell = document.createElement('td');
      const text = cellText(cells[column]);
      cell.textContent = aligned(text, this.#decimals[column] ?? 0);
      if (this.#figures[column]) cell.className = 'figure';
      else if (cut && text.length > WIDEST) cell.title = text;
      cell.tabIndex = place === this.#current.place && column === this.#current.column ? 0 : -1;
      row.append(cell);
    }
    return row;
  }

  // --- editing a cell ---

  /** Begins an edit at the cell that had the focus last. */
  begin() {
    this.#beginAt(this.#current);
  }

  /** @param {{ place: number, column: number }} cell */
  #beginAt({ place, column }) {
    const row = this.#order[place];
    if (row !== undefined) this.#begin({ kind: 'cell', row, column });
  }

  /**
   * Puts the field over its cell: the rows below may be redrawn.
   * @param {Edit} edit
   */
  show(edit) {
    this.#edit = edit;
    this.#scroller.append(edit.element);
    this.#scroller.classList.add('editing');
    this.#anchor();
    // A new card has no size yet.
    requestAnimationFrame(() => this.#anchor());
  }

  /** Forgets the field. */
  hide() {
    this.#edit = null;
    this.#scroller.classList.remove('editing');
  }

  /**
   * Moves the keyboard focus back to a cell.
   * @param {Address} address
   */
  focus(address) {
    if (address.kind !== 'cell') return;
    this.#go({ place: Math.max(0, this.#order.indexOf(address.row)), column: address.column });
  }

  #anchor() {
    const address = this.#edit?.address;
    if (!this.#edit || address?.kind !== 'cell') return;
    const { style } = this.#edit.element;
    const place = this.#order.indexOf(address.row);
    const cell = this.#cellAt({ place, column: address.column })?.getBoundingClientRect();
    const all = this.#scroller.getBoundingClientRect();
    const { scrollLeft, scrollTop, clientWidth } = this.#scroller;
    const width = Math.min(clientWidth, Math.max(FIELD, cell?.width ?? 0));
    const left = cell ? cell.left - all.left + scrollLeft : 0;
    style.width = `${width}px`;
    style.left = `${Math.max(0, Math.min(left, scrollLeft + clientWidth - width))}px`;
    style.top = `${cell ? cell.top - all.top + scrollTop : (place + 1) * ROW}px`;
  }

  /** @param {{ place: number, column: number }} cell */
  #cellAt({ place, column }) {
    const cell = this.#body.querySelector(`tr[data-place="${place}"]`)?.children[column];
    return cell instanceof HTMLElement ? cell : null;
  }

  /**
   * Focuses a cell and scrolls it into view.
   * @param {{ place: number, column: number }} cell
   */
  #go(cell) {
    this.#cellAt(this.#current)?.setAttribute('tabindex', '-1');
    this.#current = cell;
    if (this.#windowed && this.#cellAt(cell) === null) {
      this.#scroller.scrollTop = Math.max(0, cell.place * ROW - this.#scroller.clientHeight / 2);
      this.#draw();
    }
    const found = this.#cellAt(cell);
    if (!found) return;
    found.tabIndex = 0;
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }

  /** @param {Event} event */
  #cellOf({ target }) {
    const cell = target instanceof Element ? target.closest('td') : null;
    const place = Number(cell?.parentElement?.dataset.place ?? -1);
    return cell && place >= 0 ? { place, column: cell.cellIndex } : null;
  }

  /** @param {Event} event */
  #clicked(event) {
    const cell = this.#cellOf(event);
    // A text selection is for copying.
    if (cell === null || !getSelection()?.isCollapsed) return;
    this.#go(cell);
    this.#beginAt(cell);
  }

  /** @param {KeyboardEvent} event */
  #keyed(event) {
    const cell = this.#cellOf(event);
    if (cell === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const [down, across] = STEPS[event.key] ?? [0, 0];
    if (event.key === 'Enter' || event.key === 'F2') this.#beginAt(cell);
    else if (down || across) {
      const next = { place: cell.place + down, column: cell.column + across };
      if (next.place in this.#order && next.column in this.#columns) this.#go(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  async #copyAll() {
    const { text, formulas } = csvOf(
      this.#columns,
      this.#order.map((_, place) => this.#cells(place)),
    );
    const copied = await copyText(text);
    if (copied === false) {
      this.#page.toast({ kind: 'error', text: 'The browser does not allow copying here.' });
      return;
    }
    const rows = `Copied ${plural(this.#order.length, 'row')}.`;
    if (formulas === 0) this.#page.toast({ kind: 'success', text: rows });
    else this.#page.toast({ kind: 'info', text: `${rows} ${formulasSaid(formulas)}` });
  }
}

/** @param {number} count */
function formulasSaid(count) {
  const cells = count === 1 ? 'One cell looks' : `${number(count)} cells look`;
  return `${cells} like a formula, which a spreadsheet may run: paste only what you trust.`;
}

/**
 * Returns a spacer for rows that are not drawn.
 * @param {number} rows
 */
function spacer(rows) {
  const row = h('tr', { class: 'spacer', 'aria-hidden': 'true' });
  row.style.height = `${rows * ROW}px`;
  return row;
}
