// Search while typing: debounced, in the agent's own order, without late answers to earlier queries.

import { did } from '../chat/tools.js';
import { iso, plural, when } from '../format.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { TYPES, where } from './labels.js';
import { nothingYet, View } from './view.js';

/** @import { MemoryActs, MemoryClient, Page, SearchHit, SearchResult } from '../types/page.js' */

const PAUSE_MS = 180;

export class Search extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {AbortController | null} */
  #asked = null;
  #query = '';
  /** @type {(SearchResult & { query: string }) | null} */
  #found = null;
  /** @type {number | undefined} */
  #pause;

  /** @param {Page} page @param {MemoryClient} client @param {MemoryActs} acts */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
    this.loaded = true;
  }

  /** Focuses the first result. */
  focus() {
    /** @type {HTMLElement | null} */
    const first = this.element.querySelector('.hit-main');
    first?.focus();
  }

  /**
   * Searches for the current input.
   * @param {string} query
   */
  type(query) {
    this.#query = query.trim();
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => this.invalidate(), PAUSE_MS);
  }

  async load() {
    // Cancel the earlier query, so that its answer cannot arrive after this one.
    this.#asked?.abort();
    this.#asked = new AbortController();
    const query = this.#query;
    if (query === '') {
      this.#found = null;
      return;
    }
    const found = await this.client.search(query, this.#asked.signal);
    this.#found = { query, ...found };
    this.page.announce(found.hits.length === 0 ? 'Nothing found' : plural(found.hits.length, 'result'));
  }

  template() {
    const found = this.#found;
    if (found === null) return html`<p class="memory-note" role="status">Searching…</p>`;
    if (found.hits.length === 0) {
      const words = `No learning or turn matches “${found.query}”. Try fewer or other words.`;
      return html`${nothingYet('Nothing found', words)}
      ${notes(found)}
      ${waits(found)}`;
    }
    return html`
      <p class="memory-note">
        ${plural(found.hits.length, 'result')} for “${found.query}”, in the order the agent gets them
      </p>
      ${notes(found)}
      <ol class="plain hits">
        ${found.hits.map((hit) => this.#hit(hit))}
      </ol>
      ${waits(found)}
      <p class="memory-note">
        Narrow it inside the query: <code>type:correction</code> <code>since:2026-11-01</code>
        <code>before:2026-12-01</code> <code>project:web</code> <code>around:12</code>
      </p>
    `;
  }

  /** @param {SearchHit} hit */
  #hit(hit) {
    const learning = hit.kind === 'learning';
    const gone = hit.superseded_by !== undefined;
    const open = () =>
      hit.turn_id === null
        ? this.#acts.openLearning(hit.id)
        : this.#acts.openTurn(hit.turn_id, learning ? null : this.#query);
    return html`<li class="hit">
      <button type="button" class="hit-main" @click=${open}>
        <span class="hit-head">
          <span class="badge ${learning ? 'info' : ''}">${learning ? (TYPES[hit.type] ?? hit.type) : 'Turn'}</span>
          ${gone ? html`<span class="badge warn">No longer true</span>` : nothing}
          ${hit.unverified && !gone ? html`<span class="badge warn">Unverified</span>` : nothing}
          <time class="small-text muted" datetime=${iso(hit.at)}>${when(hit.at)}</time>
          ${
            hit.turn_id === null
              ? nothing
              : html`<span class="small-text muted">turn ${hit.turn_id}${where(hit)}</span>`
          }
        </span>
        <span class="hit-text ${gone ? 'gone' : ''}">${hit.text.replace(/\bmcp__\w+/gu, did)}</span>
      </button>
      ${
        learning
          ? html`<button type="button" class="link small-text" @click=${() => this.#acts.openLearning(hit.id)}>
              Show this learning
            </button>`
          : nothing
      }
    </li>`;
  }
}

/** Draws hints: other searches that were tried, or a filter without results. @param {SearchResult} found */
function notes(found) {
  return (found.notes ?? []).map((note) => html`<p class="memory-note">${note}</p>`);
}

/** @param {SearchResult} found */
const waits = ({ waiting }) =>
  waiting === 0
    ? nothing
    : html`<p class="memory-note">${plural(waiting, 'turn')} not learned from yet; search finds their words.</p>`;
