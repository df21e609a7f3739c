// The whole input of a tool call that needs permission: each field exactly as it will run.

import { escapeVisible, escapeVisibleBlock } from '../escape_visible.js';
import { number, plural } from '../format.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { tellingField } from './tools.js';

/** @import { PermissionPart } from '../types/page.js' */

/** Longer texts do not fit into their box. */
const LONG_CHARS = 600;
const LONG_LINES = 10;

/**
 * `isTelling` says whether the field is what runs: then it is read from left to right whatever its letters.
 * @typedef {{ name: string, text: string, isTelling: boolean }} Field
 */

/** @param {PermissionPart} part */
export function askedInput(part) {
  const fields = fieldsOf(part);
  const [only, ...others] = fields;
  const chars = fields.reduce((sum, { text }) => sum + text.length, 0);
  const lines = fields.reduce((sum, { text }) => sum + text.split('\n').length, 0);
  return html`<div class="asked scroll" tabindex="0" role="group" aria-label="What it would do">${
    only?.isTelling && !others.length
      ? block(only)
      : html`<dl>${fields.map((each) => html`<dt>${escapeVisible(each.name)}</dt><dd>${block(each)}</dd>`)}</dl>`
  }</div>
  ${
    chars > LONG_CHARS || lines > LONG_LINES
      ? html`<p class="small-text asked-length">
          ${number(chars)} characters in ${plural(lines, 'line')}: scroll to read all of it before you answer.
        </p>`
      : nothing
  }`;
}

/** @param {Field} field */
const block = ({ text, isTelling }) =>
  html`<pre class=${isTelling ? 'in-order' : ''}>${escapeVisibleBlock(text)}</pre>`;

/**
 * Returns the fields: short ones before long ones, and the effect of a call before the agent's description of it.
 * @param {PermissionPart} part
 * @returns {Field[]}
 */
function fieldsOf(part) {
  const telling = tellingField(part.tool);
  const fields = Object.entries(part.input).map(([name, value]) => ({
    name,
    text: typeof value === 'string' ? value : JSON.stringify(value, null, 2),
    isTelling: name === telling,
  }));
  /** @param {Field} field */
  const rank = ({ name, text }) => (name === 'description' ? 2 : text.length > LONG_CHARS ? 1 : 0);
  fields.sort((one, other) => rank(one) - rank(other));
  const where = { 'leads to': part.real_path, 'in folder': part.folder };
  const told = Object.entries(where).filter(([, text]) => text);
  return [...told.map(([name, text]) => ({ name, text: text ?? '', isTelling: true })), ...fields];
}
