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
  /** `page` announces and says; `name` names the table for those who do not see it. */
  constructor(page, name) {
    this._page = page;
    this._sort = null;
    this._drawn = '';
    this._frame = 0;
    this._group = h('colgroup');
    this._head = h('tr');
    this._body = h('tbody');
    this._table = h('table', null, this._group, h('thead', null, this._head), this._body);
    this._scroller = h('div', { class: 'table-scroll scroll', role: 'region', tabIndex: 0, 'aria-label': name });
    this._scroller.append(this._table);
    this._scroller.addEventListener('scroll', () => this._soon(), { passive: true });
    new ResizeObserver(() => this._soon()).observe(this._scroller);
    this._count = h('span', { class: 'tabular' });
    this._copy = h('button', { type: 'button', class: 'button quiet small' }, 'Copy as CSV');
    this._copy.addEventListener('click', () => this._copyAll());
    this.element = h('div', { class: 'table-block' }, this._scroller);
    this.element.append(h('div', { class: 'table-foot' }, this._count, this._copy));
  }

  /** Shows other data; the person's order stays as long as its column does. Throws where the data is no table. */
  update({ columns, rows }) {
    if (!Array.isArray(columns) || !Array.isArray(rows)) throw new TypeError('no table');
    const names = columns.map(cellText);
    const listed = rows.map((row) => (Array.isArray(row) ? row : columns.map((column) => row?.[column])));
    if (this._sort !== null && names[this._sort.column] !== this._columns[this._sort.column]) this._sort = null;
    this._columns = names;
    this._rows = listed;
    this._figures = names.map((_, column) => isFigures(listed, column));
    this._decimals = names.map((_, column) => (this._figures[column] ? decimalsOf(listed, column) : 0));
    this._windowed = listed.length > ALL_ROWS;
    this.element.classList.toggle('windowed', this._windowed);
    this._table.setAttribute('aria-rowcount', String(listed.length + 1));
    this._count.textContent = plural(listed.length, 'row');
    this._copy.hidden = listed.length === 0;
    this._drawHead();
    this._arrange();
  }

  _drawHead() {
    this._head.replaceChildren(...this._columns.map((name, column) => this._heading(name, column)));
    this._group.replaceChildren(...(this._windowed ? this._columns.map((_, column) => this._column(column)) : []));
  }

  _heading(name, column) {
    const button = h('button', { type: 'button', class: 'sort' }, h('span', null, name || `Column ${column + 1}`));
    button.addEventListener('click', () => this._sortBy(column));
    return h('th', { scope: 'col', class: this._figures[column] ? 'figure' : '' }, button);
  }

  /** The rows in sight change as one scrolls, the columns' widths must not. */
  _column(column) {
    const longest = this._rows
      .slice(0, SAMPLE)
      .reduce((most, row) => Math.max(most, cellText(row[column]).length), this._columns[column].length + 2);
    const element = h('col');
    element.style.width = `${Math.min(WIDEST, Math.max(NARROWEST, longest)) + 3}ch`;
    return element;
  }

  _sortBy(column) {
    this._sort = nextSort(this._sort, column);
    this._arrange();
    const how = this._sort === null ? 'in their own order' : `by ${this._columns[column]}, ${this._sort.direction}`;
    this._page.announce(`Rows ${how}`);
  }

  _arrange() {
    this._order = orderOf(this._rows, this._sort, this._figures[this._sort?.column]);
    [...this._head.children].forEach((head, column) => {
      if (this._sort?.column === column) head.setAttribute('aria-sort', this._sort.direction);
      else head.removeAttribute('aria-sort');
    });
    this._drawn = '';
    this._draw();
  }

  _soon() {
    if (!this._windowed || this._frame) return;
    this._frame = requestAnimationFrame(() => {
      this._frame = 0;
      this._draw();
    });
  }

  _draw() {
    const total = this._order.length;
    if (total === 0) {
      const none = h('td', { class: 'none', colSpan: Math.max(1, this._columns.length) }, 'No rows');
      this._body.replaceChildren(h('tr', null, none));
      return;
    }
    if (!this._windowed) {
      this._body.replaceChildren(...this._order.map((row) => this._row(this._rows[row])));
      return;
    }
    const above = Math.floor(this._scroller.scrollTop / ROW);
    const shown = Math.ceil((this._scroller.clientHeight || 480) / ROW);
    const first = Math.max(0, Math.min(above, total - shown) - SPARE);
    const last = Math.min(total, first + shown + 2 * SPARE);
    const drawn = `${first}-${last}`;
    if (drawn === this._drawn) return;
    this._drawn = drawn;
    const rows = [];
    for (let index = first; index < last; index += 1) {
      const row = this._row(this._rows[this._order[index]], true);
      row.setAttribute('aria-rowindex', String(index + 2));
      rows.push(row);
    }
    this._body.replaceChildren(spacer(first), ...rows, spacer(total - last));
  }

  _row(cells, cut = false) {
    const row = document.createElement('tr');
    for (let column = 0; column < this._columns.length; column += 1) {
      const cell = document.createElement('td');
      const text = cellText(cells[column]);
      cell.textContent = aligned(text, this._decimals[column]);
      if (this._figures[column]) cell.className = 'figure';
      else if (cut && text.length > WIDEST) cell.title = text;
      row.append(cell);
    }
    return row;
  }

  async _copyAll() {
    const { text, formulas } = csvOf(this._columns, this._order.map((row) => this._rows[row]));
    const copied = await copyText(text);
    if (copied === false) {
      this._page.toast({ kind: 'error', text: 'The browser does not allow copying here.' });
      return;
    }
    const rows = `Copied ${plural(this._order.length, 'row')}.`;
    if (formulas === 0) this._page.toast({ kind: 'success', text: rows });
    else this._page.toast({ kind: 'info', text: `${rows} ${formulasSaid(formulas)}` });
  }
}

function formulasSaid(count) {
  const cells = count === 1 ? 'One cell looks' : `${number(count)} cells look`;
  return `${cells} like a formula, which a spreadsheet may run: paste only what you trust.`;
}

/** The height of rows that are not drawn. */
function spacer(rows) {
  const row = h('tr', { class: 'spacer', 'aria-hidden': 'true' });
  row.style.height = `${rows * ROW}px`;
  return row;
}
