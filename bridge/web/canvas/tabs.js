// The row above the board: a tab for each stack, and actions for the active one.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';

/** @import { Stack } from '../types/page.js' */
/** @import { Stacks } from './stacks.js' */

/** @type {Record<string, 1 | -1>} */
const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };

const BOARD = 'canvas-board';

export class Tabs {
  /** @type {Stacks} */
  #stacks;
  /** @type {Map<string, Tab>} */
  #tabs = new Map();
  #list;
  #rename;
  #archive;
  #archived;
  /** @type {string | null} */
  #seen = null;

  /**
   * `showArchived()` opens the list of archived items, `writeNote()` the note form.
   * @param {HTMLElement} root
   * @param {Stacks} stacks
   * @param {{ showArchived: () => void, writeNote: () => void }} acts
   */
  constructor(root, stacks, { showArchived, writeNote }) {
    this.#stacks = stacks;
    this.element = root;
    this.#list = h('div', { class: 'stack-tabs scroll', role: 'tablist', 'aria-label': 'Stacks' });
    this.#list.addEventListener('keydown', (event) => this.#key(event));
    this.#rename = tool('edit', () => stacks.renameActive());
    this.#archive = tool('archive', () => stacks.archiveActive());
    this.#archived = h('button', { type: 'button', class: 'button quiet small', onclick: showArchived });
    const create = tool('add', () => stacks.create());
    name(create, 'New stack');
    const note = tool('note', writeNote);
    name(note, 'New note');
    const tools = [note, create, this.#rename, this.#archive, this.#archived];
    root.append(this.#list, h('div', { class: 'stack-tools' }, tools));
  }

  /**
   * Draws the tabs; `archived` is the number of archived stacks and cards, `counts` the open cards by stack.
   * @param {number} archived
   * @param {Map<string, number>} counts
   */
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
    // With many stacks, scroll the active one into view.
    if (active !== null && active.stack_id !== this.#seen) {
      this.#seen = active.stack_id;
      this.#front?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    }
  }

  /** @returns {HTMLElement | null} */
  get #front() {
    return this.#list.querySelector('[aria-selected="true"]');
  }

  /** @param {Set<string>} ids */
  #drop(ids) {
    for (const [id, tab] of this.#tabs) {
      if (ids.has(id)) continue;
      tab.element.remove();
      this.#tabs.delete(id);
    }
  }

  /**
   * @param {Stack} stack
   * @param {boolean} selected
   * @param {number} count
   */
  #drawn(stack, selected, count) {
    const id = stack.stack_id;
    const tab = this.#tabs.get(id) ?? new Tab(this.#stacks, stack);
    this.#tabs.set(id, tab);
    tab.update(stack, selected, count, this.#stacks.unseen.has(id));
    return tab;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const step = ARROWS[event.key];
    if (event.key === 'F2' && this.#stacks.active) {
      void this.#stacks.renameActive();
    } else if (step && this.#stacks.step(step)) {
      this.#front?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }
}

class Tab {
  /** @type {Stack} */
  #stack;
  #shown = '';

  /**
   * @param {Stacks} stacks
   * @param {Stack} stack
   */
  constructor(stacks, stack) {
    const id = stack.stack_id;
    this.#stack = stack;
    this.element = h('button', {
      type: 'button',
      role: 'tab',
      class: 'stack-tab',
      dataset: { stackId: id },
      onclick: () => stacks.choose(id),
      ondblclick: () => stacks.rename(this.#stack),
    });
  }

  /**
   * @param {Stack} stack
   * @param {boolean} selected
   * @param {number} count
   * @param {boolean} isNew
   */
  update(stack, selected, count, isNew) {
    this.#stack = stack;
    this.element.setAttribute('aria-selected', String(selected));
    this.element.tabIndex = selected ? 0 : -1;
    // The board is loaded with the first card.
    if (document.getElementById(BOARD)) this.element.setAttribute('aria-controls', BOARD);
    const shown = JSON.stringify([stack.name, count, isNew]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.title = `${stack.name} (double click to rename)`;
    const pieces = [h('span', { class: 'cut' }, stack.name)];
    if (count > 0) pieces.push(h('span', { class: 'stack-count tabular' }, String(count), unseen(cards(count))));
    if (isNew) pieces.push(h('span', { class: 'stack-unseen' }, unseen(', new')));
    this.element.replaceChildren(...pieces);
  }
}

/** @param {number} count */
const cards = (count) => (count === 1 ? ' card' : ' cards');

/**
 * Text for screen readers only.
 * @param {string} words
 */
const unseen = (words) => h('span', { class: 'visually-hidden' }, words);

/**
 * @param {string} icon
 * @param {() => unknown} act
 */
const tool = (icon, act) =>
  h('button', { type: 'button', class: 'icon-button small', onclick: act }, iconElement(icon, true));

/**
 * @param {HTMLButtonElement} button
 * @param {string} words
 */
function name(button, words) {
  button.setAttribute('aria-label', words);
  button.title = words;
}
