// The scrolling list of exchanges: redraws changes, follows the end only while the person does, and pages backwards.

import { icon } from '../icons.js';
import { wordsOf } from '../problem.js';
import { button, byKey, elementOf } from '../template.js';
import { guard } from '../vendor/lit-html/directives/guard.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { Entry, Exchange, OutboxItem, Page } from '../types/page.js' */
/** @import { exchange } from './exchange.js' */
/** @import { notice } from './notice.js' */

const STARTERS = [
  { title: 'Draw a card', text: 'Make a table of apples 3, pears 5 and plums 12.' },
  { title: 'Tell it something to remember', text: 'My name is Ada, and I prefer tea to coffee.' },
  { title: 'Set a reminder', text: 'Remind me in 10 minutes to stretch.' },
  { title: 'See what it remembers', text: 'What do you remember about me?' },
];
/** Entries in the document at first (a few screens), and the number added each time, small enough not to be felt. */
const FIRST = 30;
const MORE = 16;
/** This near the end counts as at the end. */
const NEAR_PX = 32;
const HISTORY_ROWS = 200;
const FLASH_MS = 1600;

/** @param {string | undefined} words */
const line = (words) => (words ? html`<p class="notice rule" data-notice="session">${words}</p>` : nothing);

/** @typedef {{ exchange: typeof exchange, notice: typeof notice }} Drawers */

export class Thread {
  #shown = FIRST;
  #follows = true;
  #lastTop = 0;
  #loading = false;
  #atStart = false;
  /**
   * The modules that draw entries, loaded late: markdown is most of the page's size, and an empty conversation needs
   * none.
   * @type {Drawers | null}
   */
  #drawers = null;
  /** @type {Promise<void> | null} */
  #loadingDrawers = null;

  /** Stops to follow the end when a person opens a row, because they want to read it. */
  #toggled = {
    capture: true,
    /** @param {Event} event */
    handleEvent: ({ target, isTrusted }) => {
      const opened = target instanceof HTMLDetailsElement && target.open;
      if (opened && isTrusted && this.scroller.contains(document.activeElement)) this.#follows = false;
    },
  };

  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.element = elementOf(html`<div class="thread-frame">
      <div class="thread scroll" tabindex="0" role="region" aria-label="Conversation"
        @scroll=${{ handleEvent: () => this.#scrolled(), passive: true }}>
        <div class="thread-content"></div>
      </div>
      <button type="button" class="button small jump" hidden @click=${() => this.jumpToEnd()}>
        ${icon('down', true)}Jump to latest
      </button>
    </div>`);
    this.scroller = this.#part('.thread');
    this.content = this.#part('.thread-content');
    this.jump = this.#part('.jump');
    this.draw();
    this.earlier = this.#part('.earlier');
    this.list = this.#part('.thread-list');
    // Content that grows by itself (late layout, an opening row) must not push the end out of view.
    const growth = new ResizeObserver(() => this.#follows && this.#toEnd());
    growth.observe(this.content);
    growth.observe(this.scroller);
    new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && this.#earlierFor(true), {
      root: this.scroller,
      rootMargin: '400px 0px 0px',
    }).observe(this.earlier);
  }

  /** @param {string} selector */
  #part(selector) {
    return /** @type {HTMLElement} */ (this.element.querySelector(selector));
  }

  get entries() {
    return this.page.store.state.chat;
  }

  draw() {
    if (!this.#drawers && this.entries.length) void this.#load();
    const { loaded } = this.page.store.state;
    const { items } = this.page.outbox;
    const visible = this.#drawers ? this.entries.slice(-this.#shown) : [];
    const lines = this.page.store.conversation.dividers(this.page.store.state.session.session_id);
    const isComplete = this.entries.length <= this.#shown;
    const isAll = isComplete && (this.#atStart || (this.page.store.conversation.oldestRow ?? 1) <= 1);
    render(
      html`${button('Earlier messages', () => this.#earlierFor(false), {
        look: 'quiet earlier',
        hidden: !loaded || isAll,
      })}${loaded && !this.entries.length && !items.length ? this.#welcome() : nothing}
        <div class="thread-list" @toggle=${this.#toggled}>
          ${repeat(visible, byKey, (entry) =>
            guard([entry, entry.version, lines.get(entry.key)], () => [line(lines.get(entry.key)), this.#entry(entry)]),
          )}
          ${line(lines.get(null))}
        </div>
        <div class="unsent">${items.map((item) => this.#unsent(item))}</div>`,
      this.content,
    );
    if (this.#follows) this.#toEnd();
    else this.jump.hidden = false;
  }

  /** @param {Entry} entry */
  #entry(entry) {
    if (!this.#drawers) return nothing;
    return entry.kind === 'exchange'
      ? this.#drawers.exchange(entry, this.page)
      : this.#drawers.notice(entry, this.page);
  }

  #welcome() {
    const isHere = document.documentElement.dataset.place === 'here';
    return html`<div class="welcome">
      <h2>What shall we work on?</h2>
      <p class="muted">
        Sprite works on ${isHere ? 'this' : 'its own'} computer, draws what it finds on the canvas, and remembers what
        you tell it. Pick a line to start with, or write your own.
      </p>
      <div class="starters">
        ${STARTERS.map(
          ({ title, text }) =>
            html`<button type="button" class="starter" @click=${() => this.page.draft(text)}>
              <strong>${title}</strong><span>${text}</span>
            </button>`,
        )}
      </div>
    </div>`;
  }

  /**
   * Draws a message that was submitted but not accepted yet: being sent, or refused with a reason and possible actions.
   * @param {OutboxItem} item
   */
  #unsent({ id, text, pasted, state, problem }) {
    const { outbox, store } = this.page;
    const edit = () => {
      outbox.remove(id);
      this.page.draft(text, pasted);
    };
    const words = store.state.link.state === 'ready' ? 'Sending' : 'Will be sent when your agent is reachable';
    return html`<article class="exchange unsent-item ${state}" aria-label="Message not sent yet">
      <div class="said">
        <div class="bubble"><div class="bubble-text folded">${text}</div></div>
        <div class="queue-tools row">
          ${
            state === 'failed'
              ? html`<span class="badge bad">${icon('alert', true)}Not sent</span>
                  <span class="small-text muted">${problem}</span>
                  ${button('Send again', () => outbox.retry(id), { look: 'quiet' })}
                  ${button('Edit', edit, { look: 'quiet' })}
                  ${button('Remove', () => outbox.remove(id), { look: 'quiet' })}`
              : html`<span class="chip">${icon('clock', true)}${words}</span>`
          }
        </div>
      </div>
    </article>`;
  }

  #load() {
    this.#loadingDrawers ??= Promise.all([import('./exchange.js'), import('./notice.js')])
      .then(([{ exchange }, { notice }]) => {
        this.#drawers = { exchange, notice };
        this.draw();
      })
      .catch(() => {
        this.#loadingDrawers = null;
        this.page.toast({
          kind: 'error',
          text: 'A part of the page could not be loaded. Is the bridge running?',
          action: { label: 'Try again', run: () => this.draw() },
        });
      });
    return this.#loadingDrawers;
  }

  jumpToEnd() {
    this.#follows = true;
    this.#toEnd();
    this.scroller.focus({ preventScroll: true });
  }

  /** Follows the end again, because the person has just sent a message. */
  follow() {
    this.#follows = true;
    this.#toEnd();
  }

  /**
   * Shows the exchange of a mission, loading older ones as needed; returns false if there is none.
   * @param {string} missionId
   */
  async show(missionId) {
    await this.#load();
    const isShown = () => this.page.store.conversation.find(missionId) !== undefined;
    while (!isShown() && (await this.#fetch()));
    const element = this.#reveal((exchange) => exchange.missionId === missionId);
    element?.focus({ preventScroll: true });
    return element !== null;
  }

  /** Shows the oldest open question and focuses its first answer. */
  showQuestion() {
    const element = this.#reveal(({ parts }) =>
      parts.some((part) => part.kind === 'permission' && part.decision === undefined),
    );
    const question = element?.querySelector('.question:not(.answered)');
    question?.scrollIntoView({ block: 'nearest' });
    question?.querySelector('button')?.focus({ preventScroll: true });
  }

  // --- inside ---

  /**
   * Scrolls the first matching exchange into view; returns null if none is loaded.
   * @param {(exchange: Exchange) => boolean} wanted
   * @returns {HTMLElement | null}
   */
  #reveal(wanted) {
    const index = this.entries.findIndex((entry) => entry.kind === 'exchange' && wanted(entry));
    const entry = this.entries[index];
    if (!entry) return null;
    this.#follows = false;
    this.#shown = Math.max(this.#shown, this.entries.length - index + 5);
    this.draw();
    /** @type {NodeListOf<HTMLElement>} */
    const drawn = this.list.querySelectorAll(':scope > :not(.rule)');
    const element = drawn[index - this.entries.length + drawn.length];
    if (!element) return null;
    element.scrollIntoView({ block: 'start' });
    element.classList.add('flash');
    setTimeout(() => element.classList.remove('flash'), FLASH_MS);
    return element;
  }

  #toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#lastTop = this.scroller.scrollTop;
    this.jump.hidden = true;
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    if (isAtEnd) this.#follows = true;
    else if (scrollTop < this.#lastTop - 1) this.#follows = false;
    this.#lastTop = scrollTop;
    this.jump.hidden = this.#follows || isAtEnd;
  }

  /**
   * Shows earlier entries: from memory first, then from the sprite. Runs automatically only on scrolling.
   * @param {boolean} isScroll
   */
  async #earlierFor(isScroll) {
    if (this.#loading || this.earlier.hidden || (isScroll && this.#follows)) return;
    this.#loading = true;
    try {
      if (this.#shown >= this.entries.length && !(await this.#fetch())) return;
      const before = this.scroller.scrollHeight - this.scroller.scrollTop;
      this.#shown += MORE;
      this.draw();
      this.scroller.scrollTop = this.scroller.scrollHeight - before;
      this.#lastTop = this.scroller.scrollTop;
    } catch (problem) {
      if (!isScroll) this.page.toast({ kind: 'error', text: wordsOf(problem) });
    } finally {
      this.#loading = false;
    }
  }

  async #fetch() {
    const { conversation } = this.page.store;
    const { chat } = await this.page.connection.ask('memory', {
      op: 'chat',
      before: conversation.oldestRow,
      limit: HISTORY_ROWS,
    });
    this.#atStart = chat.length === 0;
    conversation.prepend(chat);
    if (this.#atStart) this.draw();
    return chat.length > 0;
  }
}
