// The whole input of a tool call that needs permission: each field exactly as it will run.

import { h } from '../dom.js';
import { escapeVisible, escapeVisibleBlock } from '../escape_visible.js';
import { number, plural } from '../format.js';
import { tellingField } from './tools.js';

/** @import { PermissionPart } from '../types/page.js' */

/** Longer texts do not fit into their box. */
const LONG_CHARS = 600;
const LONG_LINES = 10;

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} text
 * @property {boolean} isTelling  whether it is what runs, and is read from left to right whatever its letters
 */

/** @param {PermissionPart} part */
export function askedInput(part) {
  const fields = fieldsOf(part);
  const [only, ...others] = fields;
  const body =
    only && !others.length && only.isTelling
      ? [block(only)]
      : [h('dl', {}, ...fields.flatMap((each) => [h('dt', {}, escapeVisible(each.name)), h('dd', {}, block(each))]))];
  const chars = fields.reduce((sum, { text }) => sum + text.length, 0);
  const lines = fields.reduce((sum, { text }) => sum + text.split('\n').length, 0);
  const isLong = chars > LONG_CHARS || lines > LONG_LINES;
  const words = `${number(chars)} characters in ${plural(lines, 'line')}: scroll to read all of it before you answer.`;
  return [
    h('div', { class: 'asked scroll', tabIndex: 0, role: 'group', 'aria-label': 'What it would do' }, ...body),
    isLong && h('p', { class: 'small-text asked-length' }, words),
  ];
}

/** @param {Field} field */
const block = ({ text, isTelling }) => h('pre', { class: isTelling ? 'in-order' : '' }, escapeVisibleBlock(text));

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
