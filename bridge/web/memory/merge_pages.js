// Merge turns and learnings into one timeline. Pure.

/** @import { CurationRow, TurnRow } from '../types/page.js' */

/**
 * @template T
 * @typedef {{ rows: T[], more: boolean }} Listed
 */
/** @typedef {{ kind: 'turn', row: TurnRow } | { kind: 'curation', row: CurationRow }} Entry */

/**
 * Merges two lists of rows `{id, at}`, sorted by falling id, by falling time. It leaves no gap: rows below the oldest
 * row of an incomplete list are not shown yet, because that list may have rows there. Each entry is `{kind, row}`.
 * @param {Listed<TurnRow>} turns
 * @param {Listed<CurationRow>} curations
 */
export function mergePages(turns, curations) {
  /** @type {Entry[]} */
  const entries = [
    ...turns.rows.map((row) => ({ kind: /** @type {const} */ ('turn'), row })),
    ...curations.rows.map((row) => ({ kind: /** @type {const} */ ('curation'), row })),
  ];
  const horizon = Math.max(reach(turns), reach(curations));
  return entries
    .filter(({ row }) => row.at >= horizon)
    .sort((a, b) => b.row.at - a.row.at || rank(a) - rank(b) || b.row.id - a.row.id);
}

/**
 * Returns the list that needs another page; null if both are complete.
 * @param {Listed<TurnRow>} turns
 * @param {Listed<CurationRow>} curations
 */
export function wanting(turns, curations) {
  if (!turns.more && !curations.more) return null;
  return reach(turns) >= reach(curations) ? 'turn' : 'curation';
}

/**
 * Returns the time down to which a list is complete.
 * @param {Listed<TurnRow> | Listed<CurationRow>} list
 */
function reach({ rows, more }) {
  return more ? (rows.at(-1)?.at ?? Infinity) : -Infinity;
}

/**
 * Sorts learnings above the turns that they came from.
 * @param {Entry} entry
 */
const rank = ({ kind }) => (kind === 'curation' ? 0 : 1);

/**
 * Groups entries by day: `[{day, entries}]`; `dayOf` returns the day of a time in Unix seconds.
 * @param {Entry[]} entries
 * @param {(at: number) => string} dayOf
 */
export function byDay(entries, dayOf) {
  /** @type {{ day: string, entries: Entry[] }[]} */
  const days = [];
  for (const entry of entries) {
    const day = dayOf(entry.row.at);
    const last = days.at(-1);
    if (last?.day === day) last.entries.push(entry);
    else days.push({ day, entries: [entry] });
  }
  return days;
}
