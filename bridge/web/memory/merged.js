// Turns and what was learned from them, as one line of time. Pure.

/**
 * Two lists of rows `{id, at}` by falling id become one by falling time, without a gap: below the oldest row of a list
 * that has more, nothing is shown yet, since something of that list may belong there. Each entry is `{kind, row}`.
 */
export function merged(turns, curations) {
  const sources = [
    { kind: 'turn', ...turns },
    { kind: 'curation', ...curations },
  ];
  const horizon = Math.max(-Infinity, ...sources.map(reach));
  return sources
    .flatMap(({ kind, rows }) => rows.map((row) => ({ kind, row })))
    .filter(({ row }) => row.at >= horizon)
    .sort((a, b) => b.row.at - a.row.at || rank(a) - rank(b) || b.row.id - a.row.id);
}

/** Which list has to be paged on for the line to go on; null where both are complete. */
export function wanting(turns, curations) {
  if (!turns.more && !curations.more) return null;
  return reach(turns) >= reach(curations) ? 'turn' : 'curation';
}

/** The time down to which a list is complete. */
function reach({ rows, more }) {
  return more ? (rows.at(-1)?.at ?? Infinity) : -Infinity;
}

/** What was learned stands above what it was learned from. */
const rank = ({ kind }) => (kind === 'curation' ? 0 : 1);

/** Entries in groups of one day each: `[{day, entries}]`; `dayOf` names the day of a time in Unix seconds. */
export function byDay(entries, dayOf) {
  const days = [];
  for (const entry of entries) {
    const day = dayOf(entry.row.at);
    if (days.at(-1)?.day !== day) days.push({ day, entries: [] });
    days.at(-1).entries.push(entry);
  }
  return days;
}
