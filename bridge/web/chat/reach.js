// The agent's reach: what the person always allows, the hosts that it may connect to and did, and the sandbox.

import { escapeVisible, escapeVisibleBlock } from '../escape_visible.js';
import { ago, bytes, iso, plural } from '../format.js';
import { wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { AllowedHost, Page, ReachedHost, ReachResult, StandingRule } from '../types/page.js' */

/** @type {Record<ReachResult['mode'], string>} */
const MODES = {
  ask: 'Package registries are open. Sprite asks you about every other host.',
  packages: 'Package registries are open, and no other hosts.',
  open: 'All hosts of the internet are open. Hosts in private networks are not.',
  bridge: 'No hosts are open but the model’s.',
};
/** @type {Record<AllowedHost['until'], string>} */
const UNTIL = { turn: 'in this turn', session: 'in this session', always: 'always' };
/** @type {Record<string, string>} */
const WHY = {
  model: 'The model',
  registry: 'Package registry',
  open: 'All hosts are open',
  always: 'You always allow it',
  session: 'You allowed it for a session',
  turn: 'You allowed it for a turn',
  refused: 'Refused',
};

/** @param {Page} page */
export async function showReach(page) {
  const body = elementOf(html`<div class="reach"></div>`);
  /** @type {ReachResult | null} */
  let found = null;
  let problem = '';
  const draw = () =>
    render(html`${rulesOf(page)}${template(found, problem, (host) => void ask({ revoke: host }))}`, body);
  /** @param {{ revoke?: string }} payload */
  async function ask(payload) {
    try {
      found = await page.connection.ask('reach', payload);
      problem = '';
    } catch (error) {
      problem = wordsOf(error);
    }
    draw();
    if (payload.revoke && !problem) page.announce(`${payload.revoke} is not allowed any more.`);
  }
  // Answers to questions and ends of turns change the list. One request at a time is enough for that.
  let asking = false;
  const refresh = async () => {
    if (asking) return;
    asking = true;
    await ask({});
    asking = false;
  };
  const stops = [page.store.subscribe('permissions', () => void refresh()), page.store.subscribe('status', draw)];
  draw();
  void refresh();
  void system(page, { action: 'status' });
  const actions = [{ label: 'Close', value: null }];
  await page.dialog({ title: 'What the agent may reach', body, actions, wide: true });
  for (const stop of stops) stop();
}

/** @param {Page} page @param {{ action: 'status' | 'revoke', rule_id?: string }} payload */
async function system(page, payload) {
  try {
    await page.connection.ask('system', payload);
  } catch (problem) {
    page.toast({ kind: 'error', text: wordsOf(problem) });
  }
}

/** @param {Page} page */
function rulesOf(page) {
  const { status } = page.store.state;
  const rules = status?.rules ?? [];
  return html`<h3>Always allowed in this session</h3>
    ${
      status?.permissions === 'bypass'
        ? html`<p>Sprite does as it sees fit here, and asks nobody.</p>`
        : rules.length
          ? html`<ul class="plain">${rules.map((rule) => ruleRow(page, rule))}</ul>`
          : html`<p class="muted">Nothing: Sprite asks each time.</p>`
    }`;
}

/** @param {Page} page @param {StandingRule} rule */
function ruleRow(page, { rule_id, words, command }) {
  const takeBack = () => system(page, { action: 'revoke', rule_id });
  return html`<li class="reach-row">
    <div>${escapeVisible(words)}${
      command === ''
        ? nothing
        : html`<pre class="asked in-order" tabindex="0" role="group" aria-label="The command">${escapeVisibleBlock(
            command,
          )}</pre>`
    }</div>
    ${button('Take back', takeBack, { look: 'danger', label: `Take back ${words}` })}
  </li>`;
}

/** @param {ReachResult | null} found @param {string} problem @param {(host: string) => void} revoke */
function template(found, problem, revoke) {
  const failed = problem ? html`<p class="bad-text" role="alert">${problem}</p>` : nothing;
  if (!found) return problem ? failed : html`<p class="muted">Loading…</p>`;
  const { allowed, hosts } = found;
  return html`${failed}
    <h3>Hosts</h3>
    <p>
      ${found.holds === false ? 'Without a sandbox, programs can bypass these rules. ' : nothing}${MODES[found.mode]}
    </p>
    ${
      found.mode === 'ask' || found.mode === 'packages'
        ? html`<details>
            <summary>${plural(found.registries.length, 'registry', 'registries')}</summary>
            <p class="small-text muted reach-names">${found.registries.join(', ').replaceAll(/(^| )\./g, '$1*.')}</p>
          </details>`
        : nothing
    }
    ${
      allowed.length
        ? html`<h4>You allowed</h4>
            <ul class="plain">${allowed.map((each) => allowedRow(each, revoke))}</ul>`
        : nothing
    }
    ${
      hosts.length
        ? html`<h4>Hosts that it tried to reach</h4>
            <ul class="plain">${hosts.map(hostRow)}</ul>`
        : html`<p class="muted">The agent has not connected to any host yet.</p>`
    }
    <h3>Files</h3>
    ${
      found.writable.length
        ? html`<p>
            The agent may write in ${found.writable.map((path) => html`<code>${escapeVisible(path)}</code>`)}.
          </p>`
        : nothing
    }
    <p class="muted small-text">Sandbox: ${escapeVisible(found.sandbox)}.</p>`;
}

/** @param {AllowedHost} allowed @param {(host: string) => void} revoke */
const allowedRow = ({ host, until, at, message }, revoke) =>
  html`<li class="reach-row">
    <div>
      <strong class="in-order">${escapeVisible(host)}</strong> ${UNTIL[until]}
      ${at ? html`<div class="muted small-text">${moment(at)}${asked(message)}</div>` : nothing}
    </div>
    ${button('Take back', () => revoke(host), { look: 'danger', label: `Take back ${host}` })}
  </li>`;

/** @param {ReachedHost} use */
const hostRow = (use) =>
  html`<li class="reach-row">
    <div>
      <span class="in-order">${escapeVisible(use.host)}</span>${[80, 443].includes(use.port) ? '' : `:${use.port}`}
      ${use.open ? html`<span class="badge ok">${plural(use.open, 'open connection')}</span>` : nothing}
      <div class="muted small-text">${WHY[use.decision] ?? use.decision}${asked(use.message)}</div>
    </div>
    <div class="muted small-text reach-figures">
      ${moment(use.last_at)}<br />${
        use.decision === 'refused'
          ? plural(use.connections, 'attempt')
          : `${bytes(use.sent)} sent, ${bytes(use.received)} received`
      }
    </div>
  </li>`;

/** @param {number} at */
const moment = (at) => html`<time datetime=${iso(at)}>${ago(at)}</time>`;

/** @param {string | null | undefined} message  the message that began the turn */
const asked = (message) => (message ? `, during “${escapeVisible(message)}”` : '');
