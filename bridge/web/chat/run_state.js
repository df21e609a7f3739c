// The lines above the composer: background work, the reason for a pause, and what is being waited for.

import { clock, when } from '../format.js';
import { icon } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { offerLabel, restore } from './restore.js';
import { capital, doing } from './tools.js';

/** @import { Link, Page, SessionState, State } from '../types/page.js' */

/** @type {Record<Exclude<Link['state'], 'ready'>, string>} */
const LINK = {
  connecting: 'Starting the agent',
  waking: 'Waking your agent’s computer',
  updating: 'Updating your agent; the conversation goes on in a moment',
  unavailable: 'Your agent cannot be reached',
  offline: 'Reconnecting',
  'signed-out': 'Signed out',
};
/** @typedef {'link' | 'ask' | 'busy' | 'idle' | 'bad'} Kind */
/** @typedef {{ kind: Kind, words: string, since?: number | null, retry?: boolean, thoughts?: string,
 *   isBrief?: boolean, isWriting?: boolean, isTrouble?: boolean }} RunState */

/** Labels of work that takes longer than a minute. */
const SLOW = { turn: 'turn running for', queue: 'message waiting for', model_call: 'model silent for' };
const TICK_MS = 1000;
/** A reply without a new piece for so long is waited for. */
const QUIET_SECONDS = 3;
/** Most background tasks that are named, so that the conversation keeps its space. */
const NAMED = 3;
/** A connection that is back within this time is not mentioned, nor an agent that has started. */
const PATIENCE_SECONDS = 0.7;

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
  if (link.state === 'offline') {
    const words = [LINK.offline, link.detail].filter(Boolean).join('. ');
    return { kind: 'link', words, since: link.since, retry: true };
  }
  if (link.state !== 'ready') return { kind: 'link', words: link.detail || LINK[link.state], since: link.since };
  if (!loaded) return { kind: 'link', words: 'Opening the conversation', since: link.since };
  const exchanges = chat.filter((entry) => entry.kind === 'exchange');
  const running = exchanges.findLast((entry) => entry.status === 'running');
  if (permissions.length) return { kind: 'ask', words: 'Waiting for your answer' };
  if (!running && session.running_mission_id) return { kind: 'busy', words: 'Working' };
  const sent = running ? undefined : exchanges.find(({ status }) => status === 'sent' || status === 'queued');
  if (sent && !session.paused) return { kind: 'busy', words: LINK.connecting, since: sent.at * 1000, isBrief: true };
  // A pending decision is not an idle state.
  if (!running) return { kind: link.offer ? 'bad' : 'idle', words: link.detail };
  if (stopping) return { kind: 'busy', words: 'Stopping' };
  if (running.trouble) return { kind: 'busy', ...running.trouble, isTrouble: true };
  const tool = running.parts.filter((part) => part.kind === 'tool').findLast((part) => !part.endedAt);
  if (tool) return { kind: 'busy', words: capital(doing(tool.name)), since: tool.startedAt };
  const { compacting: since } = running;
  if (since) return { kind: 'busy', words: 'Summing up the older part of the conversation', since };
  const last = running.parts.at(-1);
  if (running.thoughts)
    return { kind: 'busy', words: 'Thinking', since: running.thoughts.since, thoughts: running.thoughts.text };
  if (last?.kind === 'text' && !last.done) return { kind: 'busy', words: 'Writing', since: last.at, isWriting: true };
  return { kind: 'busy', words: 'Thinking', since: (last?.kind === 'tool' && last.endedAt) || running.startedAt };
}

export class StatusLines {
  /**
   * The mission whose stop was requested.
   * @type {string | null}
   */
  #stopping = null;
  /** Whether a request of a button waits for its answer. */
  #isAsking = false;
  #isPaused = false;
  #timer = 0;
  #announced = '';
  element = elementOf(html`<div class="chat-foot"></div>`);

  /**
   * `showQuestion` scrolls the waiting question into view; `composer` stands below the lines.
   * @param {Page} page
   * @param {() => void} showQuestion
   * @param {HTMLElement} composer
   */
  constructor(page, showQuestion, composer) {
    this.page = page;
    this.showQuestion = showQuestion;
    this.composer = composer;
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
    const { background = [], paused = null, slow = [] } = state.session;
    const working = background.length ? this.#background(background) : nothing;
    const waiting = paused ? this.#paused(paused) : nothing;
    render(html`${working}${waiting}${this.#state(now, slow)}${this.composer}`, this.element);
    if (paused && !this.#isPaused) this.page.announce(`Paused. ${paused.why}`);
    this.#isPaused = paused !== null;
    this.#announce(now);
    clearTimeout(this.#timer);
    const since = now.since ?? (slow.length || background.length ? 0 : null);
    if (since !== null) this.#timer = setTimeout(() => this.draw(), TICK_MS - ((Date.now() - since) % TICK_MS) + 5);
  }

  /**
   * Draws what is being waited for, with the buttons that fit.
   * @param {RunState} now
   * @param {NonNullable<SessionState['slow']>} slow
   */
  #state(now, slow) {
    const { link, model } = this.page.store.state;
    const waited = now.since ? (Date.now() - now.since) / 1000 : 0;
    const isFlash = (link.state === 'offline' || now.isBrief) && waited < PATIENCE_SECONDS;
    const words = now.isWriting && waited >= QUIET_SECONDS ? 'Waiting for the rest of the reply' : now.words;
    const offer = offerLabel(link);
    const mayRetry = now.retry && (now.kind !== 'link' || waited >= 3);
    const mayStop = link.state === 'ready' && this.isRunning;
    const modelWords = this.page.isOffline() ? '' : model;
    const waiting = slow.map((work) => `${SLOW[work.kind]} ${clock(Date.now() / 1000 - work.since)}`).join(' · ');
    const kind = isFlash ? 'idle' : now.kind;
    const isTimed = waited >= 1 && (now.kind === 'busy' || now.kind === 'link');
    // The question of a background agent belongs to an earlier turn, maybe far above: "Show it" leads there.
    return html`<div class="run-state" role="group" aria-label="State of the agent" data-kind=${kind}>
      <span class="run-dot" aria-hidden="true"></span>
      ${
        now.thoughts
          ? html`<details class="run-words run-thoughts">
              <summary>${now.words}</summary>
              <div class="scroll" tabindex="0" role="region" aria-label="Thoughts">${now.thoughts}</div>
            </details>`
          : html`<span class="run-words">${isFlash ? '' : words}</span>`
      }
      ${button('Show it', this.showQuestion, { hidden: now.kind !== 'ask' })}
      <span class="run-clock tabular">${isTimed ? clock(waited) : ''}</span>
      <span class="run-slow muted tabular">${waiting}</span>
      <span class="grow"></span>
      <span class="run-model muted">${now.kind === 'idle' ? modelWords : ''}</span>
      ${button(offer, () => this.#ask(() => restore(this.page)), {
        look: 'primary',
        hidden: offer === null,
        disabled: this.#isAsking,
      })}
      ${button('Try now', () => this.page.connection.retry(), { hidden: !mayRetry })}
      ${button(html`${icon('stop', true)}Stop`, () => this.interrupt(), {
        hidden: !mayStop,
        disabled: this.#stopping !== null,
      })}
    </div>`;
  }

  /**
   * Draws the agent's background work: each task with its clock, the end of its lease, and Stop.
   * @param {NonNullable<SessionState['background']>} work
   */
  #background(work) {
    const { conversation, state } = this.page.store;
    const now = Date.now() / 1000;
    const until = state.session.held_until ?? null;
    // While a person's mission runs, Stop would end that mission, which has its own Stop button.
    const { running } = conversation;
    const isPersons = running ? running.origin !== 'agent' : state.session.running_mission_id !== null;
    // A background turn of the agent ends with it.
    const [words, label] = running
      ? ['Stop all', 'Stop everything, also in the background']
      : ['Stop', 'Stop the background work'];
    const awake = until === null ? '' : `, awake until ${when(until)}`;
    return html`<div class="background" role="group" aria-label="In the background">
      ${icon('clock', true)}
      <div class="background-words">
        <p class="small-text tabular">In the background${awake}</p>
        <ul class="plain">
          ${work
            .slice(0, NAMED)
            .map(
              ({ title, since }) =>
                html`<li><span class="cut">${title}</span> <span class="tabular">${clock(now - since)}</span></li>`,
            )}
          ${work.length > NAMED ? html`<li>and ${work.length - NAMED} more</li>` : nothing}
        </ul>
      </div>
      ${button(html`${icon('stop', true)}<span>${words}</span>`, () => this.#ask(() => this.#stopBackground(work)), {
        label,
        hidden: isPersons || state.link.state !== 'ready',
        disabled: this.#isAsking,
      })}
    </div>`;
  }

  /**
   * Draws the reason why the agent waits for the person, with a button to continue.
   * @param {NonNullable<SessionState['paused']>} paused
   */
  #paused({ by, why }) {
    const isBudget = by === 'budget';
    const goOn = () => this.page.connection.ask('system', { action: 'go_on', raise_limit: isBudget });
    return html`<div class="background paused" role="group" aria-label="Paused">
      ${icon('alert', true)}
      <p class="background-words">${why}</p>
      ${button(isBudget ? 'Raise today’s limit and go on' : 'Go on', () => this.#ask(goOn), {
        disabled: this.#isAsking || this.page.store.state.link.state !== 'ready',
      })}
    </div>`;
  }

  /**
   * Runs the request of a button; the buttons are disabled meanwhile.
   * @param {() => Promise<unknown>} run
   */
  async #ask(run) {
    this.#isAsking = true;
    this.draw();
    try {
      await run();
    } catch (problem) {
      this.page.toast({ kind: 'error', text: wordsOf(problem) });
    } finally {
      this.#isAsking = false;
      this.draw();
    }
  }

  /** @param {NonNullable<SessionState['background']>} work */
  async #stopBackground(work) {
    const titles = new Map(work.map(({ id, title }) => [id, title]));
    try {
      const { stopped } = await this.page.connection.ask('interrupt', {});
      const words = (stopped ?? []).map(({ id, kind }) => titles.get(id) ?? `the ${kind}`);
      if (words.length) this.page.toast({ text: `Stopped: ${words.join(', ')}` });
    } catch (problem) {
      this.#notStopped(problem);
    }
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
      this.#notStopped(problem);
      this.draw();
    }
  }

  /** @param {unknown} problem */
  #notStopped(problem) {
    if (codeOf(problem) !== 'not_running')
      this.page.toast({ kind: 'error', text: `The agent could not be stopped: ${wordsOf(problem)}` });
  }

  /**
   * Announces beginnings and ends to screen readers, not every change in between.
   * @param {RunState} now
   */
  #announce(now) {
    const kind = now.kind === 'busy' && !now.isTrouble ? 'busy' : `${now.kind} ${now.words}`;
    if (kind === this.#announced) return;
    const before = this.#announced;
    this.#announced = kind;
    if (now.kind === 'busy') this.page.announce(now.isTrouble ? now.words : 'Sprite is working.');
    else if (now.kind === 'idle' && before.startsWith('busy')) this.page.announce('Sprite has finished.');
    else if (now.kind === 'ask') this.page.announce('Sprite asks for your permission.');
    else if (now.kind === 'bad') this.page.announce(now.words);
  }
}
