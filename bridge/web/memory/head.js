// The head of the memory panel: the search, the tabs, counts and pending work.

import { number, plural } from '../format.js';
import { icon } from '../icons.js';
import { elementOf, typedIn } from '../template.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { MemoryState } from '../types/page.js' */

/** The views in their order, with their labels. */
export const TABS = {
  learnings: 'Learned',
  timeline: 'Timeline',
  files: 'Notes',
  documents: 'Files',
  health: 'Health',
};
/** @type {Record<string, 1 | -1>} */
const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };

/** @type {Tab[]} */
export const ORDER = ['learnings', 'timeline', 'files', 'documents', 'health'];

/** @typedef {keyof typeof TABS} Tab */
/**
 * @typedef {object} Shown
 * @property {Tab | null} tab  the view in front; null where results are
 * @property {string} query
 * @property {number} unseen  new learnings that nobody has looked at
 * @property {boolean} flushing
 * @property {MemoryState | null} memory
 */
/**
 * @typedef {object} HeadActs
 * @property {(query: string) => void} type
 * @property {(tab: Tab) => void} choose
 * @property {() => void} flush
 * @property {() => void} results  brings the keyboard to the first result
 */

export class Head {
  /** @type {HeadActs} */
  #acts;
  /** @type {Shown} */
  #shown = { tab: null, query: '', unseen: 0, flushing: false, memory: null };

  /** @param {HeadActs} acts */
  constructor(acts) {
    this.#acts = acts;
    this.element = elementOf(html`<div class="memory-head"></div>`);
  }

  focus() {
    const field = this.element.querySelector('input');
    field?.focus();
    field?.select();
  }

  /** @param {Shown} shown */
  draw(shown) {
    this.#shown = shown;
    render(
      html`
        <div class="memory-search" role="search">
          ${icon('search', true)}
          <input
            type="search"
            class="input"
            placeholder="Search everything said and learned"
            aria-label="Search memory"
            autocomplete="off"
            maxlength="400"
            .value=${live(shown.query)}
            @input=${(/** @type {InputEvent} */ event) => this.#acts.type(typedIn(event))}
            @keydown=${this.#searchKey}
          />
        </div>
        <div class="memory-sub">
          <div class="segmented" role="tablist" aria-label="Memory" @keydown=${this.#tabKey}>
            ${ORDER.map((tab) => this.#tab(tab))}
          </div>
          ${shown.memory === null ? nothing : this.#standing(shown.memory)}
        </div>
      `,
      this.element,
    );
  }

  /** @param {Tab} tab */
  #tab(tab) {
    const { tab: front, unseen, memory } = this.#shown;
    const waiting = memory?.drift?.length ?? 0;
    const reachable = tab === (front ?? ORDER[0]);
    return html`<button
      type="button"
      role="tab"
      aria-controls="memory-body"
      aria-selected=${tab === front}
      tabindex=${reachable ? 0 : -1}
      @click=${() => this.#acts.choose(tab)}
    >
      ${TABS[tab]}${
        tab === 'learnings' && unseen > 0
          ? html`<span class="unseen tabular"><span class="visually-hidden">, new: </span>+${number(unseen)}</span>`
          : nothing
      }${
        tab === 'files' && waiting > 0
          ? html`<span class="unseen warn tabular"
              ><span class="visually-hidden">, waiting for you: </span>${number(waiting)}</span
            >`
          : nothing
      }
    </button>`;
  }

  /** @param {MemoryState} memory */
  #standing({ learnings, turns, waiting }) {
    const { flushing } = this.#shown;
    return html`<p class="memory-standing small-text muted">
      <span
        >${plural(learnings, 'learning')} from
        ${plural(turns, 'turn')}${waiting > 0 ? html`, ${number(waiting)} waiting` : nothing}</span
      >
      ${
        waiting > 0
          ? html`<button
              type="button"
              class="button small"
              ?disabled=${flushing}
              title="Learn now from the waiting turns"
              @click=${this.#acts.flush}
            >
              ${flushing ? 'Learning…' : 'Learn now'}
            </button>`
          : nothing
      }
    </p>`;
  }

  /** @param {KeyboardEvent} event */
  #searchKey = (event) => {
    if (event.key === 'Escape' && this.#shown.query !== '') {
      event.preventDefault();
      event.stopPropagation();
      this.#acts.type('');
    } else if (event.key === 'ArrowDown') {
      event.preventDefault();
      this.#acts.results();
    }
  };

  /** @param {KeyboardEvent} event */
  #tabKey = (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const at = this.#shown.tab === null ? 0 : ORDER.indexOf(this.#shown.tab);
    const next = ORDER[(at + step + ORDER.length) % ORDER.length];
    if (next) this.#acts.choose(next);
    /** @type {HTMLElement | null} */
    const front = this.element.querySelector('[aria-selected="true"]');
    front?.focus();
  };
}
