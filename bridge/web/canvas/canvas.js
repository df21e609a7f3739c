// The canvas panel: tabs, the board, and what stands there when there is nothing to show. The board, with all that draws
// cards, is no part of the page's first load: it comes with the first card.

import { h } from '../dom.js';
import { plural } from '../format.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { Stacks, archivedOf } from './stacks.js';
import { Tabs } from './tabs.js';

const FIRST_WORDS = 'Make a table of the five largest cities of Europe with their population';

/** Builds the panel in `root`; see the page's interface for `page` and for what is returned. */
export function mountCanvas(root, page) {
  const canvas = new Canvas(root, page);
  return {
    shown: () => canvas.show(true),
    hidden: () => canvas.show(false),
    openCard: (cardId) => canvas.openCard(cardId),
    openStack: (stackId) => canvas.stacks.choose(stackId),
  };
}

class Canvas {
  constructor(root, page) {
    this._page = page;
    this._visible = false;
    this.stacks = new Stacks(page, () => this._draw());
    this._board = null;
    /** Cards that the agent has changed and nobody has seen since. */
    this._touched = new Set();
    const head = h('div', { class: 'canvas-head' });
    this._tabs = new Tabs(head, this.stacks, () => this._showArchived());
    this._instead = h('div', { class: 'canvas-instead' });
    root.classList.add('canvas');
    root.append(h('h2', { class: 'visually-hidden' }, 'Canvas'), head, this._instead);
    page.store.subscribe(['stacks', 'cards', 'loaded', 'link'], () => this._draw());
    page.store.listen('canvas_update', (update) => this._heard(update));
    this._addCommands();
    this._draw();
  }

  show(visible) {
    this._visible = visible;
    this._board?.show(visible);
    if (visible) this._draw();
  }

  /** Brings a card into sight, whichever stack it is on. */
  async openCard(cardId) {
    const card = this._page.store.state.cards.get(cardId);
    if (!card) {
      this._page.toast({ kind: 'info', text: 'That card is no longer there.' });
      return;
    }
    const stack = this.stacks.all.find(({ stack_id: id }) => id === card.stack_id);
    if (card.archived || stack?.archived) {
      const action = { label: 'Restore', run: async () => (await this.stacks.restoreCard(card), this.openCard(cardId)) };
      this._page.toast({ kind: 'info', text: `“${card.title}” is archived.`, action });
      return;
    }
    const board = await this._loadBoard();
    this.stacks.choose(card.stack_id);
    board.focus(cardId);
  }

  /** The agent, or another page, has changed a card. */
  _heard({ command, card_id: cardId, stack_id: stackId }) {
    if (command === 'close_card') return;
    const agent = this._page.store.state.session.running_mission_id !== null;
    if (stackId !== this.stacks.active?.stack_id) this.stacks.news.add(stackId);
    if (agent) this._touched.add(cardId);
  }

  _loadBoard() {
    this._loading ??= this._makeBoard().catch((error) => {
      this._loading = null;
      const action = { label: 'Try again', run: () => this._draw() };
      this._page.toast({ kind: 'error', text: 'The cards could not be loaded. Is the bridge running?', action });
      throw error;
    });
    return this._loading;
  }

  async _makeBoard() {
    const { Board } = await import('./board.js');
    this._board = new Board(this._page, (view) => this.stacks.archiveCard(view.card), this._touched);
    this._instead.before(this._board.element);
    this._board.show(this._visible);
    this._draw();
    return this._board;
  }

  async _showArchived() {
    const { showArchived } = await import('./archive.js');
    return showArchived(this._page, this.stacks);
  }

  _draw() {
    const { state } = this._page.store;
    const stackId = this.stacks.active?.stack_id ?? null;
    this._page.setStack(stackId);
    this._board?.open(stackId);
    if (!this._visible) return;
    const archived = archivedOf(state);
    const counts = new Map();
    for (const card of state.cards.values()) {
      if (!card.archived) counts.set(card.stack_id, (counts.get(card.stack_id) ?? 0) + 1);
    }
    this.stacks.news.delete(stackId);
    this._tabs.draw(archived.stacks.length + archived.cards.length, counts);
    const count = counts.get(stackId) ?? 0;
    if (count > 0 && this._board === null) this._loadBoard().catch(() => null);
    const instead = this._insteadOfCards(count, state.cards.size > 0);
    this._instead.hidden = instead === null;
    render(instead ?? html``, this._instead);
    if (this._board === null) return;
    this._board.element.hidden = instead !== null;
    this._board.follow();
  }

  _insteadOfCards(count, experienced) {
    const { loaded, link } = this._page.store.state;
    if (!loaded) return link.state === 'offline' || link.state === 'unavailable' ? unreachable(link) : LOADING;
    if (count > 0) return this._board === null ? LOADING : null;
    return experienced ? ALL_CLEAR : this._firstCard();
  }

  _firstCard() {
    return html`<div class="empty">
      <h3>Your canvas</h3>
      <p>What the agent makes for you stands here as cards: tables, documents, notes. Ask for one to see it appear.</p>
      <button type="button" class="button primary" @click=${() => this._page.draft(FIRST_WORDS)}>Ask for a table</button>
    </div>`;
  }

  _addCommands() {
    const { commands } = this._page;
    const active = () => this._page.store.state.loaded && this.stacks.active !== null;
    const command = (id, title, run, more = {}) => commands.add({ id: `canvas.${id}`, title, group: 'Canvas', run, ...more });
    command('new-stack', 'New stack', () => this.stacks.create(), { keys: 'n s' });
    command('rename-stack', 'Rename this stack', () => this.stacks.rename(this.stacks.active), { when: active });
    command('archive-stack', 'Archive this stack', () => this.stacks.archive(this.stacks.active), { when: active });
    command('next-stack', 'Next stack', () => this._step(1), { keys: ']', when: active });
    command('previous-stack', 'Previous stack', () => this._step(-1), { keys: '[', when: active });
    command('archived', 'Archived stacks and cards', () => void this._showArchived());
    commands.provide('Cards', (query) => this._cardsLike(query));
  }

  _step(by) {
    const stack = this.stacks.step(by);
    if (stack === null) return;
    this._page.openPanel('canvas');
    const cards = [...this._page.store.state.cards.values()];
    const count = cards.filter((card) => card.stack_id === stack.stack_id && !card.archived).length;
    this._page.announce(`Stack ${stack.name}, ${plural(count, 'card')}`);
  }

  _cardsLike(query) {
    const wanted = query.trim().toLowerCase();
    if (wanted === '') return [];
    const cards = [...this._page.store.state.cards.values()];
    return cards
      .filter((card) => !card.archived && card.title.toLowerCase().includes(wanted))
      .slice(0, 8)
      .map((card) => ({ title: card.title, hint: 'Card', run: () => this._page.openCard(card.card_id) }));
  }
}

const LOADING = html`<div class="canvas-loading" role="status" aria-label="The canvas is loading">
  <div class="skeleton"></div>
  <div class="skeleton"></div>
  <div class="skeleton"></div>
</div>`;

const ALL_CLEAR = html`<div class="empty">
  <h3>An empty stack</h3>
  <p>While this stack is in front, the cards you ask for are drawn here.</p>
</div>`;

const unreachable = (link) => html`<div class="empty">
  <h3>The canvas cannot be reached</h3>
  <p>${link.detail || 'There is no connection to your sprite.'} Your cards are safe there, and appear as soon as it answers.</p>
</div>`;
