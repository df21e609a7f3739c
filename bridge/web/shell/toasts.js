// Short messages at the edge: errors stay until they are closed, the rest leaves by itself.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';

const SHOWN_MS = 6000;
const MOST = 4;

export function createToasts(root, announce) {
  /** `{text, kind: 'info'|'success'|'error', action: {label, run}}`; returns how to take it away. */
  return function toast({ text, kind = 'info', action = null }) {
    for (const old of [...root.children].filter((each) => each.dataset.text === text)) old.remove();
    let clock = 0;
    const close = () => {
      clearTimeout(clock);
      item.remove();
    };
    const act =
      action &&
      h(
        'button',
        {
          class: 'button small',
          type: 'button',
          onclick: () => {
            close();
            action.run();
          },
        },
        action.label,
      );
    const item = h(
      'div',
      { class: `toast ${kind}`, dataset: { text } },
      iconElement(kind === 'error' ? 'alert' : kind === 'success' ? 'check' : 'spark', true),
      h('p', { class: 'grow' }, text),
      act,
      h(
        'button',
        { class: 'icon-button small', type: 'button', 'aria-label': 'Dismiss', title: 'Dismiss', onclick: close },
        iconElement('close', true),
      ),
    );
    root.append(item);
    while (root.children.length > MOST) root.firstElementChild.remove();
    announce(text);
    if (kind !== 'error') clock = setTimeout(close, SHOWN_MS);
    item.addEventListener('mouseenter', () => clearTimeout(clock));
    item.addEventListener('focusin', () => clearTimeout(clock));
    return close;
  };
}
