// The agent's permission request: the intended action, and the person's answers. "Always" is offered if its effect is
// small enough to be named on a button.

import { escapeVisible } from '../escape_visible.js';
import { icon } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';
import { button } from '../template.js';
import { guard } from '../vendor/lit-html/directives/guard.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { askedInput } from './asked_input.js';
import { wants } from './tools.js';

/** @import { Decision, Page, PermissionPart } from '../types/page.js' */

/** @type {Record<string, string>} */
const ANSWERS = {
  allow: 'Allowed',
  session: 'Allowed in this session',
  deny: 'Not allowed',
  null: 'Nobody answered in time',
};
/**
 * Questions whose answer is being sent.
 * @type {WeakSet<PermissionPart>}
 */
const answering = new WeakSet();

/**
 * `redraw` draws the exchange again.
 * @param {PermissionPart} part
 * @param {Page} page
 * @param {() => void} redraw
 */
export function question(part, page, redraw) {
  const id = `question-${part.key}`;
  const { decision } = part;
  /** @param {string} words @param {Decision} choice @param {string} look */
  const choice = (words, choice, look) =>
    button(words, () => answer(part, page, choice, redraw), { look, disabled: answering.has(part) });
  const isAlways = decision === 'always';
  const words = isAlways ? `Always allowed: ${escapeVisible(part.always ?? '')}` : ANSWERS[String(decision)];
  const showReach = async () => (await import('./reach.js')).showReach(page);
  // The input is long, and never changes.
  return html`<div class="question ${decision === undefined ? '' : 'answered'}" role="group" aria-labelledby=${id}>
    <h4 id=${id}>${icon('alert', true)}May Sprite ${wants(part.tool)}?</h4>
    ${part.rule ? html`<p>${escapeVisible(part.rule)}</p>` : nothing}
    ${guard([part], () => askedInput(part))}
    ${
      decision === undefined
        ? html`<div class="row question-buttons">
            ${choice(part.session ? 'Allow in this turn' : 'Allow once', 'allow', 'primary')}
            ${part.session ? choice('Allow in this session', 'session', '') : nothing}
            ${part.always ? choice(`Always allow ${escapeVisible(part.always)}`, 'always', '') : nothing}
            ${choice('Don’t allow', 'deny', 'danger')}
          </div>`
        : html`<p class="muted small-text">${words}</p>`
    }
    ${isAlways ? button('What the agent may reach', showReach, { look: 'quiet' }) : nothing}
  </div>`;
}

/** @param {PermissionPart} part @param {Page} page @param {Decision} decision @param {() => void} redraw */
async function answer(part, page, decision, redraw) {
  const { connection, store } = page;
  answering.add(part);
  redraw();
  try {
    await connection.ask('permission', { request_id: part.request_id, decision });
    store.conversation.resolved(part.request_id, decision);
    store.state.permissions = store.conversation.openPermissions();
  } catch (problem) {
    if (codeOf(problem) === 'not_found') store.conversation.resolved(part.request_id, null);
    else page.toast({ kind: 'error', text: wordsOf(problem) });
  }
  answering.delete(part);
  redraw();
  store.touch('permissions');
}
