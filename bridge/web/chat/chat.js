// The chat region: the thread, the status line, and the composer.
//
// All elements are made with h(): a reply grows hundreds of times a minute, and only its last block is redrawn.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';
import { wordsOf } from '../problem.js';
import { BackgroundLine } from './background.js';
import { Composer } from './composer.js';
import { PausedLine } from './paused.js';
import { showPermissions } from './permissions.js';
import { RunStateLine } from './run_state.js';
import { Thread } from './thread.js';
import { Unsent } from './unsent.js';

/** @import { Page } from '../types/page.js' */

const STARTERS = [
  { title: 'Draw a card', text: 'Make a table of apples 3, pears 5 and plums 12.' },
  { title: 'Tell it something to remember', text: 'My name is Ada, and I prefer tea to coffee.' },
  { title: 'See what it remembers', text: 'What do you remember about me?' },
];

/**
 * @param {HTMLElement} root
 * @param {Page} page
 */
export function mountChat(root, page) {
  const { store, outbox, commands } = page;
  const unsent = new Unsent(page);
  const empty = welcome();
  const thread = new Thread(page, { empty, unsent: unsent.element });
  const line = new RunStateLine(page, () => thread.showQuestion());
  const background = new BackgroundLine(page);
  const paused = new PausedLine(page);
  const composer = new Composer(page, { onSent: () => thread.follow(), onEditQueued: editQueued });
  root.append(
    h('h2', { class: 'visually-hidden' }, 'Chat'),
    thread.element,
    h('div', { class: 'chat-foot' }, background.element, paused.element, line.element, composer.element),
    signedOut(),
  );

  function welcome() {
    const examples = STARTERS.map(({ title, text }) =>
      h(
        'button',
        { class: 'starter', type: 'button', onclick: () => chat.draft(text) },
        h('strong', null, title),
        h('span', null, text),
      ),
    );
    return h(
      'div',
      { class: 'welcome', hidden: true },
      h('h2', null, 'What shall we work on?'),
      h(
        'p',
        { class: 'muted' },
        'Sprite works on its own computer, draws what it finds on the canvas, and remembers what you tell it. ' +
          'Pick a line to start with, or write your own.',
      ),
      h('div', { class: 'starters' }, examples),
    );
  }

  function signedOut() {
    const panel = h(
      'div',
      { class: 'signed-out', hidden: true, role: 'alertdialog', 'aria-label': 'Signed out' },
      h(
        'div',
        { class: 'empty card-surface' },
        iconElement('alert'),
        h('h2', null, 'You are signed out'),
        h(
          'p',
          null,
          'This login has ended or was revoked. Nothing is lost: your agent goes on, and what you typed is kept ' +
            'here. Open a new login link to come back.',
        ),
        h('button', { class: 'button primary', type: 'button', onclick: () => location.reload() }, 'Sign in again'),
      ),
    );
    store.subscribe('link', () => {
      const isOut = store.state.link.state === 'signed-out';
      if (isOut !== panel.hidden) return;
      panel.hidden = !isOut;
      if (!isOut) return;
      // On a narrow screen another panel may be in its place.
      page.openPanel('chat');
      panel.querySelector('button')?.focus();
    });
    return panel;
  }

  function editQueued() {
    const { missionId, text } = store.conversation.lastQueued ?? {};
    if (!missionId || !text) return false;
    outbox
      .takeBack(missionId)
      .then(() => chat.draft(text))
      .catch((problem) => page.toast({ kind: 'error', text: wordsOf(problem) }));
    return true;
  }

  async function newSession() {
    const sure = await page.confirm({
      title: 'Start a new session?',
      body:
        'Sprite starts afresh with what it remembers: it looks through this conversation first, or takes a ' +
        'short one along as it is. What was said stays here to read.',
      confirm: 'New session',
    });
    if (!sure) return;
    const stop = page.toast({ text: 'Looking through the conversation for what to remember…' });
    try {
      await page.connection.ask('system', { action: 'new_session' }, { timeout: 10 * 60_000 });
      store.conversation.notice({ notice: 'session', text: 'New session' });
      store.touch('chat');
      page.announce('A new session has begun.');
      thread.follow();
      composer.focus();
    } catch (problem) {
      page.toast({ kind: 'error', text: wordsOf(problem) });
    } finally {
      stop();
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

  store.subscribe(['chat', 'loaded'], () => {
    empty.hidden = !store.state.loaded || store.state.chat.length > 0 || outbox.items.length > 0;
    thread.draw();
  });
  store.subscribe(['outbox', 'link', 'chat'], () => {
    unsent.draw();
    if (outbox.items.length) empty.hidden = true;
  });
  store.subscribe(['link', 'loaded', 'chat', 'session', 'permissions', 'status'], () => line.draw());
  store.subscribe(['link', 'chat', 'session'], () => background.draw());
  store.subscribe(['link', 'session'], () => paused.draw());
  line.draw();

  const isHere = () => document.activeElement === document.body || root.contains(document.activeElement);
  commands.add({
    id: 'write',
    title: 'Write a message',
    group: 'Chat',
    keys: 'c',
    run: () => {
      page.openPanel('chat');
      composer.focus();
    },
  });
  commands.add({
    id: 'stop',
    title: 'Stop the agent',
    group: 'Chat',
    keys: 'Escape',
    when: () => line.isRunning,
    run: () => void line.interrupt(),
  });
  commands.add({ id: 'new-session', title: 'New session', group: 'Chat', keys: 'g n', run: () => void newSession() });
  commands.add({ id: 'attach', title: 'Attach files', group: 'Chat', keys: 'g f', run: () => composer.picker.click() });
  commands.add({
    id: 'permissions',
    title: 'What runs without asking',
    group: 'Chat',
    run: () => void showPermissions(page),
  });
  commands.add({
    id: 'latest',
    title: 'Jump to the latest message',
    group: 'Chat',
    keys: 'End',
    when: isHere,
    run: () => thread.jumpToEnd(),
  });

  const chat = {
    shown: () => thread.draw(),
    hidden() {},
    focus: () => composer.focus(),
    /** @param {string} text */
    draft: (text) => composer.draft(text),
    newSession,
    openQuestion() {
      if (store.state.permissions.length) thread.showQuestion();
      else page.toast({ text: 'That question is not open any more.' });
    },
    /** @param {string} missionId */
    async openMission(missionId) {
      if (await thread.show(missionId)) return true;
      page.toast({ text: 'That message is further back than what is loaded here. Its turn is in memory.' });
      return false;
    },
  };
  return chat;
}
