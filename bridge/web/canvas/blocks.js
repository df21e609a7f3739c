// Blocks as templates: one small function per type. The data comes from a model, so each function accepts only what it
// understands. Text becomes text nodes, markdown uses the page's own renderer, and no content can run.

import { renderMarkdown } from '../markdown.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { cellText } from './figures.js';
import { downloadAddress, fileName, kindOf, previewAddress } from './files.js';

/** @import { TemplateResult } from 'lit-html' */
/** @import { Block, BlockData } from '../types/page.js' */
/** @import { Edit } from './edit.js' */

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
 * Returns a block, with the field of an edit in the place of the text. An unknown type or unfit data shows a
 * placeholder instead of nothing.
 * @param {Pick<Block, 'type' | 'data'>} block
 * @param {Edit | null} [edit]
 */
export function drawBlock({ type, data }, edit = null) {
  if (edit?.address.kind === 'text') return edit.element;
  const draw = Object.hasOwn(DRAWINGS, type) ? DRAWINGS[type] : undefined;
  if (draw === undefined) return undrawable(`A “${type}” block, which this page cannot show`, data);
  try {
    return draw(data ?? {}, edit);
  } catch {
    return undrawable(`A ${type} block with invalid data`, data);
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
  return html`<details class="undrawable">
    <summary>${words}</summary>
    <pre class="mono scroll" tabindex="0">${shown}</pre>
  </details>`;
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

/** @type {((look: string, content: string) => TemplateResult)[]} */
const HEADINGS = [
  (look, content) => html`<h4 class=${look}>${content}</h4>`,
  (look, content) => html`<h5 class=${look}>${content}</h5>`,
  (look, content) => html`<h6 class=${look}>${content}</h6>`,
];

/** @param {BlockData} data */
function heading({ text, level = 2 }) {
  const depth = Math.min(4, Math.max(1, Number(level) || 2));
  const draw = HEADINGS[Math.min(depth, HEADINGS.length) - 1];
  return draw?.(`block-heading level-${depth}`, words(text)) ?? nothing;
}

/** @param {BlockData} data */
function stat({ label, value, description }) {
  const said = optional(description);
  return html`<dl class="stat">
    <dt>${words(label)}</dt>
    <dd class="stat-value tabular">${words(value)}</dd>
    ${said ? html`<dd class="stat-description">${said}</dd>` : nothing}
  </dl>`;
}

/**
 * Draws pairs with one stop for Tab; card_body.js moves between them by keys.
 * @param {BlockData} data
 * @param {Edit | null} edit
 */
function keyValue({ pairs }, edit) {
  const listed = Array.isArray(pairs) ? pairs : pairsOf(pairs);
  const address = edit?.address.kind === 'pair' ? edit.address : null;
  /** @param {number} index @param {'key' | 'value'} side @param {string} text */
  const content = (index, side, text) => (address?.index === index && address.side === side ? edit?.element : text);
  const lines = listed.map(
    ({ key, value }, index) =>
      html`<div>
        <dt tabindex="-1">${content(index, 'key', words(key))}</dt>
        <dd class="tabular" tabindex=${index === 0 ? 0 : -1}>${content(index, 'value', cellText(value))}</dd>
      </div>`,
  );
  return html`<dl class="pairs">${lines}</dl>`;
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
  return html`<span class="badge ${look}">${words(text)}</span>`;
}

/** @param {BlockData} data */
function progress({ value, label }) {
  const share = Math.min(100, Math.max(0, Number(value)));
  if (!Number.isFinite(share)) throw new TypeError('no number');
  const name = optional(label) ?? 'Progress';
  return html`<div class="progress-block">
    <div class="progress-words"><span>${name}</span><span class="tabular">${Number(share.toFixed(1))}%</span></div>
    <progress max="100" value=${share} aria-label=${name}></progress>
  </div>`;
}

/** @param {BlockData} data */
const text = ({ content }) =>
  html`<div class="prose">${renderMarkdown(words(content), { heading: FIRST_HEADING, ticks: true })}</div>`;

/** @param {BlockData} data */
const note = ({ content }) => html`<p class="note-block">${words(content)}</p>`;

/** @param {BlockData} data */
function file({ path, title, excerpt }) {
  const where = words(path);
  const address = downloadAddress(where);
  const name = optional(title) ?? fileName(where) ?? where;
  const said = optional(excerpt);
  return html`<div class="file-block">
    ${
      address === null
        ? html`<span class="file-name">${name}</span>
            <span class="file-path mono">${where} (on the sprite's own disk)</span>`
        : html`<a class="file-name" href=${address} download=${fileName(where)}>${name}</a>
            <span class="file-path mono">${where}</span>`
    }
    ${said ? html`<p class="file-excerpt">${said}</p>` : nothing} ${address === null ? nothing : preview(where, name)}
  </div>`;
}

/**
 * Returns a preview button for a file; an image is shown directly.
 * @param {string} path
 * @param {string} name
 */
function preview(path, name) {
  /** @param {Event} event */
  const open = ({ currentTarget }) =>
    currentTarget?.dispatchEvent(new CustomEvent('sprite:preview', { bubbles: true, detail: path }));
  /** @param {Event} event */
  const failed = ({ target }) => /** @type {HTMLElement} */ (target).replaceWith('Preview');
  const src = previewAddress(path) ?? '';
  // A picture that was moved, deleted or damaged: the dialog explains more than a broken image.
  return html`<button type="button" class="button small file-look" aria-label="Preview ${name}" @click=${open}>${
    kindOf(path) === 'image'
      ? html`<img class="file-thumb" loading="lazy" alt="" src=${src} @error=${failed} />`
      : 'Preview'
  }</button>`;
}

const separator = () => html`<hr />`;

/** @type {Record<string, (data: BlockData, edit: Edit | null) => unknown>} */
const DRAWINGS = { heading, stat, 'key-value': keyValue, badge, progress, text, separator, document: file, note };
