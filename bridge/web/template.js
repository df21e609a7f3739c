// Elements from lit templates, for code that keeps one and draws into it later. Templates make memory/ and shell/:
// lists and forms that are redrawn as a whole. Code in chat/ and canvas/ uses h(), in dom.js.

import { render } from './vendor/lit-html/lit-html.js';

/** @import { TemplateResult } from 'lit-html' */

/**
 * Returns the single element of a template.
 * @template {HTMLElement} [E=HTMLElement]
 * @param {TemplateResult} template
 * @returns {E}
 */
export function elementOf(template) {
  const fragment = document.createDocumentFragment();
  render(template, fragment);
  const element = /** @type {E} */ (fragment.firstElementChild);
  // Remove it now: a later move would lose the ranges inside it.
  element.remove();
  return element;
}

/**
 * Returns the value of the field that an event came from.
 * @param {Event} event
 */
export const typedIn = (event) => /** @type {HTMLInputElement | HTMLTextAreaElement} */ (event.target).value;
