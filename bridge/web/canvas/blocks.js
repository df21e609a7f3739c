/**
 * Blocks as elements: one small function per type. The data comes from a model, so each function accepts only what it
 * understands. Text becomes text nodes, markdown uses the page's own renderer, and no content can run.
 */

import { h } from '../dom.js';
import { renderMarkdown } from '../markdown.js';
import { cellText } from './figures.js';
import { downloadAddress, fileName, kindOf, previewAddress } from './files.js';

/** @import { Block, BlockData } from '../types/page.js' */

/** A card's title is an h3; headings inside begin below it. */
const FIRST_HEADING = 4;
const SHOWN_JSON = 4000;
/** @type {Record<string, string>} */
const VARIANTS = { default: 'info', success: 'ok', warning: 'warn', destructive: 'bad' };

/**
 * Types that are laid out side by side when they follow each other.
 * @type {ReadonlySet<string>}
 */
export const SIDE_BY_SIDE = new Set(['stat', 'badge']);

/**
 * Returns the element of a block; an unknown type or unfit data shows a placeholder instead of nothing.
 * @param {Pick<Block, 'type' | 'data'>} block
 */
export function drawBlock({ type, data }) {
  const draw = Object.hasOwn(DRAWINGS, type) ? DRAWINGS[type] : undefined;
  if (draw === undefined) return undrawable(`A “${type}” block, which this page cannot draw yet`, data);
  try {
    return draw(data ?? {});
  } catch {
    return undrawable(`A ${type} block whose data does not fit`, data);
  }
}

/**
 * Returns the placeholder of a block that cannot be drawn, with its data for inspection.
 * @param {string} words
 * @param {unknown} data
 */
export function undrawable(words, data) {
  const json = JSON.stringify(data, null, 2) ?? '';
  const shown = json.length > SHOWN_JSON ? `${json.slice(0, SHOWN_JSON)}…` : json;
  return h(
    'details',
    { class: 'undrawable' },
    h('summary', null, words),
    h('pre', { class: 'mono scroll', tabIndex: 0 }, shown),
  );
}

/**
 * Returns text or a number as text; throws for a missing value, because the block does not fit then.
 * @param {unknown} value
 */
function words(value) {
  if (value === null || value === undefined || (typeof value === 'object' && value !== null)) {
    throw new TypeError('no text');
  }
  return cellText(value);
}

/** @param {unknown} value */
const optional = (value) => (value === null || value === undefined || value === '' ? null : words(value));

/** @param {BlockData} data */
function heading({ text, level = 2 }) {
  const depth = Math.min(4, Math.max(1, Number(level) || 2));
  return h(`h${Math.min(6, FIRST_HEADING + depth - 1)}`, { class: `block-heading level-${depth}` }, words(text));
}

/** @param {BlockData} data */
function stat({ label, value, description }) {
  const said = optional(description);
  return h(
    'dl',
    { class: 'stat' },
    h('dt', null, words(label)),
    h('dd', { class: 'stat-value tabular' }, words(value)),
    said && h('dd', { class: 'stat-description' }, said),
  );
}

/** @param {BlockData} data */
function keyValue({ pairs }) {
  const listed = Array.isArray(pairs) ? pairs : pairsOf(pairs);
  const lines = listed.map(({ key, value }) =>
    h('div', null, h('dt', null, words(key)), h('dd', { class: 'tabular' }, cellText(value))),
  );
  return h('dl', { class: 'pairs' }, ...lines);
}

/**
 * Converts one object's fields to pairs.
 * @param {unknown} fields
 */
function pairsOf(fields) {
  if (fields === null || fields === undefined) throw new TypeError('no pairs');
  return Object.entries(fields).map(([key, value]) => ({ key, value }));
}

/** @param {BlockData} data */
function badge({ text, variant = 'default' }) {
  const look = typeof variant === 'string' && Object.hasOwn(VARIANTS, variant) ? VARIANTS[variant] : VARIANTS.default;
  return h('span', { class: `badge ${look}` }, words(text));
}

/** @param {BlockData} data */
function progress({ value, label }) {
  const share = Math.min(100, Math.max(0, Number(value)));
  if (!Number.isFinite(share)) throw new TypeError('no number');
  const name = optional(label) ?? 'Progress';
  const bar = h('progress', { max: 100, value: share, 'aria-label': name });
  const percent = `${Number(share.toFixed(1))}%`;
  return h(
    'div',
    { class: 'progress-block' },
    h('div', { class: 'progress-words' }, h('span', null, name), h('span', { class: 'tabular' }, percent)),
    bar,
  );
}

/** @param {BlockData} data */
function text({ content }) {
  const element = h('div', { class: 'prose' });
  element.append(renderMarkdown(words(content), { heading: FIRST_HEADING }));
  return element;
}

const separator = () => h('hr');

/** @param {BlockData} data */
function note({ content }) {
  return h('p', { class: 'note-block' }, words(content));
}

/** @param {BlockData} data */
function file({ path, title, excerpt }) {
  const where = words(path);
  const address = downloadAddress(where);
  const name = optional(title) ?? fileName(where) ?? where;
  const said = optional(excerpt);
  const link =
    address === null
      ? h('span', { class: 'file-name' }, name)
      : h('a', { class: 'file-name', href: address, download: fileName(where) }, name);
  return h(
    'div',
    { class: 'file-block' },
    link,
    h('span', { class: 'file-path mono' }, address === null ? `${where} (on the sprite's own disk)` : where),
    said && h('p', { class: 'file-excerpt' }, said),
    address !== null && look(where, name),
  );
}

/**
 * Returns a preview button for a file; an image is shown directly.
 * @param {string} path
 * @param {string} name
 */
function look(path, name) {
  const button = h('button', { type: 'button', class: 'button small file-look', 'aria-label': `Preview ${name}` });
  button.addEventListener('click', () =>
    button.dispatchEvent(new CustomEvent('sprite:preview', { bubbles: true, detail: path })),
  );
  const words = h('span', null, 'Preview');
  if (kindOf(path) !== 'image') {
    button.append(words);
    return button;
  }
  const picture = h('img', { class: 'file-thumb', loading: 'lazy', alt: '', src: previewAddress(path) ?? '' });
  // Moved, deleted or damaged: the dialog explains more than a broken image.
  picture.addEventListener('error', () => picture.replaceWith(words));
  button.append(picture);
  return button;
}

/** @type {Record<string, (data: BlockData) => HTMLElement>} */
const DRAWINGS = {
  heading,
  stat,
  'key-value': keyValue,
  badge,
  progress,
  text,
  separator,
  document: file,
  note,
};
