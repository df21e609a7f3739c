/**
 * A table block: sorts by its heads, copies as CSV, and draws only the rows in sight where there are many.
 *
 * Built by hand rather than by templates: ten thousand rows are data here, never elements.
 */

import { copyText, h } from '../dom.js';
import { number, plural } from '../format.js';
import { csvOf } from './csv.js';
import { aligned, cellText, decimalsOf, isFigures } from './figures.js';
import { nextSort, orderOf } from './sorting.js';

/** @import { BlockData, Page } from '../types/page.js' */
/** @import { Sort } from './sorting.js' */

/** Up to here every row is an element, may be as high as its text, and the browser's find sees it. */
const ALL_ROWS = 150;
/** A windowed row's height in pixels, the same in canvas.css. */
const ROW = 33;
/** Rows drawn above and below what is in sight, so that a flick meets no gap. */
const SPARE = 12;
/** Rows whose width in characters decides a windowed column's width. */
const SAMPLE = 200;
const NARROWEST = 5;
const WIDEST = 32;

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

  /**
   * `page` announces and says; `name` names the table for those who do not see it.
   * @param {Page} page
   * @param {string} name
   */
  constructor(page, name) {
    this.#page = page;
    this.#group = h('colgroup');
    this.#head = h('tr');
    this.#body = h('tbody');
    this.#table = h('table', null, this.#group, h('thead', null, this.#head), this.#body);
    this.#scroller = h('div', { class: 'table-scroll scroll', role: 'region', tabIndex: 0, 'aria-label': name });
    this.#scroller.append(this.#table);
    this.#scroller.addEventListener('scroll', () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#soon()).observe(this.#scroller);
    this.#count = h('span', { class: 'tabular' });
    this.#copy = h('button', { type: 'button', class: 'button quiet small' }, 'Copy as CSV');
    this.#copy.addEventListener('click', () => this.#copyAll());
    this.element = h('div', { class: 'table-block' }, this.#scroller);
    this.element.append(h('div', { class: 'table-foot' }, this.#count, this.#copy));
  }

  /**
   * Shows other data; the person's order stays as long as its column does. Throws where the data is no table.
   * @param {BlockData} data
   */
  update({ columns, rows }) {
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
    this.#copy.hidden = listed.length === 0;
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
   * The rows in sight change as one scrolls, the columns' widths must not.
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
      this.#body.replaceChildren(...this.#order.map((_, place) => this.#row(this.#cells(place))));
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
      const row = this.#row(this.#cells(index), true);
      row.setAttribute('aria-rowindex', String(index + 2));
      rows.push(row);
    }
    this.#body.replaceChildren(spacer(first), ...rows, spacer(total - last));
  }

  /**
   * The cells of the row that stands at a place, in the present order.
   * @param {number} place
   */
  #cells(place) {
    return this.#rows[this.#order[place] ?? -1] ?? [];
  }

  /**
   * @param {unknown[]} cells
   * @param {boolean} [cut]
   */
  #row(cells, cut = false) {
    const row = document.createElement('tr');
    for (let column = 0; column < this.#columns.length; column += 1) {
      const cell = document.createElement('td');
      const text = cellText(cells[column]);
      cell.textContent = aligned(text, this.#decimals[column] ?? 0);
      if (this.#figures[column]) cell.className = 'figure';
      else if (cut && text.length > WIDEST) cell.title = text;
      row.append(cell);
    }
    return row;
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
 * The height of rows that are not drawn.
 * @param {number} rows
 */
function spacer(rows) {
  const row = h('tr', { class: 'spacer', 'aria-hidden': 'true' });
  row.style.height = `${rows * ROW}px`;
  return row;
}
