/**
 * Compute the places of cards: cards placed by a person stay there, the others are packed around them.
 *
 * Pure and deterministic: the same cards and width give the same places. All numbers are CSS pixels from the board's
 * top left; rows lie on multiples of UNIT, columns fill the width. Knows no DOM.
 */

/** @import { Place } from '../types/page.js' */

/** @typedef {{ count: number, width: number }} Columns */
/** @typedef {{ id: string, span: number, height: number, placed?: Place | null }} Item */

/** The grid: one step of the arrow keys. */
export const UNIT = 16;
export const GAP = UNIT;
/** A column is as wide as a short table needs, and grows to fill the board. */
const COLUMN = 19 * UNIT;
/** Below this width a board has one column and ignores chosen places: cards flow below each other. */
export const NARROW = 36 * UNIT;
export const LEAST = { width: 10 * UNIT, height: 6 * UNIT };
/** Limit for coordinates from clients, larger than any screen. */
const FARTHEST = 20_000;

/**
 * Rounds to the grid.
 * @param {number} pixels
 */
export const snap = (pixels) => Math.round(pixels / UNIT) * UNIT;

/**
 * Returns a person's place clamped to the board, and no smaller than readable.
 * @param {Place} place
 * @returns {Place}
 */
export function bounded({ x, y, width, height }) {
  /** @param {number} value @param {number} least */
  const within = (value, least) => Math.min(FARTHEST, Math.max(least, Number.isFinite(value) ? value : least));
  return { x: within(x, 0), y: within(y, 0), width: within(width, LEAST.width), height: within(height, LEAST.height) };
}

/**
 * Returns the columns of a board: `{count, width}`, the width in whole steps of `step` pixels.
 * @param {number} boardWidth
 * @param {number} [step]
 * @returns {Columns}
 */
export function columnsOf(boardWidth, step = 1) {
  const count = Math.max(1, Math.floor((boardWidth + GAP) / (COLUMN + GAP)));
  const even = (boardWidth - GAP * (count - 1)) / count;
  return { count, width: Math.max(LEAST.width, Math.floor(even / step) * step) };
}

/**
 * Returns the width of a card without a chosen size: one column, or two if it asks for them and they exist.
 * @param {number} span
 * @param {Columns} columns
 */
export function widthOf(span, columns) {
  const taken = Math.min(span, columns.count);
  return columns.width * taken + GAP * (taken - 1);
}

/**
 * Packs cards `[{id, span, height, placed?: {x, y, width, height}}]`, in their order, into `Map id -> place`.
 *
 * `before` is the last result for the same columns: a card keeps its column, so that a growing card moves only the
 * cards below it. Returns `{places, columnOf, height}`; `columnOf` is the next call's `before`.
 * @param {Item[]} cards
 * @param {Columns} columns
 * @param {Map<string, number>} [before]
 */
export function pack(cards, columns, before = new Map()) {
  /** @type {Map<string, Place>} */
  const places = new Map();
  const columnOf = new Map();
  /** @type {Place[]} */
  const taken = [];
  for (const card of cards) {
    if (card.placed) {
      const place = bounded(card.placed);
      places.set(card.id, place);
      insert(taken, place);
    }
  }
  for (const card of cards) {
    if (card.placed) continue;
    const width = widthOf(card.span, columns);
    const last = columns.count - Math.min(card.span, columns.count);
    const kept = before.get(card.id);
    const candidates = kept !== undefined && kept <= last ? [kept] : range(last + 1);
    let best = { x: 0, y: Infinity, width, height: card.height };
    let column = 0;
    for (const candidate of candidates) {
      const x = candidate * (columns.width + GAP);
      const y = firstFree(taken, x, width, card.height);
      if (y < best.y) {
        best = { ...best, x, y };
        column = candidate;
      }
    }
    places.set(card.id, best);
    columnOf.set(card.id, column);
    insert(taken, best);
  }
  const height = taken.reduce((lowest, place) => Math.max(lowest, place.y + place.height), 0);
  const width = taken.reduce((widest, place) => Math.max(widest, place.x + place.width), 0);
  return { places, columnOf, height, width };
}

/** @param {number} count */
const range = (count) => Array.from({ length: count }, (_, index) => index);

/**
 * Keeps `taken` sorted from the top, so that one pass finds the first gap.
 * @param {Place[]} taken
 * @param {Place} place
 */
function insert(taken, place) {
  taken.splice(taken.findLastIndex((other) => other.y <= place.y) + 1, 0, place);
}

/** @param {Place[]} taken @param {number} x @param {number} width @param {number} height */
function firstFree(taken, x, width, height) {
  let y = 0;
  for (const place of taken) {
    const beside = place.x >= x + width + GAP || place.x + place.width + GAP <= x;
    if (!beside && place.y < y + height + GAP && place.y + place.height + GAP > y) y = place.y + place.height + GAP;
  }
  // A place chosen by a person may lie between two units.
  return Math.ceil(y / UNIT) * UNIT;
}
