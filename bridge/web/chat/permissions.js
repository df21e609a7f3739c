// Permission rules of this session: list and revoke them.

import { h } from '../dom.js';
import { escapeVisible, escapeVisibleBlock } from '../escape_visible.js';
import { wordsOf } from '../problem.js';

/** @import { Page, StandingRule } from '../types/page.js' */

/** @param {Page} page */
export async function showPermissions(page) {
  const body = h('div', { class: 'rules' });
  const draw = () => body.replaceChildren(...listOf(page));
  const stop = page.store.subscribe('status', draw);
  draw();
  void ask(page, { action: 'status' });
  await page.dialog({ title: 'What runs without asking', body, actions: [{ label: 'Close', value: null }] });
  stop();
}

/**
 * @param {Page} page
 * @param {{ action: 'status' | 'revoke', rule_id?: string }} payload
 */
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
  if (status?.permissions === 'bypass') return [h('p', {}, 'Sprite does as it sees fit here, and asks nobody.')];
  if (!rules.length) return [h('p', {}, 'Nothing: Sprite asks each time. What you always allow is listed here.')];
  return [
    h('p', {}, 'Until this session ends, Sprite does not ask about:'),
    h('ul', { class: 'plain' }, ...rules.map((rule) => row(page, rule))),
  ];
}

/**
 * @param {Page} page
 * @param {StandingRule} rule
 */
function row(page, { rule_id, words, command }) {
  const revoke = () => void ask(page, { action: 'revoke', rule_id });
  const look = { class: 'asked in-order', tabIndex: 0, role: 'group', 'aria-label': 'The command' };
  return h(
    'li',
    { class: 'rule-row' },
    h('div', {}, escapeVisible(words), command !== '' && h('pre', look, escapeVisibleBlock(command))),
    h('button', { class: 'button small danger', type: 'button', onclick: revoke }, 'Ask again'),
  );
}
