// The scrolling list of exchanges: redraws changes, follows the end only while the person does, and pages backwards.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';
import { wordsOf } from '../problem.js';

/** @import { Entry, Exchange, Page, View } from '../types/page.js' */
/** @import { ExchangeView } from './exchange.js' */
/** @import { NoticeView } from './notice.js' */

/** Entries in the document at first (a few screens), and the number added each time, small enough not to be felt. */
const FIRST = 30;
const MORE = 16;
/** This near the end counts as at the end. */
const NEAR_PX = 32;
const HISTORY_ROWS = 200;
const FLASH_MS = 1600;

/** @typedef {{ exchange: typeof ExchangeView, notice: typeof NoticeView }} Drawers */

export class Thread {
  /** @type {Map<number, View<Entry>>} */
  #views = new Map();
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

  /**
   * @param {Page} page
   * @param {{ empty: HTMLElement, unsent: HTMLElement }} around
   */
  constructor(page, { empty, unsent }) {
    this.page = page;
    this.earlier = h(
      'button',
      {
        class: 'button quiet small earlier',
        type: 'button',
        hidden: true,
        onclick: () => void this.#earlierFor(false),
      },
      'Earlier messages',
    );
    this.list = h('div', { class: 'thread-list' });
    this.content = h('div', { class: 'thread-content' }, this.earlier, empty, this.list, unsent);
    this.scroller = h(
      'div',
      { class: 'thread scroll', tabIndex: 0, role: 'region', 'aria-label': 'Conversation' },
      this.content,
    );
    this.jump = h(
      'button',
      { class: 'button small jump', type: 'button', hidden: true, onclick: () => this.jumpToEnd() },
      iconElement('down', true),
      'Jump to latest',
    );
    this.element = h('div', { class: 'thread-frame' }, this.scroller, this.jump);
    this.scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    // A person who opens a row wants to read it, so stop following the end.
    this.list.addEventListener(
      'toggle',
      (event) => {
        const opened = event.target instanceof HTMLDetailsElement && event.target.open;
        if (opened && event.isTrusted && this.scroller.contains(document.activeElement)) this.#follows = false;
      },
      true,
    );
    // Content that grows by itself (late layout, an opening row) must not push the end out of view.
    new ResizeObserver(() => this.#follows && this.#toEnd()).observe(this.content);
    new ResizeObserver(() => this.#follows && this.#toEnd()).observe(this.scroller);
    new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && this.#earlierFor(true), {
      root: this.scroller,
      rootMargin: '400px 0px 0px',
    }).observe(this.earlier);
  }

  get entries() {
    return this.page.store.state.chat;
  }

  draw() {
    if (this.#drawers) this.#draw(this.#drawers);
    else if (this.entries.length) void this.#load();
  }

  #load() {
    this.#loadingDrawers ??= Promise.all([import('./exchange.js'), import('./notice.js')])
      .then(([{ ExchangeView }, { NoticeView }]) => {
        this.#drawers = { exchange: ExchangeView, notice: NoticeView };
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

  /** @param {Drawers} drawers */
  #draw(drawers) {
    const entries = this.entries;
    const from = Math.max(0, entries.length - this.#shown);
    const visible = from ? entries.slice(from) : entries;
    const keys = new Set(visible.map((entry) => entry.key));
    for (const [key, view] of this.#views) {
      if (keys.has(key)) continue;
      view.element.remove();
      this.#views.delete(key);
    }
    /** @type {HTMLElement | null} */
    let at = null;
    for (const entry of visible) {
      let view = this.#views.get(entry.key);
      if (!view) {
        view = this.#made(entry, drawers);
        this.#views.set(entry.key, view);
      }
      /** @type {Element | null} */
      const next = at ? at.nextElementSibling : this.list.firstElementChild;
      if (next !== view.element) {
        if (at) at.after(view.element);
        else this.list.prepend(view.element);
      }
      view.update(entry);
      at = view.element;
    }
    this.earlier.hidden =
      !this.page.store.state.loaded ||
      (from === 0 && (this.#atStart || (this.page.store.conversation.oldestRow ?? 1) <= 1));
    if (this.#follows) this.#toEnd();
    else this.jump.hidden = false;
  }

  /**
   * @param {Entry} entry
   * @param {Drawers} drawers
   * @returns {View<Entry>}
   */
  #made(entry, drawers) {
    if (entry.kind === 'exchange') return new drawers.exchange(entry, this.page);
    return new drawers.notice(entry, this.page);
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
   * Shows the exchange of a mission; returns false if it is not loaded.
   * @param {string} missionId
   */
  async show(missionId) {
    await this.#load();
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
    const element = this.#views.get(entry.key)?.element;
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
