// Native dialogs that answer: a choice, a yes or no, one line of text. The browser keeps and restores the focus.

import { h } from '../dom.js';
import { render } from '../vendor/lit-html/lit-html.js';

let count = 0;

/** Shows a dialog; resolves with the chosen action's value, or null when it was closed. */
export function dialog({ title, body = null, actions, wide = false }) {
  count += 1;
  const titleId = `dialog-${count}`;
  const content = h('div', { class: 'dialog-body' });
  if (body instanceof Node) content.append(body);
  else if (typeof body === 'string') content.append(h('p', null, body));
  else if (body !== null) render(body, content);
  return new Promise((resolve) => {
    let answer = null;
    const buttons = actions.map(({ label, value, primary, danger }) =>
      h(
        'button',
        {
          class: `button${primary ? ' primary' : ''}${danger ? ' danger' : ''}`,
          type: primary ? 'submit' : 'button',
          onclick: (event) => {
            if (primary) return;
            event.preventDefault();
            answer = value;
            element.close();
          },
        },
        label,
      ),
    );
    const primary = actions.find((action) => action.primary);
    const form = h(
      'form',
      {
        method: 'dialog',
        onsubmit: (event) => {
          event.preventDefault();
          answer = typeof primary?.value === 'function' ? primary.value() : (primary?.value ?? null);
          element.close();
        },
      },
      h('div', { class: 'dialog-head' }, h('h2', { id: titleId }, title)),
      content,
      h('div', { class: 'dialog-foot' }, buttons),
    );
    form.className = 'dialog-form';
    const element = h('dialog', { class: wide ? 'wide' : '', 'aria-labelledby': titleId }, form);
    element.addEventListener('close', () => {
      element.remove();
      resolve(answer);
    });
    element.addEventListener('click', (event) => event.target === element && element.close());
    document.body.append(element);
    element.showModal();
    // Enter must not do what cannot be undone.
    const safe = buttons[actions.findLastIndex((action) => !action.danger)];
    (content.querySelector('input, textarea, select') ?? safe ?? buttons.at(-1))?.focus();
  });
}

/** Asks yes or no. */
export async function confirm({ title, body = null, confirm: label = 'OK', danger = false }) {
  const actions = [
    { label: 'Cancel', value: false },
    { label, value: true, primary: true, danger },
  ];
  return (await dialog({ title, body, actions })) === true;
}

/** Asks for one line of text; null when it was left empty or closed. */
export async function prompt({ title, label, value = '', confirm: action = 'Save', maxlength = 200 }) {
  const input = h('input', {
    class: 'input',
    value,
    maxLength: maxlength,
    required: true,
    autocomplete: 'off',
    name: 'value',
  });
  const answer = await dialog({
    title,
    body: h('label', { class: 'field' }, h('span', null, label), input),
    actions: [
      { label: 'Cancel', value: null },
      { label: action, primary: true, value: () => input.value.trim() },
    ],
  });
  return answer || null;
}
