// Native dialogs that answer: a choice, a yes or no, one line of text. The browser keeps and restores the focus.

import { elementOf } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

let count = 0;

/** Shows a dialog; resolves with the chosen action's value, or null when it was closed. */
export function dialog({ title, body = null, actions, wide = false }) {
  count += 1;
  const id = `dialog-${count}`;
  return new Promise((resolve) => {
    let answer = null;
    const close = (value) => {
      answer = value;
      element.close();
    };
    const main = actions.find((action) => action.primary);
    const submit = (event) => {
      event.preventDefault();
      close(typeof main?.value === 'function' ? main.value() : (main?.value ?? null));
    };
    const element = elementOf(
      html`<dialog
        class=${wide ? 'wide' : ''}
        aria-labelledby=${id}
        @click=${(event) => event.target === element && element.close()}
        @close=${() => {
          element.remove();
          resolve(answer);
        }}
      >
        <form class="dialog-form" method="dialog" @submit=${submit}>
          <div class="dialog-head"><h2 id=${id}>${title}</h2></div>
          <div class="dialog-body">${typeof body === 'string' ? html`<p>${body}</p>` : (body ?? nothing)}</div>
          <div class="dialog-foot">${actions.map((action) => buttonOf(action, () => close(action.value)))}</div>
        </form>
      </dialog>`,
    );
    document.body.append(element);
    element.showModal();
    // Enter must not do what cannot be undone.
    const buttons = element.querySelectorAll('.dialog-foot button');
    const safe = buttons[actions.findLastIndex((action) => !action.danger)];
    const field = element.querySelector('.dialog-body :is(input, textarea, select)');
    (field ?? safe ?? buttons[buttons.length - 1])?.focus();
  });
}

/** The primary button answers by submitting, as Enter in a field does. */
function buttonOf({ label, primary = false, danger = false }, act) {
  const look = `button${primary ? ' primary' : ''}${danger ? ' danger' : ''}`;
  return primary
    ? html`<button class=${look} type="submit">${label}</button>`
    : html`<button class=${look} type="button" @click=${act}>${label}</button>`;
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
  const body = elementOf(
    html`<label class="field">
      <span>${label}</span>
      <input class="input" name="value" .value=${value} maxlength=${maxlength} required autocomplete="off" />
    </label>`,
  );
  const answer = await dialog({
    title,
    body,
    actions: [
      { label: 'Cancel', value: null },
      { label: action, primary: true, value: () => body.querySelector('input').value.trim() },
    ],
  });
  return answer || null;
}
