// The clipboard, and key presses.

import { elementOf } from './template.js';
import { html } from './vendor/lit-html/lit-html.js';

/**
 * Copies a text to the clipboard, also on pages without TLS.
 * @param {string} text
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    /** @type {HTMLTextAreaElement} */
    const area = elementOf(html`<textarea class="visually-hidden" aria-hidden="true" .value=${text}></textarea>`);
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
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
