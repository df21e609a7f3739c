// Native dialogs with an answer: a choice, a confirmation, a line of text. The browser keeps and restores the focus.

import { elementOf } from '../template.js';
import { html, render } from '../vendor/lit-html/lit-html.js';

/** @import { Confirm, Dialog, DialogAction, Prompt } from '../types/page.js' */

let count = 0;

/**
 * Shows a dialog; resolves with the chosen action's value, or null when it was closed.
 * @template T
 * @param {Dialog<T>} question
 * @returns {Promise<T | null>}
 */
export function dialog({ title, body = null, actions, wide = false }) {
  count += 1;
  const id = `dialog-${count}`;
  return new Promise((resolve) => {
    /** @type {T | null} */
    let answer = null;
    /** @param {T | null} value */
    const close = (value) => {
      answer = value;
      element.close();
    };
    const main = actions.find((action) => action.primary);
    /** @param {Event} event */
    const submit = (event) => {
      event.preventDefault();
      close(main ? answerOf(main) : null);
    };
    /** @type {HTMLDialogElement} */
    const element = elementOf(
      html`<dialog
        class=${wide ? 'wide' : ''}
        aria-labelledby=${id}
        @click=${(/** @type {Event} */ event) => event.target === element && element.close()}
        @close=${() => {
          element.remove();
          resolve(answer);
        }}
      >
        <form class="dialog-form" method="dialog" @submit=${submit}>
          <div class="dialog-head"><h2 id=${id}>${title}</h2></div>
          <div class="dialog-body"></div>
          <div class="dialog-foot">${actions.map((action) => buttonOf(action, () => close(answerOf(action))))}</div>
        </form>
      </dialog>`,
    );
    const content = /** @type {HTMLElement} */ (element.querySelector('.dialog-body'));
    render(typeof body === 'string' ? html`<p>${body}</p>` : body, content);
    document.body.append(element);
    element.showModal();
    // Enter must not trigger a destructive action.
    const buttons = [...element.querySelectorAll('.dialog-foot button')].filter((each) => each instanceof HTMLElement);
    const safe = buttons[actions.findLastIndex((action) => !action.danger)];
    /** @type {HTMLElement | null} */
    const field = content.querySelector('input, textarea, select');
    (field ?? safe ?? buttons.at(-1))?.focus();
  });
}

/**
 * Returns the answer of an action. A function value is called for it.
 * @template T
 * @param {DialogAction<T>} action
 * @returns {T | null}
 */
const answerOf = ({ value }) => (value instanceof Function ? value() : value);

/**
 * Creates a button; the primary one submits the form, like Enter in a field.
 * @param {{ label: string, primary?: boolean, danger?: boolean }} look
 * @param {() => void} act
 */
function buttonOf({ label, primary = false, danger = false }, act) {
  const look = `button${primary ? ' primary' : ''}${danger ? ' danger' : ''}`;
  return primary
    ? html`<button class=${look} type="submit">${label}</button>`
    : html`<button class=${look} type="button" @click=${act}>${label}</button>`;
}

/**
 * Asks for a yes or no.
 * @param {Confirm} question
 */
export async function confirm({ title, body = null, confirm: label = 'OK', danger = false }) {
  const actions = [
    { label: 'Cancel', value: false },
    { label, value: true, primary: true, danger },
  ];
  return (await dialog({ title, body, actions })) === true;
}

/**
 * Asks for one line of text; returns null if it is empty or the dialog is closed.
 * @param {Prompt} question
 */
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
      { label: action, primary: true, value: () => body.querySelector('input')?.value.trim() ?? null },
    ],
  });
  return answer || null;
}
