// Rules about tool calls: those that wait, with the past calls that they are about, the active ones, and a form.

import { escapeVisible } from '../escape_visible.js';
import { ago, number, plural } from '../format.js';
import { wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { Page, RuleRow, Sent } from '../types/page.js' */

const EXAMPLE = 'stop when command "git commit" and branch "main": Commit on a branch of your own.';

/** @param {Page} page */
export async function showRules(page) {
  const body = elementOf(html`<div class="reach"></div>`);
  /** @type {RuleRow[]} */
  let rules = [];
  /** @type {RuleRow | null} */
  let changed = null;
  let problem = '';

  async function load() {
    try {
      rules = (await page.connection.ask('memory', { op: 'rules' })).rules;
    } catch (error) {
      problem = wordsOf(error);
    }
    draw();
  }
  /** @param {Sent['rule']} change */
  async function send(change) {
    try {
      await page.connection.ask('rule', change);
      problem = '';
      changed = null;
      body.querySelector('form')?.reset();
    } catch (error) {
      problem = wordsOf(error);
    }
    await load();
  }
  /** @param {SubmitEvent} event */
  function propose(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const text = String(new FormData(form).get('text'));
    void send({ action: 'propose', text, id: changed?.id ?? null });
  }
  /** @param {RuleRow} rule */
  const change = (rule) => {
    changed = rule;
    draw();
    body.querySelector('input')?.focus();
  };
  /** @param {RuleRow} rule */
  const row = (rule) => html`<li class="reach-row">
    <div>
      <p><code>${escapeVisible(rule.words)}</code></p>
      <p>${escapeVisible(rule.reason)}</p>
      <p class="small-text muted">${escapeVisible(told(rule))}</p>
      ${rule.status === 'offered' ? rule.examples.map(example) : nothing}
    </div>
    ${
      rule.status === 'offered'
        ? html`${button('Make it a rule', () => send({ action: 'accept', id: rule.id }), { look: 'primary' })}
          ${button('No', () => send({ action: 'dismiss', id: rule.id }), { label: `No to ${rule.words}` })}`
        : html`${button('Change', () => change(rule), { label: `Change ${rule.words}` })}
          ${button('Retire', () => send({ action: 'retire', id: rule.id }), {
            look: 'danger',
            label: `Retire ${rule.words}`,
          })}`
    }
  </li>`;

  function draw() {
    const shown = ['offered', 'active'].flatMap((status) => rules.filter((rule) => rule.status === status));
    render(
      html`
        ${problem ? html`<p class="bad-text" role="alert">${problem}</p>` : nothing}
        ${
          shown.length
            ? html`<ul class="plain">${shown.map(row)}</ul>`
            : html`<p class="muted">No rules yet. Sprite offers one when a correction can be checked by code.</p>`
        }
        <form class="row" @submit=${propose}>
          <label class="field grow">
            <span>${changed ? 'Changed rule' : 'New rule'}</span>
            <input class="input" name="text" required placeholder=${EXAMPLE}
              .value=${changed ? `${changed.words}: ${changed.reason}` : ''}>
          </label>
          <button type="submit" class="button">Check it</button>
        </form>
      `,
      body,
    );
  }

  const stop = page.store.listen('rule_offered', () => void load());
  void load();
  await page.dialog({ title: 'Rules', body, actions: [{ label: 'Close', value: null }], wide: true });
  stop();
}

/** @param {RuleRow['examples'][number]} past */
const example = ({ turn, tool, input, asked }) =>
  html`<p class="small-text">Turn ${turn}, ${tool}: <code>${escapeVisible(Object.values(input)[0] ?? '')}</code>
    ${asked ? html`<strong>You had asked for it.</strong>` : nothing}</p>`;

/** @param {RuleRow} rule */
function told({ status, quote, checked, stops, asked, uses, doubt, accepted_at: since }) {
  const evidence = quote ? `You said: “${quote}”. ` : '';
  if (status !== 'offered') return `${evidence}Accepted ${ago(since ?? 0)}, used ${plural(uses, 'time')}. ${doubt}`;
  const found = `It is about ${number(stops)} of ${number(checked)} past calls`;
  return `${evidence}${found}; you had asked for ${number(asked)}.`;
}
