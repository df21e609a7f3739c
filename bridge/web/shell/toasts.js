// Short messages at the edge: errors stay until they are closed, work until it ends, others disappear.

import { icon } from '../icons.js';
import { elementOf } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @import { Announce, Toast } from '../types/page.js' */

const SHOWN_MS = 6000;
const MOST = 4;
const ICONS = { error: 'alert', success: 'check', info: 'spark', busy: 'spark' };

/** @param {HTMLElement} root @param {Announce} announce */
export function createToasts(root, announce) {
  /**
   * Shows `{text, kind: 'info'|'success'|'error'|'busy', action: {label, run}, stays}`.
   * Returns a function that removes it.
   * @param {Toast} toast
   */
  return function toast({ text, kind = 'info', action = null, stays = kind === 'error' || kind === 'busy' }) {
    for (const old of [...root.children].filter((each) => each.getAttribute('data-text') === text)) old.remove();
    let clock = 0;
    const hold = () => clearTimeout(clock);
    const go = () => {
      hold();
      if (!stays) clock = setTimeout(close, SHOWN_MS);
    };
    const close = () => {
      hold();
      item.remove();
    };
    const act = () => {
      close();
      action?.run();
    };
    const item = elementOf(
      html`<div
        class="toast ${kind}"
        data-text=${text}
        @mouseenter=${hold}
        @mouseleave=${go}
        @focusin=${hold}
        @focusout=${go}
      >
        ${icon(ICONS[kind], true)}
        <p class="grow">${text}</p>
        ${action ? html`<button class="button small" type="button" @click=${act}>${action.label}</button>` : nothing}
        <button class="icon-button small" type="button" aria-label="Dismiss" title="Dismiss" @click=${close}>
          ${icon('close', true)}
        </button>
      </div>`,
    );
    root.append(item);
    while (root.children.length > MOST) root.firstElementChild?.remove();
    announce(text);
    go();
    return close;
  };
}
