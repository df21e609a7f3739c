// The whole input of a tool call that needs permission: each field exactly as it will run. Words from untrusted content
// are marked.

import { escapeVisible, escapeVisibleBlock } from '../escape_visible.js';
import { number, plural } from '../format.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { tellingField } from './tools.js';

/** @import { ForeignSpan, PermissionPart } from '../types/page.js' */

/** Longer texts do not fit into their box. */
const LONG_CHARS = 600;
const LONG_LINES = 10;

/**
 * `isTelling` says whether the field is what runs: then it is read from left to right whatever its letters.
 * @typedef {{ name: string, text: string, isTelling: boolean, spans: ForeignSpan[] }} Field
 */

/** @param {PermissionPart} part */
export function askedInput(part) {
  const fields = fieldsOf(part);
  const [only, ...others] = fields;
  const chars = fields.reduce((sum, { text }) => sum + text.length, 0);
  const lines = fields.reduce((sum, { text }) => sum + text.split('\n').length, 0);
  const sources = [...new Set(part.foreign?.map(({ source }) => sourceWords(source)))];
  return html`<div class="asked scroll" tabindex="0" role="group" aria-label="What it would do">${
    only?.isTelling && !others.length
      ? block(only)
      : html`<dl>${fields.map((each) => html`<dt>${escapeVisible(each.name)}</dt><dd>${block(each)}</dd>`)}</dl>`
  }</div>
  ${sources.length ? html`<p class="small-text">Marked words come from outside: ${sources.join(', ')}.</p>` : nothing}
  ${
    chars > LONG_CHARS || lines > LONG_LINES
      ? html`<p class="small-text asked-length">
          ${number(chars)} characters in ${plural(lines, 'line')}: scroll to read all of it before you answer.
        </p>`
      : nothing
  }`;
}

/** @param {Field} field */
const block = ({ text, isTelling, spans }) => {
  // Spans count code points.
  const points = [...text];
  /** @param {number} from @param {number} [to] */
  const shown = (from, to) => escapeVisibleBlock(points.slice(from, to).join(''));
  return html`<pre class=${isTelling ? 'in-order' : ''}>${spans.map(
    ({ start, end, source }, at) =>
      html`${shown(spans[at - 1]?.end ?? 0, start)}<mark title=${sourceWords(source)}>${shown(start, end)}</mark>`,
  )}${shown(spans.at(-1)?.end ?? 0)}</pre>`;
};

/** @param {string} source  such as `web:example.org` */
export const sourceWords = (source) => escapeVisible(source.replace(':', ' '));

/**
 * Returns the texts of a value by their paths, as in `ForeignSpan`.
 * @param {string} name @param {unknown} value @returns {[name: string, text: string][]}
 */
function leaves(name, value) {
  const within = typeof value === 'object' && value !== null ? Object.entries(value) : [];
  if (within.length) return within.flatMap(([key, each]) => leaves(`${name}.${key}`, each));
  return [[name, typeof value === 'string' ? value : JSON.stringify(value)]];
}

/**
 * Returns the fields: short ones before long ones, and the effect of a call before the agent's description of it.
 * @param {PermissionPart} part
 * @returns {Field[]}
 */
function fieldsOf(part) {
  const telling = tellingField(part.tool);
  const texts = Object.entries(part.input).flatMap(([name, value]) => leaves(name, value));
  const fields = texts.map(([name, text]) => ({
    name,
    text,
    isTelling: name === telling,
    spans: part.foreign?.filter(({ field }) => field === name) ?? [],
  }));
  /** @param {Field} field */
  const rank = ({ name, text }) => (name === 'description' ? 2 : text.length > LONG_CHARS ? 1 : 0);
  fields.sort((one, other) => rank(one) - rank(other));
  const where = { 'leads to': part.real_path, 'in folder': part.folder };
  const told = Object.entries(where).filter(([, text]) => text);
  return [...told.map(([name, text]) => ({ name, text: text ?? '', isTelling: true, spans: [] })), ...fields];
}
