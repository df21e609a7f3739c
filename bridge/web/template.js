// Elements from lit templates, for code that keeps one and draws into it later. Templates make what memory/ and shell/
// show: lists and forms that are drawn anew as a whole. What chat/ and canvas/ show is made with h(), in dom.js.

import { render } from './vendor/lit-html/lit-html.js';

/** @import { TemplateResult } from 'lit-html' */

/**
 * The one element of a template.
 * @template {HTMLElement} [E=HTMLElement]
 * @param {TemplateResult} template
 * @returns {E}
 */
export function elementOf(template) {
  const fragment = document.createDocumentFragment();
  render(template, fragment);
  const element = /** @type {E} */ (fragment.firstElementChild);
  // Taken out now: later, ranges inside it would be lost with the move.
  element.remove();
  return element;
}

/**
 * What stands in the field that an event came from.
 * @param {Event} event
 */
export const typedIn = (event) => /** @type {HTMLInputElement | HTMLTextAreaElement} */ (event.target).value;
