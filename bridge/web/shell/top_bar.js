// The top bar: the agent's state, a new session, and the palette for everything else.

import { sourceWords } from '../chat/asked_input.js';
import { moment, plural } from '../format.js';
import { icon } from '../icons.js';
import { button, iconButton } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { caps } from './commands.js';

/** @import { Link, Page, SessionState } from '../types/page.js' */

const TICK_MS = 30_000;
/** @type {Record<Link['state'], [kind: string, words: string]>} */
const WORDS = {
  ready: ['ok', 'Connected'],
  connecting: ['warn', 'Connecting'],
  waking: ['warn', 'Waking'],
  updating: ['warn', 'Updating'],
  offline: ['warn', 'Reconnecting'],
  unavailable: ['bad', 'Unreachable'],
  'signed-out': ['bad', 'Signed out'],
};

const CLOSE = [{ label: 'Close', value: null }];

/** @param {Page} page */
const DEMO = (page) =>
  button(
    'Demo model',
    () =>
      page.dialog({
        title: 'Demo model',
        body:
          'No key for Claude is set, so simple rules answer. They draw tables, remember your facts, set reminders ' +
          'and run commands. For Claude, set ANTHROPIC_API_KEY where the bridge runs, and start it again.',
        actions: CLOSE,
      }),
    { look: 'demo' },
  );

/**
 * The label of the session, and why.
 * @param {SessionState} session @param {Page} page
 */
function shield({ label = 'clean', sources = [], label_note = '' }, page) {
  const isExposed = label === 'exposed';
  const title = isExposed ? 'This session has read text from outside' : 'This session is clean';
  const why = isExposed ? `It has read: ${sources.map(sourceWords).join(', ')}.` : 'It has read nothing from outside.';
  return html`<button type="button" class="link shield" data-label=${label} title=${title} aria-label=${title}
    @click=${() => page.dialog({ title, body: `${why} ${label_note}`, actions: CLOSE })}
    >${icon('shield', true)}</button>`;
}

/**
 * @param {{ state: HTMLElement, actions: HTMLElement }} places
 * @param {Page} page
 * @param {{ newSession: () => Promise<void> }} chat
 */
export function mountTopBar({ state, actions }, page, chat) {
  const { store } = page;

  /** @param {string} id */
  const run = (id) => () =>
    page.commands
      .listed()
      .find((command) => command.id === id)
      ?.run();

  function draw() {
    const { link, session, loaded, nextDue } = store.state;
    const isAsleep = link.state === 'ready' && link.detail && !link.offer;
    const [kind, words] = isAsleep ? ['ok', 'Asleep'] : (WORDS[link.state] ?? WORDS.connecting);
    const turns = session.turns ? `Session of ${plural(session.turns, 'turn')}` : 'Sessions';
    render(
      html`<span class="link-dot" data-kind=${kind} title=${link.detail || words}></span
        ><span class="link-words">${words}</span>${page.isOffline() ? DEMO(page) : nothing}
        ${loaded ? shield(session, page) : nothing}<button type="button" class="link session-words" title="All sessions"
          ?hidden=${!loaded} @click=${run('sessions')}>${turns}</button>${
            nextDue === null
              ? nothing
              : html`<button
                type="button"
                class="link next-due"
                title="What is to be done"
                @click=${() => void page.openActions()}
              >
                ${nextDue.at * 1000 < Date.now() ? 'Due now' : `Next: ${moment(nextDue.at)}`}
              </button>`
          }`,
      state,
    );
  }

  render(
    html` <button class="button small" type="button" @click=${() => void chat.newSession()}>
        ${icon('session', true)}<span class="wide-only">New session</span
        ><span class="narrow-only visually-hidden">New session</span>
      </button>
      <button
        class="button small palette-button"
        type="button"
        aria-label="Search and commands"
        @click=${() => page.openPalette()}
      >
        ${icon('search', true)}<span class="wide-only keys"
          >${caps('Mod+k').map((cap) => html`<kbd>${cap}</kbd>`)}</span
        >
      </button>
      ${iconButton('settings', 'Settings', run('settings'))}`,
    actions,
  );
  store.subscribe(['link', 'session', 'loaded', 'nextDue'], draw);
  draw();
  // The next due time is shown relative to today, so redraw it.
  setInterval(() => store.state.nextDue !== null && draw(), TICK_MS);

  page.commands.add({
    id: 'passkeys',
    title: 'Passkeys: log in without a link',
    group: 'Everywhere',
    run: () => location.assign('/passkeys'),
  });
  page.commands.add({
    id: 'sign-out',
    title: 'Sign out of this browser',
    group: 'Everywhere',
    run: async () => {
      const sure = await page.confirm({
        title: 'Sign out?',
        body: 'Drafts kept in this browser are deleted. Your agent and its memory stay.',
        confirm: 'Sign out',
      });
      if (!sure) return;
      // The bridge drops this browser's subscription with its login; this removes the browser's own part.
      await import('./notifications.js').then(({ turnOff }) => turnOff()).catch(() => null);
      await fetch('/logout', { method: 'POST' }).catch(() => null);
      sessionStorage.clear();
      for (const key of Object.keys(localStorage))
        if (key.startsWith('sprite.') && key !== 'sprite.theme') localStorage.removeItem(key);
      location.reload();
    },
  });
}
