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
  const body = elementOf(html`<div class="reach" data-rules></div>`);
  /** @type {RuleRow[]} */
  let rules = [];
  /** @type {RuleRow | undefined} */
  let changed;
  let problem = '';

  /** @param {Sent['rule']} [change]  without one, loads the rules */
  async function send(change) {
    try {
      if (change) {
        await page.connection.ask('rule', change);
        changed = undefined;
        body.querySelector('form')?.reset();
      }
      problem = '';
      ({ rules } = await page.connection.ask('memory', { op: 'rules' }));
    } catch (error) {
      problem = wordsOf(error);
    }
    draw();
  }
  /** @param {SubmitEvent} event */
  function propose(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    void send({ action: 'propose', text: String(new FormData(form).get('text')), id: changed?.id ?? null });
  }
  /**
   * @param {RuleRow} rule
   * @param {'accept' | 'dismiss' | 'retire'} action
   * @param {string} words
   * @param {string} [look]
   */
  const decide = ({ id, words: rule }, action, words, look = '') =>
    button(words, () => send({ action, id }), { look, label: `${words}: ${rule}` });
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
      ${told(
        rule,
        rules.find(({ id }) => id === rule.instead_of),
      ).map((line) => html`<p class="small-text muted">${escapeVisible(line)}</p>`)}
      ${rule.status === 'offered' ? rule.examples.map(example) : nothing}
    </div>
    ${
      rule.status === 'offered'
        ? html`${decide(rule, 'accept', 'Make it a rule', 'primary')} ${decide(rule, 'dismiss', 'No')}`
        : html`${button('Change', () => change(rule), { label: `Change: ${rule.words}` })}
          ${decide(rule, 'retire', 'Retire', 'danger')}`
    }
  </li>`;

  function draw() {
    const shown = ['offered', 'active'].flatMap((status) => rules.filter((rule) => rule.status === status));
    render(
      html`${problem ? html`<p class="bad-text" role="alert">${problem}</p>` : nothing}
        <ul class="plain">${shown.map(row)}</ul>
        ${
          shown.length
            ? nothing
            : html`<p class="muted">No rules yet. Sprite offers one after a correction, or when you
          tell it: “make it a rule that …”.</p>`
        }
        <form class="field" @submit=${propose}>
          <label for="rule-text">${changed ? 'Changed rule' : 'New rule'}</label>
          <div class="row">
            <input class="input" id="rule-text" name="text" required placeholder=${EXAMPLE}
              .value=${changed ? `${changed.words}: ${changed.reason}` : ''}>
            <button type="submit" class="button">Check it</button>
          </div>
        </form>`,
      body,
    );
  }

  const stop = page.store.listen('rule_offered', () => void send());
  void send();
  await page.dialog({ title: 'Rules', body, actions: [{ label: 'Close', value: null }], wide: true });
  stop();
}

/** @param {RuleRow['examples'][number]} past */
const example = ({ turn, tool, input, asked, certain }) =>
  html`<p class="small-text">Turn ${turn}, ${tool}: <code>${escapeVisible(Object.values(input)[0] ?? '')}</code>
    ${certain ? nothing : 'Perhaps: the log does not tell the branch.'}
    ${asked ? html`<strong>You had asked for it.</strong>` : nothing}</p>`;

/** @param {RuleRow} rule @param {RuleRow} [replaced] */
function told({ action, status, quote, checked, stops, asked, uses, doubt, accepted_at: since }, replaced) {
  const lines = quote ? [`You said: “${quote}”`] : [];
  if (status !== 'offered') return [...lines, `Accepted ${ago(since ?? 0)}, used ${plural(uses, 'time')}. ${doubt}`];
  if (replaced) lines.push(`It replaces: ${replaced.words}`);
  const would = action === 'stop' ? 'It would have stopped' : 'It would have asked about';
  const had = asked ? `; you had asked for ${number(asked)} of these` : '';
  return [...lines, `${would} ${number(stops)} of ${plural(checked, 'past call')}${had}.`];
}
