// Learnings, newest first, with their evidence.

import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { PAGE } from './client.js';
import { TYPES } from './labels.js';
import { learningRow } from './learning_row.js';
import { Rows } from './rows.js';
import { nothingYet, View } from './view.js';

/** @import { CurationRow, LearningRow, MemoryActs, MemoryClient, Page } from '../types/page.js' */

/** Duration of a highlight. */
const FRESH_MS = 20_000;
const MARKED_MS = 4000;

export class Learnings extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {Rows<LearningRow>} */
  #rows;
  /** @type {Set<number>} */
  #fresh = new Set();
  /** @type {string | null} */
  #type = null;
  #busy = false;

  /** @param {Page} page @param {MemoryClient} client @param {MemoryActs} acts */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
    this.#rows = new Rows(PAGE);
  }

  /** Drops all rows, because the data has been reset. */
  forgetRows() {
    this.#rows.clear();
    this.#fresh.clear();
    this.loaded = false;
    this.invalidate();
  }

  /**
   * Adds new learnings; the learnings that they replace have changed, too.
   * @param {LearningRow[]} rows
   */
  learned(rows) {
    for (const row of rows) {
      this.#fresh.add(row.id);
      setTimeout(() => {
        this.#fresh.delete(row.id);
        this.draw();
      }, FRESH_MS);
    }
    if (this.loaded) this.#rows.put(rows);
    this.draw();
    this.invalidate(300);
  }

  /**
   * Shows the person's word on learnings.
   * @param {LearningRow[]} rows
   */
  answered(rows) {
    if (this.loaded) this.#rows.put(rows);
    this.draw();
  }

  async load() {
    this.#rows.renew(await this.client.learnings());
  }

  /**
   * Scrolls one learning into view, loading pages as needed.
   * @param {number} id
   */
  async open(id) {
    if (!this.loaded) await this.refresh();
    if (!this.#rows.get(id)) {
      const row = await this.attempt('The learning could not be opened', () => this.client.learning(id));
      if (row === null) {
        if (this.problem === null) this.page.toast({ kind: 'info', text: `Learning ${id} is no longer there.` });
        return;
      }
      this.#rows.put([row]);
    }
    this.#type = null;
    this.draw();
    /** @type {HTMLElement | null} */
    const element = this.element.querySelector(`#learning-${id}`);
    element?.scrollIntoView({ block: 'center' });
    element?.focus({ preventScroll: true });
    const mark = { outline: '2px solid var(--focus)', backgroundColor: 'var(--accent-soft)' };
    element?.animate([mark, { ...mark, offset: 0.7 }, {}], MARKED_MS);
  }

  /**
   * Scrolls the newest learning of a curation into view.
   * @param {CurationRow} curation
   */
  async openOf(curation) {
    if (!this.loaded) await this.refresh();
    const found = () => this.#rows.list.find((row) => row.curation_id === curation.id);
    // Learnings are numbered in the order of their curations.
    while (!found() && this.#rows.more && (this.#rows.list.at(-1)?.curation_id ?? 0) > curation.id) {
      if (!(await this.#older())) return;
    }
    const row = found();
    if (row) await this.open(row.id);
  }

  async #older() {
    this.#busy = true;
    this.draw();
    const rows = await this.attempt('Older ones could not be loaded', () => this.client.learnings(this.#rows.cursor));
    this.#busy = false;
    if (rows) this.#rows.append(rows);
    this.draw();
    return rows !== null;
  }

  template() {
    const all = this.#rows.list;
    if (all.length === 0) {
      return nothingYet(
        'Nothing learned yet',
        'Tell the agent something about yourself. Sprite learns after a few ' +
          'turns or a pause, and whenever you ask.',
        { label: 'Tell it something', run: () => this.#acts.draft('I prefer short answers, and my name is ') },
      );
    }
    const rows = this.#type === null ? all : all.filter((row) => row.type === this.#type);
    return html`
      <div class="memory-filter" role="group" aria-label="Kind of learning">
        ${this.#chip(null, 'All')} ${Object.entries(TYPES).map(([type, name]) => this.#chip(type, name))}
      </div>
      ${
        rows.length === 0 ? html`<p class="memory-note">None of this kind among the newest ${all.length}.</p>` : nothing
      }
      <div class="learnings">
        ${repeat(
          rows,
          (row) => row.id,
          (row) => learningRow(row, this.#acts, { fresh: this.#fresh.has(row.id) }),
        )}
      </div>
      ${
        this.#rows.more
          ? html`<button type="button" class="button older" ?disabled=${this.#busy} @click=${() => this.#older()}>
              Older
            </button>`
          : html`<p class="memory-note">This is the oldest entry.</p>`
      }
    `;
  }

  /** @param {string | null} type @param {string} name */
  #chip(type, name) {
    const choose = () => {
      this.#type = type;
      this.draw();
    };
    return html`<button type="button" class="filter-chip" aria-pressed=${this.#type === type} @click=${choose}>
      ${name}
    </button>`;
  }
}
