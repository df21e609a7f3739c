// The memory panel: a search and five views, and the to-do list beside it; it announces new learnings.
//
// All elements are made with lit templates: lists and forms are redrawn as a whole from memory's answers.

import { ENDED } from '../chat/conversation.js';
import { dropDrafts } from '../drafts.js';
import { plural } from '../format.js';
import { wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { Actions } from './actions.js';
import { createClient } from './client.js';
import { Files } from './files.js';
import { forget, forgetWords } from './forget.js';
import { Head, ORDER, TABS } from './head.js';
import { Health } from './health.js';
import { TYPES } from './labels.js';
import { learningRow } from './learning_row.js';
import { Learnings } from './learnings.js';
import { Search } from './search.js';
import { Timeline } from './timeline.js';
import { showTurn } from './turn.js';
import { UserFiles } from './user_files.js';

/** @import { CurationRow, ForgetTarget, MemoryActs, MemoryClient, MemoryUpdate, Page } from '../types/page.js' */
/** @import { Tab } from './head.js' */

/** A turn reaches the log a moment after its end is announced. */
const LOGGED_MS = 400;
const LEAST_QUERY = 3;
const PALETTE_HITS = 5;
const NO_SOURCE = 'There is no learning for this line: you wrote it yourself, or it came with Sprite.';

/**
 * Builds the panel in `root`, and the to-do list in `todo`.
 * @param {HTMLElement} root
 * @param {HTMLElement} todo
 * @param {Page} page
 */
export function mountMemory(root, todo, page) {
  const memory = new Memory(root, todo, page);
  return {
    shown: () => memory.show(true),
    hidden: () => memory.show(false),
    /** @param {number} id */
    openTurn: (id) => memory.openTurn(id),
    /** @param {string} name */
    openFile: (name) => memory.openFile(name),
    /** @param {number} id */
    openLearning: (id) => memory.openLearning(id),
    /** @param {string} query */
    search: (query) => memory.search(query),
    flush: () => memory.flush(),
    actions: memory.actions,
  };
}

class Memory {
  /** @type {Page} */
  #page;
  /** @type {MemoryClient} */
  #client;
  #visible = false;
  /** @type {Tab} */
  #tab = 'learnings';
  #query = '';
  #flushing = false;
  /** Number of learnings since the person last viewed them. */
  #unseen = 0;
  /** @type {MemoryActs} */
  #acts;
  /** @type {Search} */
  #search;
  #views;
  /** @type {Head} */
  #head;

  /** @param {HTMLElement} root @param {HTMLElement} todo @param {Page} page */
  constructor(root, todo, page) {
    this.#page = page;
    this.#client = createClient(page);
    /** @type {MemoryActs} */
    const acts = {
      openTurn: (id, quote = null) => this.openTurn(id, quote),
      openFile: (name, version) => this.openFile(name, version),
      openLearning: (id) => this.openLearning(id),
      openLearningsOf: (curation) => this.#openLearningsOf(curation),
      answer: (row, action) => page.answerLearning(row, action),
      why: (line) => this.#why(line),
      forget: (row) => this.#forget({ learning: row.id }, `“${row.content}”`),
      forgetWords: () => this.#forgetWords(),
      flush: () => this.flush(),
      draft: (text) => page.draft(text),
    };
    this.#acts = acts;
    this.#search = new Search(page, this.#client, acts);
    this.#views = {
      files: new Files(page, this.#client, acts),
      learnings: new Learnings(page, this.#client, acts),
      timeline: new Timeline(page, this.#client, acts),
      documents: new UserFiles(page, this.#client, acts),
      health: new Health(page, this.#client, acts),
    };
    this.actions = new Actions(page, this.#client, acts);
    todo.classList.add('memory');
    render(html`<h2 class="visually-hidden">To do</h2>${this.actions.element}`, todo);
    this.#head = new Head({
      type: (query) => this.#type(query),
      choose: (tab) => this.#choose(tab),
      flush: () => void this.flush(),
      results: () => this.#search.focus(),
    });
    root.classList.add('memory');
    render(
      html`<h2 class="visually-hidden">Memory</h2>
        ${this.#head.element}
        <div class="memory-body" id="memory-body" role="tabpanel">
          ${[...Object.values(this.#views), this.#search].map((view) => view.element)}
        </div>`,
      root,
    );
    this.#listen();
    this.#addCommands();
    this.#drawHead();
  }

  #listen() {
    const { store } = this.#page;
    store.subscribe(['memory', 'link', 'loaded'], () => this.#drawHead());
    store.listen('memory_update', (update) => this.#changed(update));
    store.listen('action_update', ({ action }) => {
      this.actions.changed(action);
      this.#views.timeline.invalidate();
      this.#views.health.invalidate();
    });
    store.listen('agent_event', (event) => {
      if (!ENDED.has(event.event)) return;
      this.#views.timeline.invalidate(LOGGED_MS);
      this.#views.documents.invalidate(LOGGED_MS);
      this.#views.health.invalidate(LOGGED_MS);
      if (this.#query !== '') this.#search.invalidate(LOGGED_MS);
    });
    store.listen('ack', ({ path }) => path && this.#views.documents.invalidate());
    // Reset after a forget or a long absence: the shown data may be gone.
    store.listen('state_sync', () => {
      for (const view of [this.actions, ...Object.values(this.#views)]) view.forgetRows();
      if (this.#query !== '') this.#search.invalidate();
    });
  }

  /** @param {boolean} visible */
  show(visible) {
    this.#visible = visible;
    this.#drawHead();
    this.#apply();
  }

  /**
   * Handles a change of memory by a curation, an edit, or another page.
   * @param {MemoryUpdate} update
   */
  #changed({ files, learnings, answered = [] }) {
    const views = this.#views;
    if (answered.length > 0) views.learnings.answered(answered);
    views.files.changed(files);
    if (learnings.length > 0) {
      views.learnings.learned(learnings);
      if (!this.#looksAt('learnings')) this.#unseen += learnings.length;
    }
    this.actions.invalidate();
    views.timeline.invalidate();
    views.health.invalidate();
    if (this.#query !== '') this.#search.invalidate();
    this.#drawHead();
  }

  // --- opening ---

  /** @param {number} id @param {string | null} [quote] */
  async openTurn(id, quote = null) {
    const unwanted = await showTurn(this.#page, this.#client, id, quote);
    if (unwanted === null) return;
    await this.#forget(
      unwanted,
      unwanted.turn === undefined ? 'This session, with all its turns,' : `Turn ${unwanted.turn}`,
    );
  }

  /** @param {string} name @param {number | null} [version] */
  async openFile(name, version = null) {
    this.#choose('files');
    await this.#views.files.open(name, version);
  }

  /** @param {number} id */
  async openLearning(id) {
    this.#choose('learnings');
    await this.#views.learnings.open(id);
  }

  /** @param {CurationRow} curation */
  async #openLearningsOf(curation) {
    this.#choose('learnings');
    await this.#views.learnings.openOf(curation);
  }

  /**
   * Focuses the search, with a query if there is one.
   * @param {string} [query]
   */
  search(query = '') {
    if (query) this.#type(query);
    this.#head.focus();
  }

  /** @param {string} line */
  async #why(line) {
    /**
     * Closes the dialog before an action that opens something else.
     * @template {unknown[]} A
     * @param {(...given: A) => unknown} act
     */
    const closing =
      (act) =>
      (/** @type {A} */ ...given) => {
        body.closest('dialog')?.close();
        return act(...given);
      };
    const { answer, forget, openLearning } = this.#acts;
    const acts = {
      ...this.#acts,
      answer: closing(answer),
      forget: closing(forget),
      openLearning: closing(openLearning),
    };
    const body = elementOf(html`<div class="learnings"></div>`);
    try {
      const rows = await this.#client.behind(line);
      render(rows.length ? rows.map((row) => learningRow(row, acts)) : html`<p>${NO_SOURCE}</p>`, body);
    } catch (problem) {
      render(html`<p class="bad-text">${wordsOf(problem)}</p>`, body);
    }
    await this.#page.dialog({ title: `Why “${line}”?`, body, wide: true, actions: [{ label: 'Close', value: null }] });
  }

  /** @param {ForgetTarget} target @param {string} what */
  async #forget(target, what) {
    if (await forget(this.#page, this.#client, target, what)) this.#dropDrafts();
  }

  async #forgetWords() {
    if (await forgetWords(this.#page, this.#client)) this.#dropDrafts();
  }

  /** Drops drafts, because they may contain forgotten text: a save would bring it back. */
  #dropDrafts() {
    dropDrafts();
    this.#views.files.stopEditing();
  }

  async flush() {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#drawHead();
    const before = this.#page.store.state.memory?.learnings ?? 0;
    try {
      const { memory, last_error: problem } = await this.#client.flush();
      if (memory.waiting > 0 && problem) this.#page.toast({ kind: 'error', text: `Nothing was learned: ${problem}` });
      else this.#sayLearned(memory.learnings - before);
    } catch (problem) {
      this.#page.toast({ kind: 'error', text: `Nothing was learned: ${wordsOf(problem)}` });
    }
    this.#flushing = false;
    this.#views.health.invalidate();
    this.#drawHead();
  }

  /** @param {number} count */
  #sayLearned(count) {
    if (count <= 0) {
      this.#page.toast({ kind: 'info', text: 'There was nothing new to learn.' });
      return;
    }
    const show = () => {
      this.#page.openPanel('memory');
      this.#choose('learnings');
    };
    const action = { label: 'Show', run: show };
    this.#page.toast({ kind: 'success', text: `Learned ${plural(count, 'thing')}.`, action });
  }

  // --- views ---

  /** @param {Tab} tab */
  #looksAt(tab) {
    return this.#visible && this.#tab === tab && this.#query === '';
  }

  /** @param {Tab} tab */
  #choose(tab) {
    this.#tab = tab;
    if (this.#query !== '') this.#type('');
    this.#drawHead();
    this.#apply();
  }

  #apply() {
    const searching = this.#query !== '';
    const wanted = !this.#visible ? null : searching ? this.#search : this.#views[this.#tab];
    for (const view of [...Object.values(this.#views), this.#search]) {
      if (view !== wanted && view.visible) view.hide();
    }
    if (wanted !== null && !wanted.visible) wanted.show();
    if (this.#looksAt('learnings') && this.#unseen > 0) {
      this.#unseen = 0;
      this.#drawHead();
    }
  }

  /** @param {string} query */
  #type(query) {
    this.#query = query;
    if (query.trim() === '') this.#query = '';
    this.#search.type(query);
    this.#drawHead();
    this.#apply();
  }

  #drawHead() {
    this.#head.draw({
      tab: this.#query === '' ? this.#tab : null,
      query: this.#query,
      unseen: this.#unseen,
      flushing: this.#flushing,
      memory: this.#page.store.state.memory,
    });
  }

  #addCommands() {
    const { commands } = this.#page;
    for (const tab of ORDER) {
      const run = () => {
        this.#page.openPanel('memory');
        this.#choose(tab);
      };
      commands.add({ id: `memory.${tab}`, title: `Memory: ${TABS[tab]}`, group: 'Memory', run });
    }
    commands.provide('Memory', (query) => this.#hitsLike(query));
    commands.add({
      id: 'memory.add-action',
      title: 'Add something to do…',
      group: 'Memory',
      run: () => {
        this.#page.openPanel('todo');
        this.actions.show();
        this.actions.add();
      },
    });
    commands.add({
      id: 'memory.flush',
      title: 'Learn now from the waiting turns',
      group: 'Memory',
      run: () => void this.flush(),
    });
    commands.add({
      id: 'memory.forget',
      title: 'Forget something…',
      group: 'Memory',
      run: () => void this.#forgetWords(),
    });
  }

  /** @param {string} query */
  async #hitsLike(query) {
    if (query.trim().length < LEAST_QUERY) return [];
    const found = await this.#client.search(query.trim()).catch(() => null);
    return (found?.hits ?? []).slice(0, PALETTE_HITS).map((hit) => ({
      title: hit.text.split('\n')[0] ?? '',
      hint: hit.kind === 'turn' ? `Turn ${hit.id}` : (TYPES[hit.type] ?? hit.type),
      run: () => {
        this.#page.openPanel('memory');
        if (hit.kind === 'turn') void this.openTurn(hit.id);
        else void this.openLearning(hit.id);
      },
    }));
  }
}
