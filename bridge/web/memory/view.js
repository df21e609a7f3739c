// A view of the memory panel: loads when first visible, refreshes on changes, and shows its state.

import { wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, render } from '../vendor/lit-html/lit-html.js';

/** @import { MemoryClient, Page } from '../types/page.js' */
/** @import { TemplateResult } from 'lit-html' */

export class View {
  #stale = true;
  #round = 0;
  /** @type {number | undefined} */
  #timer;

  /** @param {Page} page @param {MemoryClient} client */
  constructor(page, client) {
    this.page = page;
    this.client = client;
    this.element = elementOf(html`<div class="memory-view scroll" hidden></div>`);
    this.visible = false;
    this.loaded = false;
    /** @type {string | null} */
    this.problem = null;
    page.store.subscribe('link', () => {
      if (this.problem !== null && page.connection.ready) this.invalidate();
    });
  }

  /** Fetches the data for `template()`; each view overrides it. */
  async load() {}

  /** @returns {TemplateResult} */
  template() {
    return LOADING;
  }

  /** Refetches everything, for example after a forget or a long absence. */
  forgetRows() {
    this.invalidate();
  }

  show() {
    this.visible = true;
    this.element.hidden = false;
    if (this.#stale) void this.refresh();
    else this.draw();
  }

  hide() {
    this.visible = false;
    this.element.hidden = true;
  }

  /**
   * Marks the view as outdated and refetches it: after `delay` milliseconds if visible, otherwise when it is shown.
   * @param {number} [delay]
   */
  invalidate(delay = 0) {
    this.#stale = true;
    clearTimeout(this.#timer);
    if (this.visible) this.#timer = setTimeout(() => void this.refresh(), delay);
  }

  async refresh() {
    this.#round += 1;
    const round = this.#round;
    this.#stale = false;
    this.draw();
    try {
      await this.load();
      if (round !== this.#round) return;
      this.problem = null;
      this.loaded = true;
    } catch (problem) {
      if (round !== this.#round) return;
      this.problem = wordsOf(problem);
      this.#stale = true;
    }
    this.draw();
  }

  draw() {
    if (this.visible) render(this.#drawn(), this.element);
  }

  #drawn() {
    if (!this.loaded) return this.problem === null ? LOADING : unreachable(this.problem, () => void this.refresh());
    return html`${this.problem === null ? null : outdated(this.problem, () => void this.refresh())}${this.template()}`;
  }

  /**
   * Runs an action of the person; shows a failure and returns null.
   * @template T
   * @param {string} what
   * @param {() => Promise<T>} act
   * @returns {Promise<T | null>}
   */
  async attempt(what, act) {
    try {
      return await act();
    } catch (problem) {
      this.page.toast({ kind: 'error', text: `${what}: ${wordsOf(problem)}` });
      return null;
    }
  }
}

export const LOADING = html`<div class="memory-loading" role="status" aria-label="Loading">
  <div class="skeleton"></div>
  <div class="skeleton"></div>
  <div class="skeleton"></div>
  <div class="skeleton"></div>
</div>`;

/** @param {string} problem @param {() => void} retry */
export const unreachable = (problem, retry) =>
  html`<div class="empty">
    <h3>Memory cannot be reached</h3>
    <p>${problem} Nothing is lost: memory lives with your sprite, not on this page.</p>
    <button type="button" class="button" @click=${retry}>Try again</button>
  </div>`;

/** @param {string} problem @param {() => void} retry */
const outdated = (problem, retry) =>
  html`<div class="memory-banner warn" role="status">
    <p class="grow">This may be out of date. ${problem}</p>
    <button type="button" class="button small" @click=${retry}>Try again</button>
  </div>`;

/**
 * Draws an empty list with a hint about one thing to do.
 * @param {string} title
 * @param {string} words
 * @param {{ label: string, run: () => void } | null} [button]
 */
export const nothingYet = (title, words, button = null) =>
  html`<div class="empty">
    <h3>${title}</h3>
    <p>${words}</p>
    ${
      button === null
        ? null
        : html`<button type="button" class="button primary" @click=${button.run}>${button.label}</button>`
    }
  </div>`;
