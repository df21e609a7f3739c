// The memory panel: a search and five views; it says when something was learned.

import { plural } from '../format.js';
import { h } from '../dom.js';
import { Actions } from './actions.js';
import { dropDrafts } from './editor.js';
import { Files } from './files.js';
import { forget, forgetWords } from './forget.js';
import { Head, TABS } from './head.js';
import { Health } from './health.js';
import { createLedger } from './ledger.js';
import { Learnings } from './learnings.js';
import { Search } from './search.js';
import { Timeline } from './timeline.js';
import { showTurn } from './turn.js';
import { TYPES } from './words.js';

const ENDS = new Set(['complete', 'interrupted', 'error']);
/** A turn is in the log a moment after its end is told. */
const LOGGED_MS = 400;
const LEAST_QUERY = 3;
const PALETTE_HITS = 5;

/** Builds the panel in `root`; see the page's interface for `page` and for what is returned. */
export function mountMemory(root, page) {
  const memory = new Memory(root, page);
  return {
    shown: () => memory.show(true),
    hidden: () => memory.show(false),
    openTurn: (id) => memory.openTurn(id),
    openFile: (name) => memory.openFile(name),
    openLearning: (id) => memory.openLearning(id),
    search: (query) => memory.search(query),
  };
}

class Memory {
  constructor(root, page) {
    this._page = page;
    this._ledger = createLedger(page);
    this._visible = false;
    this._tab = 'files';
    this._query = '';
    this._flushing = false;
    /** Learnings that came while nobody looked at them. */
    this._unseen = 0;
    const acts = {
      openTurn: (id, quote = null) => this.openTurn(id, quote),
      openFile: (name, version) => this.openFile(name, version),
      openLearning: (id) => this.openLearning(id),
      openLearningsOf: (curation) => this._openLearningsOf(curation),
      forget: (row) => this._forget({ learning: row.id }, `“${row.content}”`),
      forgetWords: () => this._forgetWords(),
      flush: () => this._flush(),
      draft: (text) => page.draft(text),
    };
    const made = (Part) => new Part(page, this._ledger, acts);
    this._search = made(Search);
    this._views = {
      files: made(Files),
      learnings: made(Learnings),
      timeline: made(Timeline),
      actions: made(Actions),
      health: made(Health),
    };
    this._head = new Head({
      type: (query) => this._type(query),
      choose: (tab) => this._choose(tab),
      flush: () => void this._flush(),
      results: () => this._search.element.querySelector('.hit-main')?.focus(),
    });
    this._body = h('div', { class: 'memory-body', id: 'memory-body', role: 'tabpanel' });
    this._body.append(...Object.values(this._views).map((view) => view.element), this._search.element);
    root.classList.add('memory');
    root.append(h('h2', { class: 'visually-hidden' }, 'Memory'), this._head.element, this._body);
    this._listen();
    this._addCommands();
    this._drawHead();
  }

  _listen() {
    const { store } = this._page;
    store.subscribe(['memory', 'link', 'loaded'], () => this._drawHead());
    store.listen('memory_update', (update) => this._changed(update));
    store.listen('agent_event', (event) => {
      if (!ENDS.has(event.event)) return;
      this._views.timeline.invalidate(LOGGED_MS);
      this._views.health.invalidate(LOGGED_MS);
      if (this._query !== '') this._search.invalidate(LOGGED_MS);
    });
    // Told anew, after a forget or a long absence: what is shown here may be what is gone.
    store.listen('state_sync', () => {
      for (const view of Object.values(this._views)) (view.forgetRows ?? view.invalidate).call(view);
      if (this._query !== '') this._search.invalidate();
    });
  }

  show(visible) {
    this._visible = visible;
    this._drawHead();
    this._apply();
  }

  /** Memory has changed, by a curation, an edit, or somebody on another page. */
  _changed({ files, learnings }) {
    const { _views: views } = this;
    views.files.changed(files);
    if (learnings.length > 0) {
      views.learnings.learned(learnings);
      if (!this._looksAt('learnings')) this._unseen += learnings.length;
    }
    views.actions.invalidate();
    views.timeline.invalidate();
    views.health.invalidate();
    if (this._query !== '') this._search.invalidate();
    this._drawHead();
  }

  // --- opening ---

  async openTurn(id, quote = null) {
    const unwanted = await showTurn(this._page, this._ledger, id, quote);
    if (unwanted === null) return;
    await this._forget(unwanted, unwanted.turn === undefined ? 'This session, with all its turns,' : `Turn ${unwanted.turn}`);
  }

  async openFile(name, version = null) {
    this._choose('files');
    await this._views.files.open(name, version);
  }

  async openLearning(id) {
    this._choose('learnings');
    await this._views.learnings.open(id);
  }

  async _openLearningsOf(curation) {
    this._choose('learnings');
    await this._views.learnings.openOf(curation);
  }

  /** Puts the keyboard into the search, with words if there are any. */
  search(query = '') {
    if (query) this._type(query);
    this._head.focus();
  }

  async _forget(target, what) {
    if (await forget(this._page, this._ledger, target, what)) this._dropDrafts();
  }

  async _forgetWords() {
    if (await forgetWords(this._page, this._ledger)) this._dropDrafts();
  }

  /** What was typed before may hold what is forgotten now: a save would bring it back. */
  _dropDrafts() {
    dropDrafts();
    this._views.files.stopEditing();
  }

  async _flush() {
    if (this._flushing) return;
    this._flushing = true;
    this._drawHead();
    const before = this._page.store.state.memory?.learnings ?? 0;
    try {
      const { memory, last_error: problem } = await this._ledger.flush();
      if (memory.waiting > 0 && problem) this._page.toast({ kind: 'error', text: `Nothing was learned: ${problem}` });
      else this._sayLearned(memory.learnings - before);
    } catch (problem) {
      this._page.toast({ kind: 'error', text: `Nothing was learned: ${problem.message}` });
    }
    this._flushing = false;
    this._views.health.invalidate();
    this._drawHead();
  }

  _sayLearned(count) {
    if (count <= 0) {
      this._page.toast({ kind: 'info', text: 'There was nothing new to learn.' });
      return;
    }
    const action = { label: 'Show', run: () => (this._page.openPanel('memory'), this._choose('learnings')) };
    this._page.toast({ kind: 'success', text: `Learned ${plural(count, 'thing')}.`, action });
  }

  // --- views ---

  _looksAt(tab) {
    return this._visible && this._tab === tab && this._query === '';
  }

  _choose(tab) {
    this._tab = tab;
    if (this._query !== '') this._type('');
    this._drawHead();
    this._apply();
  }

  _apply() {
    const searching = this._query !== '';
    const wanted = !this._visible ? null : searching ? this._search : this._views[this._tab];
    for (const view of [...Object.values(this._views), this._search]) {
      if (view !== wanted && view.visible) view.hide();
    }
    if (wanted !== null && !wanted.visible) wanted.show();
    if (this._looksAt('learnings') && this._unseen > 0) {
      this._unseen = 0;
      this._drawHead();
    }
  }

  _type(query) {
    this._query = query;
    if (query.trim() === '') this._query = '';
    this._search.type(query);
    this._drawHead();
    this._apply();
  }

  _drawHead() {
    this._head.draw({
      tab: this._query === '' ? this._tab : null,
      query: this._query,
      unseen: this._unseen,
      flushing: this._flushing,
      memory: this._page.store.state.memory,
    });
  }

  _addCommands() {
    const { commands } = this._page;
    for (const [tab, name] of Object.entries(TABS)) {
      const run = () => {
        this._page.openPanel('memory');
        this._choose(tab);
      };
      commands.add({ id: `memory.${tab}`, title: `Memory: ${name}`, group: 'Memory', run });
    }
    commands.provide('Memory', (query) => this._hitsLike(query));
    commands.add({ id: 'memory.flush', title: 'Learn from what waits now', group: 'Memory', run: () => void this._flush() });
    commands.add({ id: 'memory.forget', title: 'Forget something…', group: 'Memory', run: () => void this._forgetWords() });
  }

  async _hitsLike(query) {
    if (query.trim().length < LEAST_QUERY) return [];
    const { hits } = await this._ledger.search(query.trim()).catch(() => ({ hits: [] }));
    return hits.slice(0, PALETTE_HITS).map((hit) => ({
      title: hit.text.split('\n')[0],
      hint: hit.kind === 'turn' ? `Turn ${hit.id}` : (TYPES[hit.type] ?? hit.type),
      run: () => {
        this._page.openPanel('memory');
        if (hit.kind === 'turn') void this.openTurn(hit.id);
        else void this.openLearning(hit.id);
      },
    }));
  }
}
