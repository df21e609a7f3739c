// lit templates: an element of a template that is drawn into later, and the buttons that all panels share.

import { icon } from './icons.js';
import { html, nothing, render } from './vendor/lit-html/lit-html.js';

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
 * Returns a small button. `label` is its accessible name, if `content` is not enough.
 * @param {unknown} content
 * @param {(event: Event) => unknown} run
 * @param {{ look?: string, label?: string, hidden?: boolean, disabled?: boolean }} [how]
 */
export const button = (content, run, { look = '', label, hidden = false, disabled = false } = {}) =>
  html`<button type="button" class="button small ${look}" aria-label=${label ?? nothing} ?hidden=${hidden}
    ?disabled=${disabled} @click=${run}>${content}</button>`;

/**
 * Returns a small button with an icon; `label` is its accessible name, `title` its tooltip if that is shorter.
 * @param {string} name
 * @param {string} label
 * @param {(event: Event) => unknown} run
 * @param {{ look?: string, title?: string, hidden?: boolean }} [how]
 */
export const iconButton = (name, label, run, { look = '', title = label, hidden = false } = {}) =>
  html`<button type="button" class="icon-button small ${look}" aria-label=${label} title=${title} ?hidden=${hidden}
    @click=${run}>${icon(name, true)}</button>`;

/** Keys of list items for lit's `repeat`. */
export const byKey = (/** @type {{ key: number | string }} */ { key }) => key;
export const itself = (/** @type {unknown} */ item) => item;

/**
 * Returns the value of the field that an event came from.
 * @param {Event} event
 */
export const typedIn = (event) => /** @type {HTMLInputElement | HTMLTextAreaElement} */ (event.target).value;
