// The page's composition root: create the parts, connect them, and start the connection.

import { mountCanvas } from './canvas/canvas.js';
import { mountChat } from './chat/chat.js';
import { ENDED } from './chat/conversation.js';
import { createConnection } from './connection.js';
import { createOutbox } from './outbox.js';
import { wordsOf } from './problem.js';
import { createCommands } from './shell/commands.js';
import { createInstall } from './shell/install.js';
import { createLayout } from './shell/layout.js';
import { createPalette } from './shell/palette.js';
import { startServiceWorker } from './shell/service_worker.js';
import { applyTheme, cycleTheme } from './shell/theme.js';
import { createToasts } from './shell/toasts.js';
import { mountTopBar } from './shell/top_bar.js';
import { createStore } from './store.js';
import { loadStyle } from './style.js';
import { createZone } from './zone.js';

/** @import { Announce, Page, PanelName, RuleRow } from './types/page.js' */
/** @import { mountMemory } from './memory/memory.js' */

const STATUS_AFTER_MS = 400;
const FORGOTTEN_AFTER_MS = 5000;
const ANSWERED = {
  confirm: 'Confirmed. It now counts as your own statement.',
  retire: 'This is no longer true. The next session does not use it.',
  edit: 'Changed, also in the memory files.',
};
/** @param {string} id @returns {HTMLElement} */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {PanelName} name */
const tabsOf = (name) => /** @type {HTMLElement[]} */ ([...document.querySelectorAll(`[data-panel=${name}]`)]);

applyTheme();
const store = createStore();
const connection = createConnection(store);
const zone = createZone(store, connection);
const outbox = createOutbox(store, connection, () => zone.spoke());
const commands = createCommands();
const palette = createPalette(commands);
const install = createInstall();
const announce = createAnnounce(byId('announce'));
const toast = createToasts(byId('toasts'), announce);
const panels = { chat: byId('chat'), canvas: byId('canvas'), todo: byId('todo'), memory: byId('memory') };
const layout = createLayout({
  root: byId('split'),
  panels,
  tabs: { chat: tabsOf('chat'), canvas: tabsOf('canvas'), todo: tabsOf('todo'), memory: tabsOf('memory') },
  divider: byId('divider'),
  announce,
});

/** @type {string | null} */
let stackId = null;
/** @type {Promise<ReturnType<typeof mountMemory>> | null} */
let memory = null;
/** @type {Page} */
const page = {
  store,
  connection,
  outbox,
  commands,
  announce,
  toast,
  install,
  // Loaded on first use, because it is not on the screen at first.
  confirm: async (question) => (await import('./shell/dialogs.js')).confirm(question),
  prompt: async (question) => (await import('./shell/dialogs.js')).prompt(question),
  dialog: async (question) => (await import('./shell/dialogs.js')).dialog(question),
  // Available from the start: text typed right after Ctrl-K must not land in the message.
  openPalette: () => palette.open(),
  /** Whether the built-in offline model answers; its cost figures are meaningless. */
  isOffline: () => document.documentElement.dataset.model === 'offline',
  stackId: () => stackId,
  setStack: (id) => {
    stackId = id;
  },
  openPanel: (name) => layout.open(name, { focus: true }),
  unread: (name) => layout.unread(name),
  draft: (text, pasted) => {
    layout.open('chat');
    chat.draft(text, pasted);
  },
  openTurn: async (id) => {
    layout.open('memory');
    (await loadMemory()).openTurn(id);
  },
  openFile: async (name) => {
    layout.open('memory');
    (await loadMemory()).openFile(name);
  },
  answerLearning: async ({ id, content: former }, action) => {
    const content =
      action === 'edit'
        ? await page.prompt({
            title: 'Edit',
            label: 'What Sprite should remember instead',
            value: former,
            maxlength: 500,
          })
        : '';
    if (content === null || content === former) return;
    try {
      await connection.ask('memory', { op: 'learning', id, action, ...(content && { content }) });
      toast({ kind: 'success', text: ANSWERED[action] });
    } catch (problem) {
      toast({ kind: 'error', text: `Your answer could not be saved: ${wordsOf(problem)}` });
    }
  },
  openLearning: async (id) => {
    layout.open('memory');
    (await loadMemory()).openLearning(id);
  },
  searchMemory: async (query = '') => {
    layout.open('memory');
    (await loadMemory()).search(query);
  },
  openActions: () => layout.open('todo', { focus: true }),
  openCard: (id) => {
    layout.open('canvas');
    canvas.openCard(id);
  },
  openMission: (id) => {
    layout.open('chat');
    return chat.openMission(id);
  },
  openQuestion: () => {
    layout.open('chat');
    chat.openQuestion();
  },
  loadMemory: () => loadMemory(),
  openNotifications: async () => (await import('./shell/notifications_dialog.js')).showNotifications(page),
};

const chat = mountChat(panels.chat, page);
const canvas = mountCanvas(panels.canvas, page);
layout.attach('chat', chat);
layout.attach('canvas', canvas);
layout.attach('memory', {
  shown: () => void loadMemory().then((module) => layout.isShown('memory') && module.shown()),
  hidden: () => memory?.then((module) => module.hidden()),
});
layout.attach('todo', {
  shown: () => void loadMemory().then((module) => layout.isShown('todo') && module.actions.show()),
  hidden: () => memory?.then((module) => module.actions.hide()),
});
mountTopBar({ state: byId('top-state'), actions: byId('top-actions') }, page, chat);

/** Load memory on first use; it is not part of the first load. */
function loadMemory() {
  memory ??= Promise.all([import('./memory/memory.js'), loadStyle('memory.css')])
    .then(([{ mountMemory }]) => mountMemory(panels.memory, panels.todo, page))
    .catch((error) => {
      memory = null;
      toast({
        kind: 'error',
        text: 'The memory view could not be loaded. Is the bridge running?',
        action: { label: 'Try again', run: () => void loadMemory() },
      });
      throw error;
    });
  return memory;
}

store.listen('state_sync', async () => {
  try {
    const { learnings } = await connection.ask('memory', { op: 'learnings', newest: true, limit: 100 });
    const { curations } = await connection.ask('memory', { op: 'curations', limit: 100 });
    store.conversation.taughtBefore(learnings, curations);
    store.touch('chat');
    const { rules } = await connection.ask('memory', { op: 'rules' });
    rules.filter(({ id }) => !offers.has(id)).forEach(offer);
  } catch {
    // The connection is lost: another state follows.
  }
});

// Errors without a question; the others are shown where the question was asked.
store.listen('error', ({ code, message }, { reply_to: replyTo }) => {
  // The run state says why the model does not answer.
  if (!replyTo && code !== 'model_away') toast({ kind: code === 'budget' ? 'info' : 'error', text: message });
});

// A click on a file name anywhere on the page opens its preview.
addEventListener('sprite:preview', async (event) => {
  const path = String(/** @type {CustomEvent} */ (event).detail);
  (await import('./shell/preview.js')).showPreview(page, { path, size: null });
});

commands.add({
  id: 'palette',
  title: 'Open the command palette',
  group: 'Everywhere',
  keys: 'Mod+k',
  run: () => palette.open(),
});
commands.add({
  id: 'search',
  title: 'Search memory',
  group: 'Everywhere',
  keys: '/',
  run: () => void page.searchMemory(),
});
commands.add({
  id: 'shortcuts',
  title: 'Show keyboard shortcuts',
  group: 'Everywhere',
  keys: '?',
  run: async () => (await import('./shell/shortcuts.js')).showShortcuts(commands),
});
commands.provide('Memory', (query) =>
  query ? [{ title: `Search memory for “${query}”`, hint: 'Memory', run: () => void page.searchMemory(query) }] : [],
);
commands.add({ id: 'next-region', title: 'Next region', group: 'Everywhere', keys: 'F6', run: () => layout.cycle(1) });
commands.add({
  id: 'previous-region',
  title: 'Previous region',
  group: 'Everywhere',
  keys: 'Shift+F6',
  run: () => layout.cycle(-1),
});
commands.add({
  id: 'go-chat',
  title: 'Go to the chat',
  group: 'Go to',
  keys: 'g c',
  run: () => page.openPanel('chat'),
});
commands.add({
  id: 'go-canvas',
  title: 'Go to the canvas',
  group: 'Go to',
  keys: 'g v',
  run: () => page.openPanel('canvas'),
});
commands.add({
  id: 'go-todo',
  title: 'Go to to-dos',
  group: 'Go to',
  keys: 'g t',
  run: () => page.openPanel('todo'),
});
commands.add({
  id: 'go-memory',
  title: 'Go to memory',
  group: 'Go to',
  keys: 'g m',
  run: () => page.openPanel('memory'),
});
commands.add({
  id: 'notifications',
  title: 'Notifications',
  group: 'Everywhere',
  run: () => void page.openNotifications(),
});
commands.add({
  id: 'settings',
  title: 'Settings',
  group: 'Everywhere',
  keys: 'g s',
  run: async () => (await import('./shell/settings.js')).showSettings(page),
});
commands.add({
  id: 'sessions',
  title: 'Sessions',
  group: 'Chat',
  keys: 'g l',
  run: async () => (await import('./shell/sessions.js')).showSessions(page, chat.resume),
});
commands.add({
  id: 'rules',
  title: 'Rules about tool calls',
  group: 'Chat',
  run: () => void showRules(),
});
commands.add({
  id: 'install',
  title: 'Install Sprite as an app',
  group: 'Everywhere',
  when: () => install.isOffered(),
  run: () => void install.ask(),
});
commands.add({
  id: 'theme',
  title: 'Change between light, dark and the system’s theme',
  group: 'Everywhere',
  run: () => toast({ text: `Theme: ${cycleTheme()}.` }),
});

// Refresh the figures (session, memory, spend) once, a moment after the last change.
let statusClock = 0;
const refreshStatus = () => refreshStatusAfter(STATUS_AFTER_MS);
/** @param {number} delay milliseconds */
function refreshStatusAfter(delay) {
  clearTimeout(statusClock);
  statusClock = setTimeout(() => connection.ask('system', { action: 'status' }).catch(() => null), delay);
}
store.listen('memory_update', refreshStatus);
store.listen('state_sync', refreshStatus);
store.listen('agent_event', (event) => ENDED.has(event.event) && refreshStatus());
// No event announces that the replica at the bridge has also forgotten.
store.listen('status', ({ memory }) => (memory.unshipped_forgets ?? 0) > 0 && refreshStatusAfter(FORGOTTEN_AFTER_MS));
store.listen('agent_event', (event) => event.event === 'complete' && layout.unread('chat'));
store.listen('canvas_update', () => layout.unread('canvas'));
store.listen('memory_update', () => layout.unread('memory'));

// Rules about tool calls.
const showRules = async () => (await import('./shell/rules.js')).showRules(page);
/** Removes the toast of each rule that was offered. @type {Map<number, () => void>} */
const offers = new Map();
/** @param {RuleRow} rule */
function offer({ id, status, doubt, reason, words }) {
  offers.get(id)?.();
  const ask = status === 'offered' ? 'Make it a rule?' : doubt && `${doubt} Retire this rule?`;
  if (!ask || document.querySelector('[data-rules]')) return;
  const action = { label: 'Look', run: showRules };
  offers.set(id, toast({ text: `${ask} ${reason || words}`, action, stays: true }));
}
store.listen('rule_offered', ({ rule }) => offer(rule));
store.listen('rule_applied', ({ did, rule_id: id, said }) => {
  const letRun = () =>
    connection.ask('rule', { action: 'override', id }).then(
      () => toast({ text: 'The same call may run once. Ask Sprite to try it again.' }),
      (problem) => toast({ kind: 'error', text: wordsOf(problem) }),
    );
  if (did === 'stopped') toast({ text: said, action: { label: 'Let it run once', run: letRun }, stays: true });
});

// A background tab shows in its title that the answer has arrived.
store.listen('agent_event', (event) => {
  if (event.event === 'complete' && document.hidden) document.title = '● Sprite';
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) document.title = 'Sprite';
});

layout.start();
connection.start();
startServiceWorker(page);

/**
 * Announces a text to a screen reader; a repeated text is announced again.
 * @param {HTMLElement} region
 * @returns {Announce}
 */
function createAnnounce(region) {
  let last = '';
  return (text) => {
    last = text === last ? `${text}\u00a0` : text;
    region.textContent = last;
  };
}
