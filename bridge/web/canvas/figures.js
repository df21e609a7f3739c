/** Format cells for people, and recognise numbers. Pure. */

const MARKS = /[\s$€£¥%,'’_+]/gu;
const NUMBER = /^\(?[-−]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?\)?$/iu;

/**
 * Returns a cell's text: empty for null, yes and no, 3 instead of 3.0.
 * @param {unknown} value
 * @returns {string}
 */
export function cellText(value) {
  if (value === null || value === undefined) return '';
  if (value === true) return 'yes';
  if (value === false) return 'no';
  if (typeof value === 'number') return Number.isFinite(value) ? String(Number(value.toPrecision(12))) : '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * Returns the number in a cell, without its currency, percent and thousands marks, or NaN.
 * @param {unknown} value
 */
export function numberOf(value) {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string' || value.length > 40) return NaN;
  const bare = value.replace(MARKS, '');
  if (!NUMBER.test(bare)) return NaN;
  const negative = bare.startsWith('(') || /^[-−]/u.test(bare);
  const amount = Number(bare.replace(/[()−-]/gu, (mark, at) => (at > 1 && mark === '-' ? '-' : '')));
  return negative ? -amount : amount;
}

const FRACTION = /^[-−]?[\d,]*\.(\d+)$/u;
const PLAIN_FIGURE = /^[-−]?[\d,]*(\.\d*)?$/u;
/** A space as wide as a point, and one as wide as a digit. */
const POINT = '\u2008';
const DIGIT = '\u2007';

/** @param {string} text */
const decimalsIn = (text) => FRACTION.exec(text)?.[1]?.length ?? 0;

/**
 * Returns the largest number of decimals in a column.
 * @param {unknown[][]} rows
 * @param {number} column
 */
export function decimalsOf(rows, column) {
  return rows.reduce((most, row) => Math.max(most, decimalsIn(cellText(row[column]))), 0);
}

/**
 * Pads a figure with space for missing decimals, so that the points of a column align.
 * @param {string} text
 * @param {number} decimals
 */
export function aligned(text, decimals) {
  if (decimals === 0 || text === '' || !PLAIN_FIGURE.test(text)) return text;
  const own = decimalsIn(text);
  const point = own === 0 && !text.endsWith('.') ? POINT : '';
  return text + point + DIGIT.repeat(decimals - own);
}

/**
 * Whether a column is numeric: not empty, and every filled cell a number.
 * @param {unknown[][]} rows
 * @param {number} column
 */
export function isFigures(rows, column) {
  let filled = 0;
  for (const row of rows) {
    const cell = row[column];
    if (cell === null || cell === undefined || cell === '') continue;
    if (Number.isNaN(numberOf(cell))) return false;
    filled += 1;
  }
  return filled > 0;
}
