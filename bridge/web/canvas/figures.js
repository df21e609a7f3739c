/** Cells as people read them, and which of them are numbers. Pure. */

const MARKS = /[\s$€£¥%,'’_+]/gu;
const NUMBER = /^\(?[-−]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?\)?$/iu;

/**
 * A cell's text: nothing for null, yes and no, 3 rather than 3.0.
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
 * The number that a cell says, with its currency, percent and thousands marks left out, or NaN.
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
/** As wide as a point, and as wide as a digit. */
const POINT = '\u2008';
const DIGIT = '\u2007';

/** @param {string} text */
const decimalsIn = (text) => FRACTION.exec(text)?.[1]?.length ?? 0;

/**
 * How many decimals the cells of a column have at most.
 * @param {unknown[][]} rows
 * @param {number} column
 */
export function decimalsOf(rows, column) {
  return rows.reduce((most, row) => Math.max(most, decimalsIn(cellText(row[column]))), 0);
}

/**
 * A figure with room for the decimals it does not have, so that points stand below each other.
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
 * Whether a column is one of figures: something in it, and every filled cell a number.
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
