// What was learned, newest first, with its evidence.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { PAGE } from './ledger.js';
import { learningRow } from './learning_row.js';
import { Rows } from './rows.js';
import { View, nothingYet } from './view.js';
import { TYPES } from './words.js';

/** A highlight lasts so long. */
const FRESH_MS = 20_000;

export class Learnings extends View {
  /** `acts`: openTurn, forget, openLearning, draft. */
  constructor(page, ledger, acts) {
    super(page, ledger);
    this._acts = acts;
    this._rows = new Rows(PAGE);
    this._fresh = new Set();
    this._type = null;
    this._busy = false;
  }

  /** Everything is as it was told anew: nothing that was fetched before is believed. */
  forgetRows() {
    this._rows.clear();
    this._fresh.clear();
    this.loaded = false;
    this.invalidate();
  }

  /** Rows that have just been learned; what they replaced has changed with them. */
  learned(rows) {
    for (const row of rows) {
      this._fresh.add(row.id);
      setTimeout(() => {
        this._fresh.delete(row.id);
        this.draw();
      }, FRESH_MS);
    }
    if (this.loaded) this._rows.put(rows);
    this.draw();
    this.invalidate(300);
  }

  async load() {
    this._rows.renew(await this.ledger.learnings());
  }

  /** Brings one learning into sight, also one that is pages away. */
  async open(id) {
    if (!this.loaded) await this.refresh();
    if (!this._rows.get(id)) {
      const row = await this.attempt('The learning could not be opened', () => this.ledger.learning(id));
      if (row === null) {
        if (this.problem === null) this.page.toast({ kind: 'info', text: `Learning ${id} is no longer there.` });
        return;
      }
      this._rows.put([row]);
    }
    this._type = null;
    this.draw();
    const element = this.element.querySelector(`#learning-${id}`);
    element?.scrollIntoView({ block: 'center' });
    element?.focus({ preventScroll: true });
  }

  /** Brings the newest of what one curation taught into sight. */
  async openOf(curation) {
    if (!this.loaded) await this.refresh();
    const found = () => this._rows.list.find((row) => row.curation_id === curation.id);
    // Learnings are numbered in the order of the curations that gave them.
    while (!found() && this._rows.more && this._rows.list.at(-1)?.curation_id > curation.id) {
      if (!(await this._older())) return;
    }
    if (found()) await this.open(found().id);
  }

  async _older() {
    this._busy = true;
    this.draw();
    const rows = await this.attempt('Older ones could not be fetched', () => this.ledger.learnings(this._rows.cursor));
    this._busy = false;
    if (rows) this._rows.append(rows);
    this.draw();
    return rows !== null;
  }

  template() {
    const all = this._rows.list;
    if (all.length === 0) {
      return nothingYet(
        'Nothing learned yet',
        'Tell the agent something about yourself. What it hears is looked through for things to keep every few turns, at the end of a session, and whenever you ask.',
        { label: 'Tell it something', run: () => this._acts.draft('I prefer short answers, and my name is ') },
      );
    }
    const rows = this._type === null ? all : all.filter((row) => row.type === this._type);
    return html`
      <div class="memory-filter" role="group" aria-label="Kind of learning">
        ${this._chip(null, 'All')} ${Object.entries(TYPES).map(([type, name]) => this._chip(type, name))}
      </div>
      ${rows.length === 0 ? html`<p class="memory-note">None of this kind among the newest ${all.length}.</p>` : nothing}
      <div class="learnings">
        ${repeat(rows, (row) => row.id, (row) => learningRow(row, this._acts, { fresh: this._fresh.has(row.id) }))}
      </div>
      ${this._rows.more
        ? html`<button type="button" class="button older" ?disabled=${this._busy} @click=${() => this._older()}>Older</button>`
        : html`<p class="memory-note">That is where it began.</p>`}
    `;
  }

  _chip(type, name) {
    const choose = () => {
      this._type = type;
      this.draw();
    };
    return html`<button type="button" class="filter-chip" aria-pressed=${this._type === type} @click=${choose}>${name}</button>`;
  }
}
