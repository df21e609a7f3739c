// Elements from lit templates, for code that keeps one and draws into it later. Templates make what memory/ and shell/
// show: lists and forms that are drawn anew as a whole. What chat/ and canvas/ show is made with h(), in dom.js.

import { render } from './vendor/lit-html/lit-html.js';

/** The one element of a template. */
export function elementOf(template) {
  const fragment = document.createDocumentFragment();
  render(template, fragment);
  return fragment.firstElementChild;
}
