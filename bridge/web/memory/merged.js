// Turns and what was learned from them, as one line of time. Pure.

/** @import { CurationRow, TurnRow } from '../types/page.js' */

/**
 * @template T
 * @typedef {{ rows: T[], more: boolean }} Listed
 */
/** @typedef {{ kind: 'turn', row: TurnRow } | { kind: 'curation', row: CurationRow }} Entry */

/**
 * Two lists of rows `{id, at}` by falling id become one by falling time, without a gap: below the oldest row of a list
 * that has more, nothing is shown yet, since something of that list may belong there. Each entry is `{kind, row}`.
 * @param {Listed<TurnRow>} turns
 * @param {Listed<CurationRow>} curations
 */
export function merged(turns, curations) {
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
 * Which list has to be paged on for the line to go on; null where both are complete.
 * @param {Listed<TurnRow>} turns
 * @param {Listed<CurationRow>} curations
 */
export function wanting(turns, curations) {
  if (!turns.more && !curations.more) return null;
  return reach(turns) >= reach(curations) ? 'turn' : 'curation';
}

/**
 * The time down to which a list is complete.
 * @param {Listed<TurnRow> | Listed<CurationRow>} list
 */
function reach({ rows, more }) {
  return more ? (rows.at(-1)?.at ?? Infinity) : -Infinity;
}

/**
 * What was learned stands above what it was learned from.
 * @param {Entry} entry
 */
const rank = ({ kind }) => (kind === 'curation' ? 0 : 1);

/**
 * Entries in groups of one day each: `[{day, entries}]`; `dayOf` names the day of a time in Unix seconds.
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
