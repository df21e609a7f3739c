// The row above the board: a tab for each stack, and what can be done with the one in front.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';

const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };

export class Tabs {
  #stacks;
  #tabs = new Map();
  #list;
  #rename;
  #archive;
  #archived;
  #seen = null;

  /** `showArchived()` opens the list of what is archived. */
  constructor(root, stacks, showArchived) {
    this.#stacks = stacks;
    this.#list = h('div', { class: 'stack-tabs scroll', role: 'tablist', 'aria-label': 'Stacks' });
    this.#list.addEventListener('keydown', (event) => this.#key(event));
    this.#rename = tool('edit', () => stacks.rename(stacks.active));
    this.#archive = tool('archive', () => stacks.archive(stacks.active));
    this.#archived = h('button', { type: 'button', class: 'button quiet small', onclick: showArchived });
    const create = tool('add', () => stacks.create());
    name(create, 'New stack');
    root.append(this.#list, h('div', { class: 'stack-tools' }, create, this.#rename, this.#archive, this.#archived));
  }

  /** Draws the tabs; `archived` is how many stacks and cards are put away, `counts` the open cards by stack. */
  draw(archived, counts) {
    const { open, active } = this.#stacks;
    this.#drop(new Set(open.map((stack) => stack.stack_id)));
    open.forEach((stack, place) => {
      const { element } = this.#drawn(stack, stack === active, counts.get(stack.stack_id) ?? 0);
      const there = this.#list.children[place] ?? null;
      if (there !== element) this.#list.insertBefore(element, there);
    });
    this.#rename.hidden = this.#archive.hidden = active === null;
    if (active) {
      name(this.#rename, `Rename stack ${active.name}`);
      name(this.#archive, `Archive stack ${active.name}`);
    }
    this.#archived.hidden = archived === 0;
    this.#archived.replaceChildren('Archived ', h('span', { class: 'tabular' }, String(archived)));
    // With many stacks, the one in front is the one to be seen.
    if (active !== null && active.stack_id !== this.#seen) {
      this.#seen = active.stack_id;
      this.#front?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    }
  }

  get #front() {
    return this.#list.querySelector('[aria-selected="true"]');
  }

  #drop(ids) {
    for (const [id, tab] of this.#tabs) {
      if (ids.has(id)) continue;
      tab.element.remove();
      this.#tabs.delete(id);
    }
  }

  #drawn(stack, selected, count) {
    const id = stack.stack_id;
    const tab = this.#tabs.get(id) ?? new Tab(this.#stacks, id);
    this.#tabs.set(id, tab);
    tab.update(stack, selected, count, this.#stacks.news.has(id));
    return tab;
  }

  #key(event) {
    if (event.key === 'F2' && this.#stacks.active) {
      this.#stacks.rename(this.#stacks.active);
    } else if (ARROWS[event.key] && this.#stacks.step(ARROWS[event.key])) {
      this.#front?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }
}

class Tab {
  #stack = null;
  #shown = '';

  constructor(stacks, id) {
    this.element = h('button', {
      type: 'button',
      role: 'tab',
      class: 'stack-tab',
      dataset: { stackId: id },
      'aria-controls': 'canvas-board',
      onclick: () => stacks.choose(id),
      ondblclick: () => stacks.rename(this.#stack),
    });
  }

  update(stack, selected, count, isNew) {
    this.#stack = stack;
    this.element.setAttribute('aria-selected', String(selected));
    this.element.tabIndex = selected ? 0 : -1;
    const shown = JSON.stringify([stack.name, count, isNew]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.title = `${stack.name} (double click to rename)`;
    const pieces = [h('span', { class: 'cut' }, stack.name)];
    if (count > 0) pieces.push(h('span', { class: 'stack-count tabular' }, String(count), unseen(cards(count))));
    if (isNew) pieces.push(h('span', { class: 'stack-news' }, unseen(', new')));
    this.element.replaceChildren(...pieces);
  }
}

const cards = (count) => (count === 1 ? ' card' : ' cards');

/** Words for those who hear the page. */
const unseen = (words) => h('span', { class: 'visually-hidden' }, words);

const tool = (icon, act) =>
  h('button', { type: 'button', class: 'icon-button small', onclick: act }, iconElement(icon, true));

function name(button, words) {
  button.setAttribute('aria-label', words);
  button.title = words;
}
