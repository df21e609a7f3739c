// Tokens for programs, and apps that logged in by themselves: the list, a new token (shown once), and Revoke.

import { when } from '../format.js';
import { wordsOf } from '../problem.js';
import { button } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @typedef {{ label: string, scopes: string[] | null, created_at: number, used_at: number | null }} Token */

/** The rights of a token, by scope. @type {Record<string, string>} */
const SCOPES = {
  'memory:read': 'read memory',
  observe: 'add turns',
  actions: 'add to-dos',
  ask: 'give the agent tasks',
};

/** @param {string} path @param {RequestInit} [how] */
async function asked(path, how) {
  const response = await fetch(path, { headers: { Accept: 'application/json' }, cache: 'no-store', ...how });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}

/**
 * Returns the part of the settings, and a function that loads the list. `draw` draws the settings again.
 * @param {() => void} draw
 */
export function tokens(draw) {
  /** @type {Token[] | null} */
  let list = null;
  let secret = '';
  let problem = '';

  /** @param {() => Promise<void>} act */
  const attempt = async (act) => {
    problem = '';
    try {
      await act();
      list = (await asked('/tokens')).tokens;
    } catch (error) {
      problem = wordsOf(error);
    }
    draw();
  };
  const load = () => attempt(async () => {});

  /** @param {SubmitEvent} event */
  const make = (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const fields = new FormData(form);
    const body = JSON.stringify({ label: fields.get('label'), scopes: fields.getAll('scope') });
    void attempt(async () => {
      secret = (await asked('/tokens', { method: 'POST', body })).secret;
      form.reset();
    });
  };
  /** @param {Token} token */
  const revoke = ({ label }) =>
    attempt(async () => void (await asked(`/tokens/${encodeURIComponent(label)}`, { method: 'DELETE' })));

  /** @param {Token} token */
  const row = (token) =>
    html`<li class="row">
      <span class="grow"><strong>${token.label}</strong>
        <span class="muted small-text">${
          token.scopes?.map((scope) => SCOPES[scope] ?? scope).join(', ') ?? 'everything'
        } · ${token.used_at === null ? 'never used' : `used ${when(token.used_at)}`}</span></span>
      ${button('Revoke', () => void revoke(token), { look: 'quiet', label: `Revoke ${token.label}` })}
    </li>`;

  const template = () => html`<p>Editors and other programs use a token instead of your login.</p>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : nothing}
    ${
      secret
        ? html`<p role="status">Copy this token now. It is not shown again: <code class="secret">${secret}</code></p>`
        : nothing
    }
    <ul class="plain">${list?.map(row)}</ul>
    <form class="row token-form" @submit=${make}>
      <input class="input" name="label" aria-label="Name of the new token" placeholder="Name, such as editor"
        maxlength="40" required>
      ${Object.entries(SCOPES).map(
        ([scope, words]) =>
          html`<label><input type="checkbox" name="scope" value=${scope} ?checked=${scope !== 'ask'}> ${words}</label>`,
      )}
      <button type="submit" class="button small">Make a token</button>
    </form>`;

  return { load, template };
}
