// Settings: the model and its key, the budget, notifications, permissions, connections, access, appearance, and
// dangerous actions.

import { money } from '../format.js';
import { wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { chooseTheme, THEMES, theme } from './theme.js';
import { tokens } from './tokens.js';

/** @import { Health, Page } from '../types/page.js' */

/** @type {('low' | 'medium' | 'high' | 'xhigh' | 'max')[]} */
const EFFORTS = ['low', 'medium', 'high', 'xhigh', 'max'];

/** @param {Page} page */
export async function showSettings(page) {
  const body = elementOf(html`<div class="settings"></div>`);
  /** @type {Health | null} */
  let health = null;
  let model = '';
  let isChecking = false;
  /** @type {string[]} */
  let models = [];
  const programs = tokens(() => draw());

  async function check() {
    isChecking = true;
    draw();
    try {
      const { model_answers: answers, model_words: words } = await page.connection.ask('system', {
        action: 'check_model',
      });
      model = `${answers ? 'The model works' : 'The model does not work'}: ${words ?? ''}.`;
    } catch (problem) {
      model = wordsOf(problem);
    }
    isChecking = false;
    draw();
  }

  /** @param {SubmitEvent} event */
  async function choose(event) {
    event.preventDefault();
    const fields = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    const effort = EFFORTS.find((name) => name === fields.get('effort')) ?? null;
    try {
      await page.connection.ask('system', {
        action: 'model',
        model: String(fields.get('model')).trim() || null,
        effort,
      });
      model = 'The next turn of this session uses it.';
    } catch (problem) {
      model = wordsOf(problem);
    }
    draw();
  }

  /** @param {string} id */
  const run = (id) => () =>
    page.commands
      .listed()
      .find((command) => command.id === id)
      ?.run();
  /** @param {string} id */
  const leaveTo = (id) => () => {
    body.closest('dialog')?.close();
    run(id)();
  };

  function draw() {
    const { state } = page.store;
    render(
      html`
        ${part(
          'Model',
          html`<p>
              ${
                page.isOffline()
                  ? 'The demo model answers. For Claude, set ANTHROPIC_API_KEY and start the bridge again.'
                  : `${state.model ?? 'Known after the first message'}. Only the bridge has its key.`
              }
            </p>
            <form class="row" @submit=${choose}>
              <label>Model of this session
                <input class="input" name="model" list="models" placeholder="the default"
                  .value=${page.isOffline() ? '' : (state.session.model ?? '')}>
              </label>
              <datalist id="models">${models.map((name) => html`<option value=${name}></option>`)}</datalist>
              <label>Effort
                <select class="input" name="effort">
                  ${['', ...EFFORTS].map(
                    (name) =>
                      html`<option value=${name} ?selected=${name === (state.session.effort ?? '')}>
                        ${name || 'the default'}
                      </option>`,
                  )}
                </select>
              </label>
              <button type="submit" class="button">Use it</button>
            </form>
            ${model ? html`<p role="status">${model}</p>` : nothing}`,
          button(isChecking ? 'Checking…' : 'Check the model and its key', check, { disabled: isChecking }),
        )}
        ${part(
          'Budget',
          health === null
            ? html`<p class="muted">Loading…</p>`
            : health.spend?.plan
              ? html`<p>Your Claude plan pays.</p>`
              : html`<p class="tabular">
                Today: ${money(spentToday(health))} for the agent and memory${
                  health.daily_cap_usd ? `, of at most ${money(health.daily_cap_usd)}` : ''
                }. Whoever runs the bridge sets the limit with SPRITE_DAILY_USD.
              </p>`,
          button('What memory has cost', leaveTo('memory.health')),
        )}
        ${part(
          'Sessions',
          html`<p>Earlier conversations: read, resume or rename them.</p>`,
          button('Sessions…', leaveTo('sessions')),
        )}
        ${part(
          'Notifications',
          html`<p>On this device, when Sprite asks you something or has done something by itself.</p>`,
          button('Notifications…', () => void page.openNotifications()),
        )}
        ${part(
          'Permissions and hosts',
          html`<p>What the agent may do without asking, and which hosts it may reach.</p>`,
          button('What the agent may reach', run('reach')),
        )}
        ${part(
          'Connections',
          html`<p>Mail, calendars, code hosts and other services that the agent may use, through MCP servers.</p>`,
          button('Connections…', async () => (await import('./connections.js')).showConnections(page)),
        )}
        ${part(
          'Rules',
          html`<p>Which tool calls are stopped, or asked about first.</p>`,
          button('Rules…', leaveTo('rules')),
        )}
        ${part(
          'Access',
          html`<p>Passkeys log you in without a link.</p>`,
          button('Passkeys', run('passkeys')),
          button('Install as an app', () => page.install.ask(), { hidden: !page.install.isOffered() }),
        )}
        ${part('Tokens and apps', programs.template())}
        ${part(
          'Theme',
          html`<div class="segmented" role="group" aria-label="Theme">
            ${Object.entries(THEMES).map(
              ([name, words]) =>
                html`<button type="button" aria-pressed=${theme() === name} @click=${() => {
                  chooseTheme(name);
                  draw();
                }}>${words}</button>`,
            )}
          </div>`,
        )}
        ${part(
          'Export',
          html`<p>Everything that Sprite keeps, as one ZIP file of plain text.</p>
            <a class="button small" href="/export" download>Download</a>`,
        )}
        ${part(
          'Danger zone',
          html`<p>Forgetting cannot be undone. You see first what will be removed.</p>`,
          button('Forget something…', leaveTo('memory.forget'), { look: 'danger' }),
          button('Sign out', leaveTo('sign-out'), { look: 'danger' }),
        )}
      `,
      body,
    );
  }

  draw();
  void page.loadMemory();
  void programs.load();
  void page.connection
    .ask('memory', { op: 'health' })
    .then((found) => {
      health = found.health;
      draw();
    })
    .catch(() => null);
  void page.connection
    .ask('system', { action: 'status' })
    .then((found) => {
      models = found.models ?? [];
      draw();
    })
    .catch(() => null);
  await page.dialog({ title: 'Settings', body, wide: true, actions: [{ label: 'Close', value: null }] });
}

/** @param {Health} health */
const spentToday = ({ spend, spend_today_usd: memory }) =>
  spend ? Object.values(spend.today).reduce((sum, { settled, estimated }) => sum + settled + estimated, 0) : memory;

/** @param {string} name @param {unknown} words @param {unknown[]} buttons */
const part = (name, words, ...buttons) =>
  html`<section class="settings-part">
    <h3>${name}</h3>
    ${words}
    ${buttons.length ? html`<div class="row">${buttons}</div>` : nothing}
  </section>`;
