// The canvas panel: tabs, the board, and a placeholder for an empty canvas. The board and the code that draws cards are
// not part of the first load: they are loaded with the first card.

import { isTyping } from '../dom.js';
import { drafts } from '../drafts.js';
import { plural } from '../format.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { canUndo, undo } from './changes.js';
import { placeholder } from './placeholder.js';
import { archivedOf, Stacks } from './stacks.js';
import { Tabs } from './tabs.js';

/** @import { CanvasUpdate, Command, Page } from '../types/page.js' */
/** @import { Board } from './board.js' */
/** @import { NoteForm } from './note_form.js' */

/** @param {HTMLElement} root @param {Page} page */
export const mountCanvas = (root, page) => new Canvas(root, page);

class Canvas {
  #root;
  #page;
  #visible = false;
  /** @type {Board | null} */
  #board = null;
  /**
   * Cards that the agent has changed and the person has not seen since.
   * @type {Set<string>}
   */
  #touched = new Set();
  #tabs;
  /** @type {Promise<Board> | null} */
  #loading = null;
  /** @type {NoteForm | null} */
  #note = null;
  /** Id of a note that was just written, until its card arrives. */
  #awaited = '';

  /** @param {HTMLElement} root @param {Page} page */
  constructor(root, page) {
    this.#root = root;
    this.#page = page;
    this.stacks = new Stacks(page, () => this.#draw());
    this.#tabs = new Tabs(this.stacks, {
      showArchived: () => void this.#showArchived(),
      writeNote: () => void this.#writeNote(),
    });
    root.classList.add('canvas');
    page.store.subscribe(['stacks', 'cards', 'loaded', 'link'], () => this.#draw());
    page.store.listen('canvas_update', (update) => this.#heard(update));
    this.#addCommands();
    this.#draw();
    if (drafts.get('note') !== null) void this.#writeNote(false);
  }

  shown() {
    this.#visible = true;
    this.#board?.show(true);
    this.#draw();
  }

  hidden() {
    this.#visible = false;
    this.#board?.show(false);
  }

  /**
   * Scrolls a card into view, on any stack.
   * @param {string} cardId
   */
  async openCard(cardId) {
    const card = this.#page.store.state.cards.get(cardId);
    if (!card) {
      this.#page.toast({ kind: 'info', text: 'That card is no longer there.' });
      return;
    }
    const stack = this.stacks.all.find(({ stack_id: id }) => id === card.stack_id);
    if (card.archived || stack?.archived) {
      const restore = async () => {
        await this.stacks.restoreCard(card);
        await this.openCard(cardId);
      };
      const action = { label: 'Restore', run: restore };
      this.#page.toast({ kind: 'info', text: `“${card.title}” is archived.`, action });
      return;
    }
    const board = await this.#loadBoard();
    this.stacks.choose(card.stack_id);
    board.focus(cardId);
  }

  /**
   * Handles a change of a card by the agent or another page.
   * @param {CanvasUpdate} update
   */
  #heard({ command, card_id: cardId, stack_id: stackId }) {
    if (command === 'close_card') return;
    if (cardId === this.#awaited) this.#showNote(cardId);
    const agent = this.#page.store.state.session.running_mission_id !== null;
    if (stackId !== this.stacks.active?.stack_id) this.stacks.unseen.add(stackId);
    if (agent) this.#touched.add(cardId);
  }

  /**
   * Opens the note form with its draft; `focus` moves the keyboard focus to it.
   * @param {boolean} [focus]
   */
  async #writeNote(focus = true) {
    if (focus) this.#page.openPanel('canvas');
    const form = await import('./note_form.js').catch(() => null);
    if (form === null) {
      this.#page.toast({ kind: 'error', text: 'The form could not be loaded. Is the bridge running?' });
      return;
    }
    const stackId = () => this.stacks.active?.stack_id ?? null;
    this.#note ??= new form.NoteForm(this.#page, stackId, (cardId) => this.#showNote(cardId));
    this.#draw();
    this.#note.show(focus);
  }

  /**
   * Shows a note that was just written; its event may arrive after the answer.
   * @param {string} cardId
   */
  #showNote(cardId) {
    const isThere = this.#page.store.state.cards.has(cardId);
    this.#awaited = isThere ? '' : cardId;
    if (isThere) void this.openCard(cardId);
  }

  #loadBoard() {
    this.#loading ??= this.#makeBoard().catch((error) => {
      this.#loading = null;
      const action = { label: 'Try again', run: () => this.#draw() };
      this.#page.toast({ kind: 'error', text: 'The cards could not be loaded. Is the bridge running?', action });
      throw error;
    });
    return this.#loading;
  }

  async #makeBoard() {
    const { Board } = await import('./board.js');
    this.#board = new Board(this.#page, (view) => this.stacks.archiveCard(view.card), this.#touched);
    this.#board.show(this.#visible);
    this.#draw();
    return this.#board;
  }

  async #showArchived() {
    const { showArchived } = await import('./archive.js');
    return showArchived(this.#page, this.stacks);
  }

  #draw() {
    const { state } = this.#page.store;
    const stackId = this.stacks.active?.stack_id ?? null;
    this.#page.setStack(stackId);
    this.#board?.open(stackId);
    if (!this.#visible) return;
    const archived = archivedOf(state);
    const counts = new Map();
    for (const card of state.cards.values()) {
      if (!card.archived) counts.set(card.stack_id, (counts.get(card.stack_id) ?? 0) + 1);
    }
    this.stacks.unseen.delete(stackId);
    const count = counts.get(stackId) ?? 0;
    if (count > 0 && this.#board === null) this.#loadBoard().catch(() => null);
    const reason = this.#reason(count, state.cards.size > 0);
    const acts = { draft: (/** @type {string} */ text) => this.#page.draft(text), writeNote: () => this.#writeNote() };
    render(
      html`<h2 class="visually-hidden">Canvas</h2>
        ${this.#tabs.element}${this.#note?.element ?? nothing}${this.#board?.element ?? nothing}
        ${reason === null ? nothing : placeholder(reason, state.link, acts)}`,
      this.#root,
    );
    this.#tabs.draw(archived.stacks.length + archived.cards.length, counts);
    if (this.#board === null) return;
    this.#board.element.hidden = reason !== null;
    this.#board.follow();
  }

  /**
   * Returns why there are no cards; null if there are.
   * @param {number} count
   * @param {boolean} experienced
   */
  #reason(count, experienced) {
    const { loaded, link } = this.#page.store.state;
    if (!loaded) return link.state === 'offline' || link.state === 'unavailable' ? 'unreachable' : 'loading';
    if (count > 0) return this.#board === null ? 'loading' : null;
    return experienced ? 'clear' : 'first';
  }

  #addCommands() {
    const { commands } = this.#page;
    const active = () => this.#page.store.state.loaded && this.stacks.active !== null;
    /** @param {string} id @param {string} title @param {() => unknown} run @param {Partial<Command>} [more] */
    const command = (id, title, run, more = {}) =>
      commands.add({ id: `canvas.${id}`, title, group: 'Canvas', run, ...more });
    command('new-note', 'New note', () => this.#writeNote(), { keys: 'n n' });
    const focused = () => this.#board?.focused ?? null;
    const edit = { keys: 'F2', when: () => focused() !== null };
    command('edit', 'Edit the focused card', () => focused()?.body.begin(), edit);
    const undoes = { keys: 'Mod+z', when: () => canUndo() && !isTyping(document.activeElement) };
    command('undo', 'Undo your last change of a card', () => undo(this.#page), undoes);
    command('new-stack', 'New stack', () => this.stacks.create(), { keys: 'n s' });
    command('rename-stack', 'Rename this stack', () => this.stacks.rename(), { when: active });
    command('archive-stack', 'Archive this stack', () => this.stacks.archive(), { when: active });
    command('next-stack', 'Next stack', () => this.#step(1), { keys: ']', when: active });
    command('previous-stack', 'Previous stack', () => this.#step(-1), { keys: '[', when: active });
    command('archived', 'Archived stacks and cards', () => void this.#showArchived());
    commands.provide('Cards', (query) => this.#cardsLike(query));
  }

  /** @param {1 | -1} by */
  #step(by) {
    const stack = this.stacks.step(by);
    if (!stack) return;
    this.#page.openPanel('canvas');
    const cards = [...this.#page.store.state.cards.values()];
    const count = cards.filter((card) => card.stack_id === stack.stack_id && !card.archived).length;
    this.#page.announce(`Stack ${stack.name}, ${plural(count, 'card')}`);
  }

  /** @param {string} query */
  #cardsLike(query) {
    const wanted = query.trim().toLowerCase();
    if (wanted === '') return [];
    const cards = [...this.#page.store.state.cards.values()];
    return cards
      .filter((card) => !card.archived && card.title.toLowerCase().includes(wanted))
      .slice(0, 8)
      .map((card) => ({ title: card.title, hint: 'Card', run: () => this.#page.openCard(card.card_id) }));
  }
}
