// Permission rules of this session: list and revoke them.

import { escapeVisible, escapeVisibleBlock } from '../escape_visible.js';
import { wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { Page, StandingRule } from '../types/page.js' */

/** @param {Page} page */
export async function showPermissions(page) {
  const body = elementOf(html`<div class="rules"></div>`);
  const draw = () => render(listOf(page), body);
  const stop = page.store.subscribe('status', draw);
  draw();
  void ask(page, { action: 'status' });
  await page.dialog({ title: 'What runs without asking', body, actions: [{ label: 'Close', value: null }] });
  stop();
}

/** @param {Page} page @param {{ action: 'status' | 'revoke', rule_id?: string }} payload */
async function ask(page, payload) {
  try {
    await page.connection.ask('system', payload);
  } catch (problem) {
    page.toast({ kind: 'error', text: wordsOf(problem) });
  }
}

/** @param {Page} page */
function listOf(page) {
  const { status } = page.store.state;
  const rules = status?.rules ?? [];
  if (status?.permissions === 'bypass') return html`<p>Sprite does as it sees fit here, and asks nobody.</p>`;
  if (!rules.length) return html`<p>Nothing: Sprite asks each time. What you always allow is listed here.</p>`;
  return html`<p>Until this session ends, Sprite does not ask about:</p>
    <ul class="plain">${rules.map((rule) => row(page, rule))}</ul>`;
}

/** @param {Page} page @param {StandingRule} rule */
const row = (page, { rule_id, words, command }) =>
  html`<li class="rule-row">
    <div>${escapeVisible(words)}${
      command === ''
        ? nothing
        : html`<pre class="asked in-order" tabindex="0" role="group" aria-label="The command">${escapeVisibleBlock(
            command,
          )}</pre>`
    }</div>
    ${button('Ask again', () => ask(page, { action: 'revoke', rule_id }), { look: 'danger' })}
  </li>`;
