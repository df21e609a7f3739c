// The status line: what the agent, the link or the person is being waited for, with a Stop button.

import { h } from '../dom.js';
import { clock } from '../format.js';
import { iconElement } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';
import { restoreButton, showOffer } from './restore.js';
import { doing } from './tools.js';

/** @import { Link, Page, State } from '../types/page.js' */

/** @type {Record<Exclude<Link['state'], 'ready'>, string>} */
const LINK = {
  connecting: 'Connecting to your agent',
  waking: 'Waking your agent’s computer',
  updating: 'Updating your agent; the conversation goes on in a moment',
  unavailable: 'Your agent cannot be reached',
  offline: 'Reconnecting',
  'signed-out': 'Signed out',
};
/** @typedef {'link' | 'ask' | 'busy' | 'idle' | 'bad'} Kind */
/** @typedef {{ kind: Kind, words: string, since?: number | null, retry?: boolean }} RunState */

/** Shown while the offline model answers. */
const OFFLINE = 'Offline model: a stand-in answers, by rules';
/** Labels of work that takes longer than a minute. */
const SLOW = { turn: 'turn running for', queue: 'message waiting for', model_call: 'model silent for' };
const TICK_MS = 1000;
/** A connection that is back within this time is not mentioned. */
const PATIENCE_MS = 700;

/**
 * Returns the current state `{kind, words, since}`, from the store alone; kinds: link, ask, busy, idle, bad.
 * @param {State} state
 * @param {string | null} stopping
 * @returns {RunState}
 */
export function runState({ link, loaded, chat, permissions, session }, stopping) {
  if (link.state === 'unavailable')
    // A lost machine needs a restore; a retry alone does not help.
    return { kind: 'bad', words: link.detail || LINK.unavailable, retry: link.offer !== 'restore' };
  if (link.state === 'signed-out') return { kind: 'bad', words: 'Signed out' };
  if (link.state === 'offline')
    return {
      kind: 'link',
      words: [LINK.offline, link.detail].filter(Boolean).join('. '),
      since: link.since,
      retry: true,
    };
  if (link.state !== 'ready') return { kind: 'link', words: link.detail || LINK[link.state], since: link.since };
  if (!loaded) return { kind: 'link', words: 'Opening the conversation', since: link.since };
  const running = chat.filter((entry) => entry.kind === 'exchange').findLast((entry) => entry.status === 'running');
  if (permissions.length) return { kind: 'ask', words: 'Waiting for your answer' };
  if (!running && session.running_mission_id) return { kind: 'busy', words: 'Working' };
  // A pending decision is not an idle state.
  if (!running) return { kind: link.offer ? 'bad' : 'idle', words: link.detail };
  if (stopping) return { kind: 'busy', words: 'Stopping' };
  const tool = running.parts.filter((part) => part.kind === 'tool').findLast((part) => !part.endedAt);
  if (tool) return { kind: 'busy', words: capital(doing(tool.name)), since: tool.startedAt };
  if (running.compacting) return { kind: 'busy', words: 'Summing up the older part of the conversation' };
  const last = running.parts.at(-1);
  if (last?.kind === 'text' && !last.done) return { kind: 'busy', words: 'Writing' };
  return { kind: 'busy', words: 'Thinking', since: (last?.kind === 'tool' && last.endedAt) || running.startedAt };
}

export class RunStateLine {
  /** @type {string | null} */
  #stopping = null;
  #timer = 0;
  #shown = '';

  /**
   * `showQuestion` scrolls the waiting question into view.
   * @param {Page} page
   * @param {() => void} showQuestion
   */
  constructor(page, showQuestion) {
    this.page = page;
    this.dot = h('span', { class: 'run-dot', 'aria-hidden': 'true' });
    this.words = h('span', { class: 'run-words' });
    this.clock = h('span', { class: 'run-clock tabular' });
    this.slow = h('span', { class: 'run-slow muted tabular' });
    this.retry = h(
      'button',
      { class: 'button small', type: 'button', hidden: true, onclick: () => page.connection.retry() },
      'Try now',
    );
    this.restore = restoreButton(page);
    // The question of a background agent belongs to an earlier turn, maybe far above.
    this.show = h('button', { class: 'button small', type: 'button', hidden: true, onclick: showQuestion }, 'Show it');
    this.stop = h(
      'button',
      { class: 'button small', type: 'button', hidden: true, onclick: () => void this.interrupt() },
      iconElement('stop', true),
      'Stop',
    );
    this.model = h('span', { class: 'run-model muted' });
    this.element = h(
      'div',
      { class: 'run-state', role: 'group', 'aria-label': 'State of the agent' },
      this.dot,
      this.words,
      this.show,
      this.clock,
      this.slow,
      h('span', { class: 'grow' }),
      this.model,
      this.restore,
      this.retry,
      this.stop,
    );
  }

  /** The turn in progress: seen on this page, or reported by the sprite. */
  get #turn() {
    const { conversation, state } = this.page.store;
    return conversation.running?.missionId ?? state.session.running_mission_id;
  }

  get isRunning() {
    return this.#turn !== null;
  }

  draw() {
    const { state } = this.page.store;
    if (this.#stopping && this.#stopping !== this.#turn) this.#stopping = null;
    const now = runState(state, this.#stopping);
    const waited = now.since ? (Date.now() - now.since) / 1000 : 0;
    const isFlash = state.link.state === 'offline' && Date.now() - state.link.since < PATIENCE_MS;
    this.element.dataset.kind = isFlash ? 'idle' : now.kind;
    this.words.textContent = isFlash ? '' : now.words;
    this.clock.textContent = waited >= 1 && now.kind === 'busy' ? clock(waited) : '';
    const slow = state.session.slow ?? [];
    this.slow.textContent = slow
      .map((work) => `${SLOW[work.kind]} ${clock(Date.now() / 1000 - work.since)}`)
      .join(' · ');
    this.retry.hidden = !now.retry || (now.kind === 'link' && waited < 3);
    showOffer(this.restore, state.link);
    this.show.hidden = now.kind !== 'ask';
    this.stop.hidden = !(state.link.state === 'ready' && this.isRunning);
    this.stop.disabled = this.#stopping !== null;
    this.model.textContent = now.kind !== 'idle' ? '' : this.page.isOffline() ? OFFLINE : (state.model ?? '');
    this.#say(now);
    clearTimeout(this.#timer);
    const since = now.since ?? (slow.length ? 0 : null);
    if (since !== null) this.#timer = setTimeout(() => this.draw(), TICK_MS - ((Date.now() - since) % TICK_MS) + 5);
  }

  async interrupt() {
    const id = this.#turn;
    if (!id || this.#stopping) return;
    this.#stopping = id;
    this.draw();
    try {
      await this.page.connection.ask('interrupt', { mission_id: id });
    } catch (problem) {
      this.#stopping = null;
      if (codeOf(problem) !== 'not_running')
        this.page.toast({ kind: 'error', text: `It could not be stopped: ${wordsOf(problem)}` });
      this.draw();
    }
  }

  /**
   * Announces beginnings and ends to screen readers, not every change in between.
   * @param {RunState} now
   */
  #say(now) {
    const kind = now.kind === 'busy' ? 'busy' : `${now.kind} ${now.words}`;
    if (kind === this.#shown) return;
    const before = this.#shown;
    this.#shown = kind;
    if (now.kind === 'busy') this.page.announce('Sprite is working.');
    else if (now.kind === 'idle' && before === 'busy') this.page.announce('Sprite has finished.');
    else if (now.kind === 'ask') this.page.announce('Sprite asks for your permission.');
    else if (now.kind === 'bad') this.page.announce(now.words);
  }
}

/** @param {string} words */
const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);
