// What changed between two texts, line by line, and inside a changed line word by word. jsdiff is loaded when first
// needed.

import { h } from '../dom.js';
import { plural } from '../format.js';

/** Unchanged lines shown around a change. */
const AROUND = 3;
/** Longer lines are compared as a whole. */
const LONGEST_LINE = 2000;

let loading = null;

const library = () =>
  (loading ??= Promise.all([import('../vendor/jsdiff/diff/line.js'), import('../vendor/jsdiff/diff/word.js')])
    .then(([{ diffLines }, { diffWordsWithSpace }]) => ({ diffLines, diffWordsWithSpace }))
    .catch((error) => {
      loading = null;
      throw error;
    }));

/** `[{kind: 'same'|'removed'|'added', parts: [{text, changed}]}]`, a line each. */
export async function diffOf(before, after) {
  const { diffLines, diffWordsWithSpace } = await library();
  const changes = diffLines(ended(before), ended(after));
  const lines = [];
  for (let at = 0; at < changes.length; at += 1) {
    const [change, next] = [changes[at], changes[at + 1]];
    if (change.removed && next?.added) {
      lines.push(...replaced(linesOf(change.value), linesOf(next.value), diffWordsWithSpace));
      at += 1;
    } else {
      const kind = change.added ? 'added' : change.removed ? 'removed' : 'same';
      lines.push(...linesOf(change.value).map((text) => whole(kind, text)));
    }
  }
  return lines;
}

/** A last line without its end is no other line. */
const ended = (text) => (text === '' || text.endsWith('\n') ? text : `${text}\n`);

const linesOf = (text) => text.replace(/\n$/u, '').split('\n');

const whole = (kind, text) => ({ kind, parts: [{ text, changed: false }] });

/** Lines that came in the place of others: the first for the first, with what differs inside. */
function replaced(removed, added, words) {
  const pairs = Math.min(removed.length, added.length);
  const out = { removed: [], added: [] };
  for (let at = 0; at < pairs; at += 1) {
    const [before, after] = [removed[at], added[at]];
    const parts = before.length + after.length > LONGEST_LINE ? null : words(before, after);
    const alike = parts?.some((part) => !part.added && !part.removed && part.value.trim() !== '');
    const side = (own, other) =>
      parts.filter((part) => !part[other]).map((part) => ({ text: part.value, changed: Boolean(part[own]) }));
    out.removed.push(alike ? { kind: 'removed', parts: side('removed', 'added') } : whole('removed', before));
    out.added.push(alike ? { kind: 'added', parts: side('added', 'removed') } : whole('added', after));
  }
  out.removed.push(...removed.slice(pairs).map((text) => whole('removed', text)));
  out.added.push(...added.slice(pairs).map((text) => whole('added', text)));
  return [...out.removed, ...out.added];
}

/** The lines as an element; long stretches without a change are folded away, and open on a click. */
export function diffElement(lines, name) {
  const element = h('div', { class: 'diff mono scroll', role: 'region', tabIndex: 0, 'aria-label': name });
  if (lines.every((line) => line.kind === 'same')) {
    element.append(h('p', { class: 'muted' }, 'No difference.'));
    return element;
  }
  let folded = [];
  const unfold = () => {
    if (folded.length > 0) element.append(fold(folded));
    folded = [];
  };
  lines.forEach((line, at) => {
    const near = lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some((other) => other.kind !== 'same');
    if (!near) {
      folded.push(line);
      return;
    }
    unfold();
    element.append(lineElement(line));
  });
  unfold();
  return element;
}

function fold(lines) {
  const button = h('button', { type: 'button', class: 'diff-fold' }, `${plural(lines.length, 'line')} unchanged`);
  button.addEventListener('click', () => button.replaceWith(...lines.map(lineElement)));
  return button;
}

const SIGNS = { same: ' ', removed: '−', added: '+' };
const TAGS = { same: 'div', removed: 'del', added: 'ins' };
const SAID = { same: '', removed: 'Removed: ', added: 'Added: ' };

function lineElement({ kind, parts }) {
  const words = parts.map(({ text, changed }) => (changed ? h('mark', null, text) : text));
  return h(
    TAGS[kind],
    { class: `diff-line ${kind}` },
    h('span', { class: 'diff-sign', 'aria-hidden': 'true' }, SIGNS[kind]),
    SAID[kind] && h('span', { class: 'visually-hidden' }, SAID[kind]),
    h('span', { class: 'diff-text' }, words),
  );
}
