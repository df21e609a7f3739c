// Connections: MCP servers that the agent may use, with their state and the tools that wait for the person's word.

import { escapeVisible, escapeVisibleBlock } from '../escape_visible.js';
import { plural } from '../format.js';
import { wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { askBridge } from './notifications.js';

/** @import { Connection } from '../types/messages.js' */
/** @import { Page } from '../types/page.js' */

/** @type {Record<Connection['state'], string>} */
const STATES = {
  new: 'Not used since the bridge started',
  ready: 'Connected',
  login: 'Log in to use it',
  failed: 'Not reachable',
};

/** @param {Page} page */
export async function showConnections(page) {
  const body = elementOf(html`<div class="reach"></div>`);
  /** @type {Connection[] | null} */
  let found = null;
  let problem = '';
  let isBusy = false;

  /** @param {string} method @param {string} [path] @param {unknown} [content] */
  async function ask(method, path = '', content) {
    isBusy = true;
    problem = '';
    draw();
    try {
      const response = await askBridge(method, `/connections${path}`, content);
      found = (await (await askBridge('GET', '/connections')).json()).connections;
      return await response.json();
    } catch (error) {
      problem = wordsOf(error);
    } finally {
      isBusy = false;
      draw();
    }
    return null;
  }

  /** @param {SubmitEvent} event */
  async function add(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    if (await ask('POST', '', Object.fromEntries(new FormData(form)))) form.reset();
  }

  /** @param {Connection} connection */
  async function logIn({ name }) {
    const answer = await ask('POST', `/${name}/login`, {});
    if (answer) location.assign(answer.url);
  }

  /** @param {Connection} connection */
  const row = (connection) => {
    const { name, changed, tools, is_on: isOn } = connection;
    const pinned = connection.pinned.filter((tool) => tools.includes(tool));
    const isBound = page.store.state.session.label_binds !== false;
    return html`<li class="reach-row">
      <div>
        <strong>${name}</strong> ${STATES[connection.state]}
        <div class="muted small-text">
          ${escapeVisible(connection.address)}, ${plural(tools.length, 'tool')}, ${connection.calls_today} of
          ${plural(connection.daily, 'call')} today
        </div>
        ${connection.detail ? html`<p class="bad-text">${escapeVisible(connection.detail)}</p>` : nothing}
        ${
          isBound
            ? nothing
            : html`<p>
                <strong>${isOn ? 'On.' : 'Off until you turn it on.'}</strong> Nobody is asked here before text from
                outside, such as a page or a mail, makes the agent use it.
              </p>`
        }
        ${
          changed.length
            ? html`<p>${plural(changed.length, 'new or changed tool')}: the agent cannot use these until you agree.</p>
              ${changed.map(
                (tool) =>
                  html`<pre class="asked in-order">${escapeVisibleBlock(`${tool.name}\n${tool.description}`)}</pre>
                    ${
                      tool.before === null
                        ? nothing
                        : html`<pre class="asked in-order">${escapeVisibleBlock(`Before:\n${tool.before}`)}</pre>`
                    }`,
              )}
              ${button('Agree', () => ask('POST', `/${name}/agree`, { tools: changed.map((tool) => tool.digest) }))}`
            : nothing
        }
        ${
          tools.length
            ? html`<details class="pins">
                <summary>Pinned tools: ${pinned.length}</summary>
                <p class="muted small-text">
                  The agent is offered these in each new session. It finds the others by search.
                </p>
                ${tools.map((tool) => {
                  const others = pinned.filter((each) => each !== tool);
                  const isPinned = others.length < pinned.length;
                  return html`<label><input type="checkbox" .checked=${live(isPinned)} ?disabled=${isBusy}
                    @change=${() => ask('POST', `/${name}/pin`, { tools: isPinned ? others : [...pinned, tool] })}>
                    ${escapeVisible(tool)}</label>`;
                })}
              </details>`
            : nothing
        }
      </div>
      <div class="row">
        ${button(isOn ? 'Turn off' : 'Turn on', () => ask('POST', `/${name}/switch`, { on: !isOn }), {
          hidden: isBound,
        })}
        ${button('Log in', () => logIn(connection), { hidden: connection.state !== 'login' })}
        ${button('Test', () => ask('POST', `/${name}/test`, {}), { disabled: isBusy })}
        ${button('Remove', () => ask('DELETE', `/${name}`), { look: 'danger', label: `Remove ${name}` })}
      </div>
    </li>`;
  };

  function draw() {
    render(
      html`${problem ? html`<p class="bad-text" role="alert">${problem}</p>` : nothing}
        ${
          found === null
            ? html`<p class="muted">Loading…</p>`
            : found.length
              ? html`<ul class="plain">${found.map(row)}</ul>`
              : html`<p class="muted">No connections yet.</p>`
        }
        <h3>Add a connection</h3>
        <form class="row" @submit=${add}>
          <label class="field"><span>Name</span>
            <input class="input" name="name" required pattern="[a-z][a-z0-9\\-]{0,23}" placeholder="calendar"></label>
          <label class="field"><span>Address</span>
            <input class="input" name="url" type="url" required placeholder="https://example.org/mcp"></label>
          <label class="field"><span>Token, if it needs one</span>
            <input class="input" name="token" type="password" autocomplete="off"></label>
          <button type="submit" class="button" ?disabled=${isBusy}>Add</button>
        </form>
        <p class="muted small-text">
          Tokens stay at the bridge. A server that runs as a program is added where the bridge runs:
          <code>sprite connections add NAME --command "…"</code>.
        </p>`,
      body,
    );
  }

  const stop = page.store.listen('connection_update', ({ connections }) => {
    found = connections;
    draw();
  });
  draw();
  void ask('GET');
  await page.dialog({ title: 'Connections', body, wide: true, actions: [{ label: 'Close', value: null }] });
  stop();
}
