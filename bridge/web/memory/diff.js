// What changed between two texts, line by line, and inside a changed line word by word. jsdiff is loaded when first
// needed.

import { plural } from '../format.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

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
  const element = elementOf(html`<div class="diff mono scroll" role="region" tabindex="0" aria-label=${name}></div>`);
  const all = stretchesOf(lines);
  const unfolded = new Set();
  const draw = () => render(all.length === 1 && all[0].far ? NONE : all.map(part), element);
  const unfold = (stretch) => {
    unfolded.add(stretch);
    draw();
  };
  const part = (stretch) =>
    stretch.far && !unfolded.has(stretch)
      ? html`<button type="button" class="diff-fold" @click=${() => unfold(stretch)}>
          ${plural(stretch.lines.length, 'line')} unchanged
        </button>`
      : stretch.lines.map(lineOf);
  draw();
  return element;
}

const NONE = html`<p class="muted">No difference.</p>`;

/** Lines in a row that are all near a change, or all far from one. */
function stretchesOf(lines) {
  const stretches = [];
  lines.forEach((line, at) => {
    const far = lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).every((other) => other.kind === 'same');
    if (stretches.at(-1)?.far !== far) stretches.push({ far, lines: [] });
    stretches.at(-1).lines.push(line);
  });
  return stretches;
}

const SIGNS = { same: ' ', removed: '−', added: '+' };
const SAID = { same: '', removed: 'Removed: ', added: 'Added: ' };
const ELEMENTS = {
  same: (content) => html`<div class="diff-line same">${content}</div>`,
  removed: (content) => html`<del class="diff-line removed">${content}</del>`,
  added: (content) => html`<ins class="diff-line added">${content}</ins>`,
};

function lineOf({ kind, parts }) {
  const said = SAID[kind] ? html`<span class="visually-hidden">${SAID[kind]}</span>` : nothing;
  const words = parts.map(({ text, changed }) => (changed ? html`<mark>${text}</mark>` : text));
  return ELEMENTS[kind](
    html`<span class="diff-sign" aria-hidden="true">${SIGNS[kind]}</span>
      ${said}
      <span class="diff-text">${words}</span>`,
  );
}
