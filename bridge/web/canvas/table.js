// A table block: sorts by its column heads, copies as CSV, and draws only the visible rows of a long table. A person
// edits a cell by a click, or with the arrow keys and Enter.

import { copyText } from '../dom.js';
import { number, plural } from '../format.js';
import { button, elementOf, iconButton, itself } from '../template.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
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

/** @typedef {{ name: string, isNumeric: boolean, decimals: number, width: number }} Column */

export class TableView {
  /** @type {Sort | null} */
  #sort = null;
  #drawn = '';
  #frame = 0;
  /** @type {Column[]} */
  #columns = [];
  /** @type {unknown[][]} */
  #rows = [];
  #windowed = false;
  /** @type {number[]} */
  #order = [];
  /** The cell with the keyboard focus: its row in the current order, and its column. */
  #current = { place: 0, column: 0 };
  /** @type {Edit | null} */
  #edit = null;
  #author = '';
  /**
   * A row that is being added, to be edited once it is there.
   * @type {number | null}
   */
  #added = null;
  element = elementOf(html`<div class="table-block"></div>`);

  /**
   * `page` announces and shows messages; `name` is the table's accessible name; `begin(address)` is called when the
   * person wants to edit a cell, `change(data)` when they add or remove a row or column.
   * @param {Page} page
   * @param {string} name
   * @param {{ begin: (address: Address) => void, change: (data: BlockData) => Promise<boolean> }} acts
   */
  constructor(page, name, acts) {
    this.page = page;
    this.name = name;
    this.acts = acts;
    new ResizeObserver(() => this.#soon()).observe(this.element);
  }

  get #scroller() {
    return /** @type {HTMLElement} */ (this.element.firstElementChild);
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
    if (this.#sort !== null && names[this.#sort.column] !== this.#columns[this.#sort.column]?.name) this.#sort = null;
    this.#rows = listed;
    this.#windowed = listed.length > ALL_ROWS;
    this.#columns = names.map((name, column) => {
      const isNumeric = isFigures(listed, column);
      const decimals = isNumeric ? decimalsOf(listed, column) : 0;
      return { name, isNumeric, decimals, width: this.#windowed ? widthOf(name, listed, column) : 0 };
    });
    this.#author = author;
    const { place, column } = this.#current;
    this.#current = {
      place: Math.max(0, Math.min(place, listed.length - 1)),
      column: Math.max(0, Math.min(column, names.length - 1)),
    };
    this.#arrange();
    const row = this.#added;
    if (row === null || row >= listed.length) return;
    this.#added = null;
    // The card first takes the block that this draws.
    queueMicrotask(() => this.acts.begin({ kind: 'cell', row, column: 0 }));
  }

  /** @param {number} column */
  #sortBy(column) {
    this.#sort = nextSort(this.#sort, column);
    this.#arrange();
    const how =
      this.#sort === null ? 'in their own order' : `by ${this.#columns[column]?.name}, ${this.#sort.direction}`;
    this.page.announce(`Rows ${how}`);
  }

  #arrange() {
    this.#order = orderOf(
      this.#rows,
      this.#sort,
      this.#sort !== null && this.#columns[this.#sort.column]?.isNumeric === true,
    );
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
    const [first, last] = this.#windowed ? this.#window() : [0, this.#order.length];
    const drawn = `${first}-${last}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const isEditing = this.#edit !== null;
    const columns = this.#columns.map(({ width }) => html`<col .style=${`width: ${width}ch`} />`);
    const isFocused = this.#cellAt(this.#current) === document.activeElement;
    this.element.classList.toggle('windowed', this.#windowed);
    render(
      html`<div class="table-scroll scroll ${isEditing ? 'editing' : ''}" role="region" tabindex="0"
          aria-label=${this.name} @scroll=${{ handleEvent: () => this.#soon(), passive: true }}>
          <table aria-rowcount=${this.#rows.length + 1}>
            <colgroup>${this.#windowed ? columns : nothing}</colgroup>
            <thead><tr>${this.#columns.map((each, column) => this.#heading(each, column))}</tr></thead>
            <tbody
              @click=${(/** @type {Event} */ event) => this.#clicked(event)}
              @keydown=${(/** @type {KeyboardEvent} */ event) => this.#keyed(event)}
            >${this.#body(first, last)}</tbody>
          </table>
          ${this.#edit?.element ?? nothing}
        </div>
        <div class="table-foot">
          <span class="tabular">${plural(this.#rows.length, 'row')}</span>
          <span class="block-author grow">${this.#author}</span>
          ${isEditing ? nothing : iconButton('table', 'Rows and columns', () => this.#reshape())}
          ${button('Copy as CSV', () => this.#copyAll(), { look: 'quiet', hidden: this.#rows.length === 0 })}
        </div>`,
      this.element,
    );
    this.element.querySelector('td[tabindex="0"]')?.setAttribute('tabindex', '-1');
    const current = this.#cellAt(this.#current);
    current?.setAttribute('tabindex', '0');
    if (isFocused) current?.focus({ preventScroll: true });
  }

  /** @param {Column} heading @param {number} column */
  #heading({ name, isNumeric }, column) {
    const direction = this.#sort?.column === column ? this.#sort.direction : nothing;
    return html`<th scope="col" class=${isNumeric ? 'figure' : ''} aria-sort=${direction}>
      <button type="button" class="sort" @click=${() => this.#sortBy(column)}>
        <span>${name || `Column ${column + 1}`}</span>
      </button>
    </th>`;
  }

  /** Returns the first row to draw, and the one after the last. */
  #window() {
    const total = this.#order.length;
    const above = Math.floor((this.#scroller?.scrollTop ?? 0) / ROW);
    const shown = Math.ceil((this.#scroller?.clientHeight || 480) / ROW);
    const first = Math.max(0, Math.min(above, total - shown) - SPARE);
    return /** @type {const} */ ([first, Math.min(total, first + shown + 2 * SPARE)]);
  }

  /** @param {number} first @param {number} last */
  #body(first, last) {
    const total = this.#order.length;
    if (total === 0) return html`<tr><td class="none" colspan=${Math.max(1, this.#columns.length)}>No rows</td></tr>`;
    const places = Array.from({ length: last - first }, (_, index) => first + index);
    const rows = repeat(places, itself, (place) => this.#row(place));
    return this.#windowed ? [spacer(first), rows, spacer(total - last)] : rows;
  }

  /**
   * Returns the cells of the row at a place in the current order.
   * @param {number} place
   */
  #cells(place) {
    return this.#rows[this.#order[place] ?? -1] ?? [];
  }

  /** @param {number} place */
  #row(place) {
    const values = this.#cells(place);
    const cells = this.#columns.map(({ isNumeric, decimals }, column) => {
      const text = cellText(values[column]);
      const shown = aligned(text, decimals);
      // A text property needs no marker nodes: a board may have thousands of cells.
      if (isNumeric) return html`<td class="figure" tabindex="-1" .textContent=${shown}></td>`;
      if (!this.#windowed || text.length <= WIDEST) return html`<td tabindex="-1" .textContent=${shown}></td>`;
      return html`<td tabindex="-1" title=${text} .textContent=${shown}></td>`;
    });
    return html`<tr data-place=${place} aria-rowindex=${this.#windowed ? place + 2 : nothing}>${cells}</tr>`;
  }

  // --- editing a cell ---

  /** Begins an edit at the cell that had the focus last. */
  begin() {
    this.#beginAt(this.#current);
  }

  /** @param {{ place: number, column: number }} cell */
  #beginAt({ place, column }) {
    const row = this.#order[place];
    if (row !== undefined) this.acts.begin({ kind: 'cell', row, column });
  }

  /**
   * Puts the field of an edit over its cell, because the rows below may be redrawn; null removes it.
   * @param {Edit | null} edit
   */
  show(edit) {
    if (edit === this.#edit) return;
    this.#edit = edit;
    this.#drawn = '';
    this.#draw();
    this.#anchor();
    // A new card has no size yet.
    requestAnimationFrame(() => this.#anchor());
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
    const cell = this.element.querySelector(`tr[data-place="${place}"]`)?.children[column];
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

  /** Asks what to add or remove at the cell that had the focus last. */
  async #reshape() {
    const { place, column } = this.#current;
    const at = this.#order[place];
    const names = this.#columns.map(({ name }) => name);
    const { name = '' } = this.#columns[column] ?? {};
    const first = at === undefined ? '' : cellText(this.#cells(place)[0]).slice(0, 40);
    const removing = [
      at === undefined ? [] : [{ label: `Remove row ${at + 1} “${first}”`, value: 'row', danger: true }],
      names.length < 2 ? [] : [{ label: `Remove column “${name}”`, value: 'column', danger: true }],
    ].flat();
    const choice = await this.page.dialog({
      title: 'Rows and columns',
      body: html`<p>Ctrl+Z undoes a change. Click a cell first to choose its row and column.</p>`,
      actions: [
        ...removing,
        { label: 'Add a column…', value: 'add column' },
        { label: 'Add a row', value: 'add row', primary: true },
      ],
    });
    if (choice === 'add row') {
      this.#added = this.#rows.length;
      const isAdded = await this.acts.change({ columns: names, rows: [...this.#rows, names.map(() => '')] });
      if (!isAdded) this.#added = null;
    } else if (choice === 'add column') {
      const added = await this.page.prompt({ title: 'Add a column', label: 'Name', confirm: 'Add' });
      if (added) await this.acts.change({ columns: [...names, added], rows: this.#rows.map((row) => [...row, '']) });
    } else if (choice === 'row') {
      await this.acts.change({ columns: names, rows: this.#rows.filter((_, index) => index !== at) });
    } else if (choice === 'column') {
      const rows = this.#rows.map((row) => row.toSpliced(column, 1));
      await this.acts.change({ columns: names.toSpliced(column, 1), rows });
    }
  }

  async #copyAll() {
    const names = this.#columns.map(({ name }) => name);
    const rows = this.#order.map((_, place) => this.#cells(place));
    const { text, formulas } = csvOf(names, rows);
    const copied = await copyText(text);
    if (copied === false) {
      this.page.toast({ kind: 'error', text: 'The browser does not allow copying here.' });
      return;
    }
    const copies = `Copied ${plural(rows.length, 'row')}.`;
    if (formulas === 0) this.page.toast({ kind: 'success', text: copies });
    else this.page.toast({ kind: 'info', text: `${copies} ${formulasSaid(formulas)}` });
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
const spacer = (rows) => html`<tr class="spacer" aria-hidden="true" .style=${`height: ${rows * ROW}px`}></tr>`;

/**
 * Returns the fixed width of a column in characters, because the visible rows change during scrolling.
 * @param {string} name
 * @param {unknown[][]} rows
 * @param {number} column
 */
function widthOf(name, rows, column) {
  const lengths = rows.slice(0, SAMPLE).map((row) => cellText(row[column]).length);
  return Math.min(WIDEST, Math.max(NARROWEST, name.length + 2, ...lengths)) + 3;
}
