// The row above the board: a tab for each stack, and what can be done with the one in front.

import { icon } from '../icons.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';

const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };

export class Tabs {
  /** `showArchived()` opens the list of what is archived. */
  constructor(root, stacks, showArchived) {
    this._root = root;
    this._stacks = stacks;
    this._showArchived = showArchived;
  }

  /** Draws the tabs; `archived` is how many stacks and cards are put away, `counts` the open cards by stack. */
  draw(archived, counts) {
    const { open, active } = this._stacks;
    const row = html`
      <div class="stack-tabs scroll" role="tablist" aria-label="Stacks" @keydown=${(event) => this._key(event)}>
        ${repeat(open, ({ stack_id: id }) => id, (stack) => this._tab(stack, stack === active, counts.get(stack.stack_id) ?? 0))}
      </div>
      <div class="stack-tools">
        ${this._tool('add', 'New stack', () => this._stacks.create())}
        ${active ? this._tool('edit', `Rename stack ${active.name}`, () => this._stacks.rename(active)) : nothing}
        ${active ? this._tool('archive', `Archive stack ${active.name}`, () => this._stacks.archive(active)) : nothing}
        ${archived > 0
          ? html`<button type="button" class="button quiet small" @click=${this._showArchived}>Archived <span class="tabular">${archived}</span></button>`
          : nothing}
      </div>`;
    render(row, this._root);
  }

  _tab(stack, selected, count) {
    const news = this._stacks.news.has(stack.stack_id);
    return html`<button
      type="button"
      role="tab"
      class="stack-tab"
      data-stack-id=${stack.stack_id}
      title="${stack.name} (double click to rename)"
      aria-selected=${selected}
      aria-controls="canvas-board"
      tabindex=${selected ? 0 : -1}
      @click=${() => this._stacks.choose(stack.stack_id)}
      @dblclick=${() => this._stacks.rename(stack)}
    ><span class="cut">${stack.name}</span>${count > 0 ? html`<span class="stack-count tabular">${count}<span class="visually-hidden"> ${count === 1 ? 'card' : 'cards'}</span></span>` : nothing}${news
      ? html`<span class="stack-news"><span class="visually-hidden">, new</span></span>`
      : nothing}</button>`;
  }

  _tool(name, label, act) {
    return html`<button type="button" class="icon-button small" aria-label=${label} title=${label} @click=${act}>${icon(name, true)}</button>`;
  }

  _key(event) {
    if (event.key === 'F2' && this._stacks.active) {
      this._stacks.rename(this._stacks.active);
    } else if (ARROWS[event.key] && this._stacks.step(ARROWS[event.key])) {
      this._root.querySelector('[aria-selected="true"]')?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }
}
