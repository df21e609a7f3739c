// The difference between two texts, line by line, and word by word within a changed line. jsdiff is loaded on first
// use.

import { escapeVisible } from '../escape_visible.js';
import { plural } from '../format.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { TemplateResult } from 'lit-html' */

/** @typedef {'same' | 'removed' | 'added'} Kind */
/** @typedef {{ kind: Kind, parts: { text: string, changed: boolean }[] }} Line */
/** @typedef {{ far: boolean, lines: Line[] }} Stretch */
/** @typedef {Pick<typeof import('../vendor/jsdiff/diff/line.js'), 'diffLines'>} Lines */
/** @typedef {Pick<typeof import('../vendor/jsdiff/diff/word.js'), 'diffWordsWithSpace'>} Words */
/** @typedef {Lines & Words} Library */

/** Unchanged lines shown around a change. */
const AROUND = 3;
/** Longer lines are compared as a whole. */
const LONGEST_LINE = 2000;

/** @type {Promise<Library> | null} */
let loading = null;

/** @returns {Promise<Library>} */
const library = () =>
  (loading ??= Promise.all([import('../vendor/jsdiff/diff/line.js'), import('../vendor/jsdiff/diff/word.js')])
    .then(([{ diffLines }, { diffWordsWithSpace }]) => ({ diffLines, diffWordsWithSpace }))
    .catch((error) => {
      loading = null;
      throw error;
    }));

/**
 * Returns the difference as a list of lines.
 * @param {string} before
 * @param {string} after
 * @returns {Promise<Line[]>}
 */
export async function diffOf(before, after) {
  const { diffLines, diffWordsWithSpace } = await library();
  const changes = diffLines(ended(before), ended(after));
  /** @type {Line[]} */
  const lines = [];
  for (let at = 0; at < changes.length; at += 1) {
    const [change, next] = changes.slice(at, at + 2);
    if (!change) break;
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

/**
 * Adds a missing line end, so that it does not count as a difference.
 * @param {string} text
 */
const ended = (text) => (text === '' || text.endsWith('\n') ? text : `${text}\n`);

/** @param {string} text */
const linesOf = (text) => text.replace(/\n$/u, '').split('\n');

/** @param {Kind} kind @param {string} text @returns {Line} */
const whole = (kind, text) => ({ kind, parts: [{ text, changed: false }] });

/**
 * Pairs removed lines with added ones, in order, with the differences inside.
 * @param {string[]} removed
 * @param {string[]} added
 * @param {Library['diffWordsWithSpace']} words
 * @returns {Line[]}
 */
function replaced(removed, added, words) {
  /** @type {{ removed: Line[], added: Line[] }} */
  const out = { removed: [], added: [] };
  const pairs = Math.min(removed.length, added.length);
  removed.slice(0, pairs).forEach((before, at) => {
    const after = added[at] ?? '';
    const parts = before.length + after.length > LONGEST_LINE ? [] : words(before, after);
    const alike = parts.some((part) => !part.added && !part.removed && part.value.trim() !== '');
    /** @type {(own: 'removed' | 'added', other: 'removed' | 'added') => Line} */
    const side = (own, other) => ({
      kind: own,
      parts: parts.filter((part) => !part[other]).map((part) => ({ text: part.value, changed: part[own] })),
    });
    out.removed.push(alike ? side('removed', 'added') : whole('removed', before));
    out.added.push(alike ? side('added', 'removed') : whole('added', after));
  });
  out.removed.push(...removed.slice(pairs).map((text) => whole('removed', text)));
  out.added.push(...added.slice(pairs).map((text) => whole('added', text)));
  return [...out.removed, ...out.added];
}

/**
 * Returns the lines as an element; long unchanged stretches are folded and expand on a click.
 * @param {Line[]} lines
 * @param {string} name
 */
export function diffElement(lines, name) {
  const element = elementOf(html`<div class="diff mono scroll" role="region" tabindex="0" aria-label=${name}></div>`);
  const all = stretchesOf(lines);
  /** @type {Set<Stretch>} */
  const unfolded = new Set();
  const draw = () => render(all.every((stretch) => stretch.far) ? NONE : all.map(part), element);
  /** @param {Stretch} stretch */
  const unfold = (stretch) => {
    unfolded.add(stretch);
    draw();
  };
  /** @param {Stretch} stretch */
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

/**
 * Splits the lines into stretches that are near a change, or far from any.
 * @param {Line[]} lines
 */
function stretchesOf(lines) {
  /** @type {Stretch[]} */
  const stretches = [];
  lines.forEach((line, at) => {
    const far = lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).every((other) => other.kind === 'same');
    const last = stretches.at(-1);
    if (last?.far === far) last.lines.push(line);
    else stretches.push({ far, lines: [line] });
  });
  return stretches;
}

const SIGNS = { same: ' ', removed: '−', added: '+' };
const SAID = { same: '', removed: 'Removed: ', added: 'Added: ' };
/** @type {Record<Kind, (content: TemplateResult) => TemplateResult>} */
const ELEMENTS = {
  same: (content) => html`<div class="diff-line same">${content}</div>`,
  removed: (content) => html`<del class="diff-line removed">${content}</del>`,
  added: (content) => html`<ins class="diff-line added">${content}</ins>`,
};

/** @param {Line} line */
function lineOf({ kind, parts }) {
  const said = SAID[kind] ? html`<span class="visually-hidden">${SAID[kind]}</span>` : nothing;
  // A person may accept this difference, so every character must be visible.
  const words = parts.map(({ text, changed }) =>
    changed ? html`<mark>${escapeVisible(text)}</mark>` : escapeVisible(text),
  );
  return ELEMENTS[kind](
    html`<span class="diff-sign" aria-hidden="true">${SIGNS[kind]}</span>
      ${said}
      <span class="diff-text">${words}</span>`,
  );
}
