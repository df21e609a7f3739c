// The top of the memory panel: the search, the views by name, how much there is and what waits.

import { number, plural } from '../format.js';
import { icon } from '../icons.js';
import { elementOf } from '../template.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** The views in their order, as people call them. */
export const TABS = { files: 'Files', learnings: 'Learned', timeline: 'Timeline', actions: 'To do', health: 'Health' };
const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };

export class Head {
  #acts;
  #shown = null;

  /** `acts`: type(query), choose(tab), flush(), results() which brings the keyboard to the first result. */
  constructor(acts) {
    this.#acts = acts;
    this.element = elementOf(html`<div class="memory-head"></div>`);
  }

  focus() {
    const field = this.element.querySelector('input');
    field?.focus();
    field?.select();
  }

  /** Draws the view in front (`tab`, null: results), what is searched for, and how many learnings are new. */
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
            @input=${(event) => this.#acts.type(event.target.value)}
            @keydown=${(event) => this.#searchKey(event)}
          />
        </div>
        <div class="memory-sub">
          <div class="segmented" role="tablist" aria-label="Memory" @keydown=${(event) => this.#tabKey(event)}>
            ${Object.keys(TABS).map((tab) => this.#tab(tab))}
          </div>
          ${shown.memory === null ? nothing : this.#standing(shown.memory)}
        </div>
      `,
      this.element,
    );
  }

  #tab(tab) {
    const { tab: front, unseen } = this.#shown;
    const reachable = tab === (front ?? Object.keys(TABS)[0]);
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
      }
    </button>`;
  }

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
              title="Looks through the turns that wait for things to keep"
              @click=${this.#acts.flush}
            >
              ${flushing ? 'Learning…' : 'Learn now'}
            </button>`
          : nothing
      }
    </p>`;
  }

  #searchKey(event) {
    if (event.key === 'Escape' && this.#shown.query !== '') {
      event.preventDefault();
      event.stopPropagation();
      this.#acts.type('');
    } else if (event.key === 'ArrowDown') {
      event.preventDefault();
      this.#acts.results();
    }
  }

  #tabKey(event) {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const tabs = Object.keys(TABS);
    const at = Math.max(0, tabs.indexOf(this.#shown.tab));
    this.#acts.choose(tabs[(at + step + tabs.length) % tabs.length]);
    this.element.querySelector('[aria-selected="true"]')?.focus();
  }
}
