// Text that a person is asked about, so that every character of it is seen: what would be obeyed or leaves no ink is
// named where it stands.

import { h } from './dom.js';

/** Controls, marks of direction and joining, letters without ink, and every space but the plain one. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;

/** @param {string} letter */
const named = (letter) => `<U+${(letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}>`;

/**
 * For a line or a label.
 * @param {string} text
 */
export const exactWords = (text) => text.replace(UNSEEN, named);

/**
 * For a block that keeps its line ends; a copy of it has the text's own ends and tabs.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function exactText(text) {
  /** @type {(Node | string)[]} */
  const parts = [];
  let shown = 0;
  for (const { 0: letter, index } of text.matchAll(UNSEEN)) {
    parts.push(text.slice(shown, index));
    shown = index + letter.length;
    if (letter === '\n') parts.push(h('span', { class: 'line-end' }, letter));
    else if (letter === '\t') parts.push(h('span', { class: 'tab' }, letter));
    else parts.push(h('span', { class: 'unseen' }, named(letter)));
  }
  parts.push(text.slice(shown));
  return parts;
}
