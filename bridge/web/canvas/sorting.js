/** Sort a table by one column. Pure: returns row numbers and does not move rows. */

import { cellText, numberOf } from './figures.js';

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });
/** Text for which a plain comparison gives the collator's order, ten times faster. */
const PLAIN = /^[a-z ]*$/u;

/** @typedef {{ column: number, direction: 'ascending' | 'descending' }} Sort */

/**
 * Returns the next sort of a column after a click: ascending, descending, and the agent's order.
 * @param {Sort | null} sort
 * @param {number} column
 * @returns {Sort | null}
 */
export function nextSort(sort, column) {
  if (sort?.column !== column) return { column, direction: 'ascending' };
  return sort.direction === 'ascending' ? { column, direction: 'descending' } : null;
}

/**
 * Returns row numbers in the order of `sort` ({column, direction} or null); equal rows keep theirs, empty cells come
 * last.
 * @param {unknown[][]} rows
 * @param {Sort | null} sort
 * @param {boolean} figures
 */
export function orderOf(rows, sort, figures) {
  if (sort === null) return rows.map((_, index) => index);
  const sign = sort.direction === 'descending' ? -1 : 1;
  const cells = rows.map((row) => row[sort.column]);
  if (figures) return sorted(cells.map(numberOf), Number.isNaN, (a, b) => sign * (a - b));
  const texts = cells.map((cell) => cellText(cell).toLowerCase());
  const compare = comparison(texts);
  return sorted(
    texts,
    (text) => text === '',
    (a, b) => sign * compare(a, b),
  );
}

/**
 * @template K
 * @param {K[]} keys
 * @param {(key: K) => boolean} isEmpty
 * @param {(a: K, b: K) => number} compare
 */
function sorted(keys, isEmpty, compare) {
  const entries = keys.map((key, index) => ({ key, index, empty: isEmpty(key) }));
  entries.sort((a, b) => {
    if (a.empty || b.empty) return Number(a.empty) - Number(b.empty) || a.index - b.index;
    return compare(a.key, b.key) || a.index - b.index;
  });
  return entries.map(({ index }) => index);
}

/** @param {string[]} keys @returns {(a: string, b: string) => number} */
function comparison(keys) {
  if (keys.every((key) => PLAIN.test(key))) return (a, b) => (a < b ? -1 : Number(a > b));
  return collator.compare;
}
