/**
 * A table as comma-separated values (RFC 4180): every value exact and quoted, lines end with CRLF.
 *
 * A value that a spreadsheet would run as a formula is not changed, because the copy must be exact. It is counted, so
 * that the person can be warned.
 */

import { cellText } from './figures.js';

const FORMULA = /^[=@\t\r]|^[+-](?![\d.,\s]*%?$)/u;

/**
 * Returns `{text, formulas}`: the CSV of columns and rows, and the number of cells that a spreadsheet would run.
 * @param {string[]} columns
 * @param {unknown[][]} rows
 */
export function csvOf(columns, rows) {
  let formulas = 0;
  /** @param {unknown} value */
  const quoted = (value) => {
    const text = exact(value);
    if (typeof value === 'string' && FORMULA.test(text)) formulas += 1;
    return `"${text.replaceAll('"', '""')}"`;
  };
  const lines = [columns, ...rows].map((cells) => columns.map((_, index) => quoted(cells[index])).join(','));
  return { text: `${lines.join('\r\n')}\r\n`, formulas };
}

/**
 * Returns the exact value: numbers with all digits, booleans as a spreadsheet expects them.
 * @param {unknown} value
 */
function exact(value) {
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : cellText(value);
}
