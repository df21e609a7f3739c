// DOM helpers: create elements without HTML text, copy to the clipboard, offer a download.

/** @import { Child, MakeElement } from './types/page.js' */

/**
 * Creates an element: props are properties (class, textContent, onclick) or attributes (role, aria-*, data-*); children
 * are nodes or strings.
 */
export const h = /** @type {MakeElement} */ (make);

/**
 * @param {string} tag
 * @param {object | null} [props]
 * @param {(Child | Child[])[]} children
 */
function make(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'dataset') Object.assign(element.dataset, value);
    else if (name.includes('-') || name === 'role') element.setAttribute(name, value === true ? '' : value);
    else Object.assign(element, { [name]: value });
  }
  element.append(...children.flat().filter((child) => typeof child === 'string' || child instanceof Node));
  return element;
}

/**
 * Copies a text to the clipboard, also on pages without TLS.
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', { value: text, class: 'visually-hidden', 'aria-hidden': 'true' });
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/**
 * Offers a generated file as a download.
 * @param {string} name
 * @param {string} text
 * @param {string} [type]
 */
export function download(name, text, type = 'text/plain') {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/**
 * Whether a key press belongs to a text field.
 * @param {EventTarget | null} target
 */
export function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.matches(
        'textarea, select, input:not([type=checkbox]):not([type=radio]):not([type=button]):not([type=range])',
      ))
  );
}
