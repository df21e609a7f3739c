// The row above the board: a tab for each stack, and what can be done with the one in front.

import { icon } from '../icons.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };

export class Tabs {
  #root;
  #stacks;
  #showArchived;
  #seen = null;

  /** `showArchived()` opens the list of what is archived. */
  constructor(root, stacks, showArchived) {
    this.#root = root;
    this.#stacks = stacks;
    this.#showArchived = showArchived;
  }

  /** Draws the tabs; `archived` is how many stacks and cards are put away, `counts` the open cards by stack. */
  draw(archived, counts) {
    const { open, active } = this.#stacks;
    const row = html`
      <div class="stack-tabs scroll" role="tablist" aria-label="Stacks" @keydown=${(event) => this.#key(event)}>
        ${repeat(
          open,
          ({ stack_id: id }) => id,
          (stack) => this.#tab(stack, stack === active, counts.get(stack.stack_id) ?? 0),
        )}
      </div>
      <div class="stack-tools">
        ${this.#tool('add', 'New stack', () => this.#stacks.create())}
        ${active ? this.#tool('edit', `Rename stack ${active.name}`, () => this.#stacks.rename(active)) : nothing}
        ${active ? this.#tool('archive', `Archive stack ${active.name}`, () => this.#stacks.archive(active)) : nothing}
        ${
          archived > 0
            ? html`<button type="button" class="button quiet small" @click=${this.#showArchived}>Archived <span class="tabular">${archived}</span></button>`
            : nothing
        }
      </div>`;
    render(row, this.#root);
    // With many stacks, the one in front is the one to be seen.
    if (active !== null && active.stack_id !== this.#seen) {
      this.#seen = active.stack_id;
      this.#root.querySelector('[aria-selected="true"]').scrollIntoView({ block: 'nearest', inline: 'nearest' });
    }
  }

  #tab(stack, selected, count) {
    const news = this.#stacks.news.has(stack.stack_id);
    return html`<button
      type="button"
      role="tab"
      class="stack-tab"
      data-stack-id=${stack.stack_id}
      title="${stack.name} (double click to rename)"
      aria-selected=${selected}
      aria-controls="canvas-board"
      tabindex=${selected ? 0 : -1}
      @click=${() => this.#stacks.choose(stack.stack_id)}
      @dblclick=${() => this.#stacks.rename(stack)}
    ><span class="cut">${stack.name}</span>${count > 0 ? html`<span class="stack-count tabular">${count}<span class="visually-hidden"> ${count === 1 ? 'card' : 'cards'}</span></span>` : nothing}${
      news ? html`<span class="stack-news"><span class="visually-hidden">, new</span></span>` : nothing
    }</button>`;
  }

  #tool(name, label, act) {
    return html`<button type="button" class="icon-button small" aria-label=${label} title=${label} @click=${act}>${icon(name, true)}</button>`;
  }

  #key(event) {
    if (event.key === 'F2' && this.#stacks.active) {
      this.#stacks.rename(this.#stacks.active);
    } else if (ARROWS[event.key] && this.#stacks.step(ARROWS[event.key])) {
      this.#root.querySelector('[aria-selected="true"]')?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }
}
