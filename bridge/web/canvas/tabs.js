// The row above the board: a tab for each stack, and actions for the active one.

import { button, elementOf, iconButton } from '../template.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { Stack } from '../types/page.js' */
/** @import { Stacks } from './stacks.js' */

/** @type {Record<string, 1 | -1>} */
const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };
const BOARD = 'canvas-board';
const byId = (/** @type {Stack} */ { stack_id: id }) => id;

export class Tabs {
  element = elementOf(html`<div class="canvas-head"></div>`);
  /**
   * The stack that was last scrolled into view.
   * @type {string | null}
   */
  #seen = null;

  /**
   * `showArchived()` opens the list of archived items, `writeNote()` the note form.
   * @param {Stacks} stacks
   * @param {{ showArchived: () => void, writeNote: () => void }} acts
   */
  constructor(stacks, acts) {
    this.stacks = stacks;
    this.acts = acts;
  }

  /**
   * Draws the tabs; `archived` is the number of archived stacks and cards, `counts` the open cards by stack.
   * @param {number} archived
   * @param {Map<string, number>} counts
   */
  draw(archived, counts) {
    const { stacks, acts } = this;
    const { open, active } = stacks;
    const hidden = active === null;
    render(
      html`<div class="stack-tabs scroll" role="tablist" aria-label="Stacks"
          @keydown=${(/** @type {KeyboardEvent} */ event) => this.#key(event)}>
          ${repeat(open, byId, (stack) => this.#tab(stack, counts.get(stack.stack_id) ?? 0))}
        </div>
        <div class="stack-tools">
          ${iconButton('note', 'New note', acts.writeNote)} ${iconButton('add', 'New stack', () => stacks.create())}
          ${iconButton('edit', `Rename stack ${active?.name}`, () => stacks.rename(), { hidden })}
          ${iconButton('archive', `Archive stack ${active?.name}`, () => stacks.archive(), { hidden })}
          ${button(html`Archived <span class="tabular">${archived}</span>`, acts.showArchived, {
            look: 'quiet',
            hidden: archived === 0,
          })}
        </div>`,
      this.element,
    );
    // With many stacks, scroll the active one into view.
    if (active !== null && active.stack_id !== this.#seen) {
      this.#seen = active.stack_id;
      this.#front?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    }
  }

  /** @returns {HTMLElement | null} */
  get #front() {
    return this.element.querySelector('[aria-selected="true"]');
  }

  /** @param {Stack} stack @param {number} count */
  #tab(stack, count) {
    const { stack_id: id, name } = stack;
    const isActive = stack === this.stacks.active;
    // The board is loaded with the first card.
    return html`<button type="button" role="tab" class="stack-tab" data-stack-id=${id} aria-selected=${isActive}
      tabindex=${isActive ? 0 : -1} aria-controls=${document.getElementById(BOARD) ? BOARD : nothing}
      title="${name} (double click to rename)"
      @click=${() => this.stacks.choose(id)} @dblclick=${() => this.stacks.rename(stack)}>
      <span class="cut">${name}</span>
      ${
        count > 0
          ? html`<span class="stack-count tabular"
              >${count}<span class="visually-hidden">${count === 1 ? ' card' : ' cards'}</span></span
            >`
          : nothing
      }
      ${
        this.stacks.unseen.has(id)
          ? html`<span class="stack-unseen"><span class="visually-hidden">, new</span></span>`
          : nothing
      }
    </button>`;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = ARROWS[event.key];
    if (event.key === 'F2' && this.stacks.active) void this.stacks.rename();
    else if (step && this.stacks.step(step)) this.#front?.focus();
    else return;
    event.preventDefault();
  }
}
