/** Editable addresses of a block: read the text at an address, and return the data with another text. Pure. */

import { cellText, isFigures } from './figures.js';

/** @import { Block, BlockData } from '../types/page.js' */

/**
 * An address in a block: its whole text, a cell of its table, or one side of a pair.
 * @typedef {{ kind: 'text' } | { kind: 'cell', row: number, column: number } |
 *   { kind: 'pair', index: number, side: 'key' | 'value' }} Address
 */

/** The member with a block's whole text. */
const TEXTS = new Map(Object.entries({ text: 'content', note: 'content', heading: 'text' }));
/** Names of block types for people. */
const TYPES = { text: 'text', note: 'note', heading: 'heading', 'key-value': 'pairs', table: 'table' };
export const NAMES = new Map(Object.entries(TYPES));

/**
 * Whether the text of an address may have several lines: then Enter adds one.
 * @param {string} type
 */
export const hasLines = (type) => type === 'text' || type === 'note';

/**
 * Returns the text at an address for editing; null if the address does not exist any more.
 * @param {Pick<Block, 'type' | 'data'>} block
 * @param {Address} address
 * @returns {string | null}
 */
export function wordsAt({ type, data }, address) {
  const value = valueAt(type, data, address);
  if (value === undefined) return null;
  // A cell is shown rounded, but edited exactly.
  return typeof value === 'number' ? String(value) : cellText(value);
}

/**
 * Returns the surroundings of an address: while they are unchanged, a pending text still belongs there.
 * @param {Pick<Block, 'type' | 'data'>} block
 * @param {Address} address
 */
export function surroundings({ type, data }, address) {
  if (address.kind === 'cell') return JSON.stringify([data.columns, rowsOf(data)[address.row]]);
  if (address.kind === 'pair') return JSON.stringify(pairsOf(data)[address.index]);
  return JSON.stringify(data[TEXTS.get(type) ?? '']);
}

/**
 * Returns the block's data with this text at an address; null if the address does not exist any more.
 * @param {Pick<Block, 'type' | 'data'>} block
 * @param {Address} address
 * @param {string} words
 * @returns {BlockData | null}
 */
export function withWords({ type, data }, address, words) {
  const before = valueAt(type, data, address);
  if (before === undefined) return null;
  if (address.kind === 'cell') {
    const rows = rowsOf(data);
    const value = valueTyped(words, before, isFigures(rows, address.column));
    const changed = rows.map((row, at) => (at === address.row ? row.with(address.column, value) : row));
    return { ...data, rows: changed };
  }
  if (address.kind === 'pair') {
    const value = address.side === 'key' ? words : valueTyped(words, before, typeof before === 'number');
    const changed = pairsOf(data).map((pair, at) => (at === address.index ? { ...pair, [address.side]: value } : pair));
    return { ...data, pairs: changed };
  }
  return { ...data, [TEXTS.get(type) ?? '']: type === 'heading' ? words.replace(/\s+/gu, ' ').trim() : words };
}

/** A line of a list with a box. */
const BOX = /^(\s*(?:>\s*)*(?:[-*+]|\d+[.)])\s+\[)([ xX])(?=\]\s)/gmu;

/**
 * Returns a text block's data with its box at a place ticked or not; null if the text has not this many boxes (one
 * stands in code).
 * @param {BlockData} data
 * @param {number} place
 * @param {number} count
 * @returns {BlockData | null}
 */
export function withTick(data, place, count) {
  const content = String(data.content ?? '');
  if ([...content.matchAll(BOX)].length !== count) return null;
  let at = -1;
  const ticked = content.replace(BOX, (whole, before, mark) => {
    at += 1;
    return at === place ? `${before}${mark === ' ' ? 'x' : ' '}` : whole;
  });
  return { ...data, content: ticked };
}

/** @param {string} type @param {BlockData} data @param {Address} address @returns {unknown} */
function valueAt(type, data, address) {
  if (address.kind === 'cell') return rowsOf(data)[address.row]?.[address.column];
  if (address.kind === 'pair') {
    const pair = pairsOf(data)[address.index];
    return pair && (pair[address.side] ?? null);
  }
  return data[TEXTS.get(type) ?? ''];
}

/** @param {BlockData} data @returns {unknown[][]} */
function rowsOf({ columns, rows }) {
  if (!Array.isArray(rows) || !Array.isArray(columns)) return [];
  return rows.map((row) => columns.map((name, at) => (Array.isArray(row) ? row[at] : row?.[name]) ?? null));
}

/** @param {BlockData} data @returns {{ key?: unknown, value?: unknown }[]} */
const pairsOf = ({ pairs }) => (Array.isArray(pairs) ? pairs : []);

/**
 * Returns the value of a typed text: `before` if it reads the same, a number if the cell held one.
 * @param {string} words
 * @param {unknown} before
 * @param {boolean} figures
 */
function valueTyped(words, before, figures) {
  const typed = words.trim();
  if (typed === '') return before === null ? null : '';
  if (typeof before === 'boolean' && (typed === 'yes' || typed === 'no')) return typed === 'yes';
  const wasNumber = typeof before === 'number' || (before === null && figures);
  if (wasNumber && /^[-+]?\d+(\.\d+)?$/u.test(typed)) {
    const number = Number(typed);
    // Larger numbers would not be stored exactly.
    if (Math.abs(number) <= Number.MAX_SAFE_INTEGER) return number;
  }
  return words;
}
