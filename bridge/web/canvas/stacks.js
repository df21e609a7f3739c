// The stacks of the canvas and their actions. Changes wait for the server's confirmation; a stack is only a tab.

import { wordsOf } from '../problem.js';

/** @import { Card, Page, Sent, Stack, State } from '../types/page.js' */

const REMEMBERED = 'sprite.stack';

export class Stacks {
  #page;
  #opened;
  /** @type {string | null} */
  #active;

  /**
   * `opened(stackId)` is called when another stack becomes active.
   * @param {Page} page
   * @param {(stackId: string | null) => void} opened
   */
  constructor(page, opened) {
    this.#page = page;
    this.#opened = opened;
    this.#active = localStorage.getItem(REMEMBERED);
    /** Stacks with changes that the person has not seen. */
    this.unseen = new Set();
  }

  get all() {
    return this.#page.store.state.stacks;
  }

  get open() {
    return this.all.filter((stack) => !stack.archived);
  }

  /** The active stack: the last chosen one, else the newest (where the agent draws), else null. */
  get active() {
    const { open } = this;
    return open.find((stack) => stack.stack_id === this.#active) ?? open.at(-1) ?? null;
  }

  /**
   * Makes a stack active.
   * @param {string} stackId
   */
  choose(stackId) {
    this.#active = stackId;
    this.unseen.delete(stackId);
    this.#opened(stackId);
    localStorage.setItem(REMEMBERED, stackId);
  }

  /**
   * Makes the next (1) or previous (-1) stack active.
   * @param {1 | -1} by
   */
  step(by) {
    const { open, active } = this;
    if (open.length < 2) return null;
    const at = open.findIndex((stack) => stack.stack_id === active?.stack_id);
    const next = open[(at + by + open.length) % open.length];
    if (!next) return null;
    this.choose(next.stack_id);
    return next;
  }

  async create() {
    const name = await this.#page.prompt({ title: 'New stack', label: 'Name', confirm: 'Create', maxlength: 200 });
    if (name === null) return;
    const made = await this.#tell({ action: 'create_stack', name });
    const id = made?.stack_id;
    if (!id) return;
    this.#set({ stack_id: id, name, archived: false });
    this.choose(id);
  }

  async rename(stack = this.active) {
    if (!stack) return;
    const asked = { title: 'Rename stack', label: 'Name', value: stack.name, confirm: 'Rename', maxlength: 200 };
    const name = await this.#page.prompt(asked);
    if (name === null || name === stack.name) return;
    if (await this.#tell({ action: 'rename_stack', stack_id: stack.stack_id, name })) this.#set({ ...stack, name });
  }

  async archive(stack = this.active) {
    if (!stack || !(await this.#tell({ action: 'archive_stack', stack_id: stack.stack_id }))) return;
    this.#set({ ...stack, archived: true });
    this.#opened(this.active?.stack_id ?? null);
    const action = { label: 'Undo', run: () => this.restore({ ...stack, archived: true }) };
    this.#page.toast({ kind: 'success', text: `“${stack.name}” is archived, with its cards.`, action });
  }

  /** @param {Stack} stack */
  async restore(stack) {
    if (!(await this.#tell({ action: 'restore_stack', stack_id: stack.stack_id }))) return false;
    this.#set({ ...stack, archived: false });
    this.choose(stack.stack_id);
    return true;
  }

  /** @param {Card} card */
  async archiveCard(card) {
    if (!(await this.#tell({ action: 'archive_card', card_id: card.card_id }))) return;
    this.#setCard(card, true);
    const action = { label: 'Undo', run: () => this.restoreCard(card) };
    this.#page.toast({ kind: 'success', text: `“${card.title}” is archived.`, action });
  }

  /**
   * Restores a card, and its stack if that is archived too.
   * @param {Card} card
   */
  async restoreCard(card) {
    const stack = this.all.find(({ stack_id: id }) => id === card.stack_id);
    if (stack?.archived && !(await this.restore(stack))) return;
    if (await this.#tell({ action: 'restore_card', card_id: card.card_id })) this.#setCard(card, false);
  }

  /** @param {Sent['canvas_interaction']} interaction */
  async #tell(interaction) {
    try {
      return await this.#page.connection.ask('canvas_interaction', interaction);
    } catch (problem) {
      this.#page.toast({ kind: 'error', text: `Nothing was changed: ${wordsOf(problem)}` });
      return null;
    }
  }

  /**
   * Stores the confirmed stack; the message to all pages has the same content.
   * @param {Stack} changed
   */
  #set(changed) {
    const known = this.all.some((stack) => stack.stack_id === changed.stack_id);
    const merged = this.all.map((stack) => (stack.stack_id === changed.stack_id ? changed : stack));
    this.#page.store.setStacks(known ? merged : [...merged, changed]);
  }

  /** @param {Card} card @param {boolean} archived */
  #setCard(card, archived) {
    const known = this.#page.store.state.cards.get(card.card_id);
    if (known) this.#page.store.setCard({ ...known, archived });
  }
}

/**
 * Returns archived stacks and single cards; the cards of an archived stack are restored with it.
 * @param {State} state
 */
export function archivedOf({ stacks, cards }) {
  const gone = new Set(stacks.filter((stack) => stack.archived).map((stack) => stack.stack_id));
  return {
    stacks: stacks.filter((stack) => stack.archived),
    cards: [...cards.values()].filter((card) => card.archived && !gone.has(card.stack_id)),
  };
}
