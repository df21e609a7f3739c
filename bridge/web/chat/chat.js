// The chat region: the thread, the status lines, and the composer.

import { icon } from '../icons.js';
import { wordsOf } from '../problem.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { Composer } from './composer.js';
import { StatusLines } from './run_state.js';
import { Thread } from './thread.js';

/** @import { Command, Page, Span } from '../types/page.js' */

/** @param {HTMLElement} root @param {Page} page */
export function mountChat(root, page) {
  const { store, outbox, commands } = page;
  const thread = new Thread(page);
  const composer = new Composer(page, {
    onSent: () => thread.follow(),
    onEditQueued: editQueued,
    commands: new Map(
      /** @type {const} */ ([
        ['/new', newSession],
        ['/stop', () => lines.interrupt()],
        ['/search', (/** @type {string} */ query) => page.searchMemory(query)],
        ['/flush', async () => (await page.loadMemory()).flush()],
      ]),
    ),
  });
  const lines = new StatusLines(page, () => thread.showQuestion(), composer.element);
  let isSignedOut = false;

  function draw() {
    render(
      html`<h2 class="visually-hidden">Chat</h2>${thread.element}${lines.element}${isSignedOut ? SIGNED_OUT : nothing}`,
      root,
    );
  }

  function followLink() {
    if (isSignedOut === (store.state.link.state === 'signed-out')) return;
    isSignedOut = !isSignedOut;
    draw();
    if (!isSignedOut) return;
    // On a narrow screen another panel may be in its place.
    page.openPanel('chat');
    /** @type {HTMLElement | null} */
    const again = root.querySelector('.signed-out button');
    again?.focus();
  }

  function editQueued() {
    const { missionId, text, pasted } = store.conversation.lastQueued ?? {};
    if (!missionId || !text) return false;
    outbox
      .takeBack(missionId)
      .then(() => chat.draft(text, pasted))
      .catch((problem) => page.toast({ kind: 'error', text: wordsOf(problem) }));
    return true;
  }

  async function newSession() {
    const before = store.state.session.session_id;
    if (before === null) return composer.focus();
    const stop = page.toast({ kind: 'busy', text: 'Looking through the conversation for what to remember…' });
    try {
      await page.connection.ask('system', { action: 'new_session' }, { timeout: 10 * 60_000 });
      const undo = { label: 'Undo', run: () => resume(before) };
      page.toast({ text: 'New session: Sprite starts again, with its memory.', action: undo });
      thread.follow();
      composer.focus();
    } catch (problem) {
      page.toast({ kind: 'error', text: wordsOf(problem) });
    } finally {
      stop();
    }
  }

  /** @param {string} id */
  async function resume(id) {
    try {
      await page.connection.ask('system', { action: 'resume_session', session_id: id }, { timeout: 10 * 60_000 });
      page.announce('The earlier session continues.');
      composer.focus();
    } catch (problem) {
      page.toast({ kind: 'error', text: wordsOf(problem) });
    }
  }

  let dragDepth = 0;
  /** @param {DragEvent} event */
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');
  /** @param {boolean} on */
  const highlight = (on) => {
    dragDepth = on ? dragDepth + 1 : Math.max(0, dragDepth - 1);
    root.classList.toggle('dropping', dragDepth > 0);
  };
  root.addEventListener('dragenter', (event) => hasFiles(event) && highlight(true));
  root.addEventListener('dragleave', (event) => hasFiles(event) && highlight(false));
  // Without this, a file dropped beside the chat would replace the page.
  for (const name of /** @type {const} */ (['dragover', 'drop'])) {
    addEventListener(name, (event) => hasFiles(event) && event.preventDefault());
  }
  root.addEventListener('drop', (event) => {
    dragDepth = 0;
    root.classList.remove('dropping');
    void composer.addFiles([...(event.dataTransfer?.files ?? [])]);
  });

  draw();
  store.subscribe(['chat', 'loaded', 'outbox', 'link', 'session'], () => thread.draw());
  store.subscribe(['link', 'loaded', 'chat', 'session', 'permissions', 'status'], () => lines.draw());
  store.subscribe('link', followLink);
  lines.draw();

  const isHere = () => document.activeElement === document.body || root.contains(document.activeElement);
  /** @param {string} id @param {string} title @param {() => unknown} run @param {Partial<Command>} [more] */
  const command = (id, title, run, more = {}) => commands.add({ id, title, group: 'Chat', run, ...more });
  const write = () => {
    page.openPanel('chat');
    composer.focus();
  };
  command('write', 'Write a message', write, { keys: 'c' });
  command('stop', 'Stop the agent', () => lines.interrupt(), { keys: 'Escape', when: () => lines.isRunning });
  command('new-session', 'New session', newSession, { keys: 'g n' });
  command('attach', 'Attach files', () => composer.picker.click(), { keys: 'g f' });
  command('reach', 'What the agent may reach', async () => (await import('./reach.js')).showReach(page));
  command('latest', 'Jump to the latest message', () => thread.jumpToEnd(), { keys: 'End', when: isHere });

  const chat = {
    shown: () => thread.draw(),
    hidden() {},
    focus: () => composer.focus(),
    /** @param {string} text @param {Span[]} [pasted] */
    draft: (text, pasted) => composer.draft(text, pasted),
    newSession,
    resume,
    openQuestion() {
      if (store.state.permissions.length) thread.showQuestion();
      else page.toast({ text: 'That question is not open any more.' });
    },
    /** @param {string} missionId */
    async openMission(missionId) {
      if (await thread.show(missionId)) return true;
      page.toast({ text: 'That message is not in this conversation.' });
      return false;
    },
  };
  return chat;
}

const SIGNED_OUT = html`<div class="signed-out" role="alertdialog" aria-label="Signed out">
  <div class="empty card-surface">
    ${icon('alert')}
    <h2>You are signed out</h2>
    <p>
      This login has ended or was revoked. Nothing is lost: your agent continues, and what you typed is kept here. Open
      a new login link to come back.
    </p>
    <button type="button" class="button primary" @click=${() => location.reload()}>Sign in again</button>
  </div>
</div>`;
