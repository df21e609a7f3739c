// The versions of one file: maker, reason, changes, and a button to restore.

import { iso, plural, when } from '../format.js';
import { codeOf, wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { diffElement, diffOf } from './diff.js';
import { turnRange } from './labels.js';

/** @import { CurationRow, MemoryClient, MemoryFile, Page, VersionRow } from '../types/page.js' */

/** @typedef {{ openTurn: (id: number) => unknown, restored: (file: MemoryFile) => void }} VersionActs */
/**
 * @typedef {object} Shown
 * @property {VersionRow} entry
 * @property {HTMLElement | null} diff  what it changed
 * @property {CurationRow | null} curation  what made it
 * @property {string | null} content
 */

export class Versions {
  /** @type {Page} */
  #page;
  /** @type {MemoryClient} */
  #client;
  /** @type {MemoryFile} */
  #current;
  /** @type {VersionActs} */
  #acts;
  /** @type {number | null} */
  #wanted;
  /** @type {VersionRow[] | null} */
  #history = null;
  /** @type {Shown | null} */
  #shown = null;
  /** @type {string | null} */
  #problem = null;
  #busy = false;

  /**
   * `current` is the current file; `acts`: openTurn(id), restored(file). Shows `version`, else the newest.
   * @param {Page} page
   * @param {MemoryClient} client
   * @param {MemoryFile} current
   * @param {VersionActs} acts
   * @param {number | null} [version]
   */
  constructor(page, client, current, acts, version = null) {
    this.#page = page;
    this.#client = client;
    this.#current = current;
    this.#acts = acts;
    this.#wanted = version;
    this.element = elementOf(html`<div class="versions"></div>`);
    this.#draw();
    void this.#load();
  }

  async #load() {
    try {
      this.#history = await this.#client.history(this.#current.name);
      const wanted = this.#history.find(({ version }) => version === this.#wanted) ?? this.#history[0];
      if (wanted) await this.#show(wanted);
    } catch (problem) {
      this.#problem = wordsOf(problem);
    }
    this.#draw();
  }

  /**
   * Shows the changes of a version, with the event that made it.
   * @param {VersionRow} entry
   */
  async #show(entry) {
    /** @type {Shown} */
    const shown = { entry, diff: null, curation: null, content: null };
    this.#shown = shown;
    this.#problem = null;
    this.#draw();
    try {
      const { name } = this.#current;
      const before = this.#history?.find(({ version }) => version === entry.version - 1);
      const [after, old, curation] = await Promise.all([
        this.#client.file(name, entry.version),
        before ? this.#client.file(name, before.version) : { content: '' },
        this.#client.curation(entry.curation_id),
      ]);
      shown.content = after.content;
      shown.curation = curation;
      shown.diff = diffElement(await diffOf(old.content, after.content), `What version ${entry.version} changed`);
    } catch (problem) {
      this.#problem = wordsOf(problem);
    }
    if (this.#shown === shown) this.#draw();
  }

  /** @param {Shown} shown */
  async #restore({ entry, content }) {
    if (content === null) return;
    this.#busy = true;
    this.#draw();
    try {
      const saved = await this.#client.edit(this.#current.name, content, this.#current.version);
      this.#page.toast({
        kind: 'success',
        text: `${this.#current.name} is as in version ${entry.version} again (version ${saved.version} now).`,
      });
      this.#acts.restored(saved);
      return;
    } catch (problem) {
      this.#problem =
        codeOf(problem) === 'conflict'
          ? 'The file has changed meanwhile: look at its newest version first.'
          : `Not restored: ${wordsOf(problem)}`;
      if (codeOf(problem) === 'conflict')
        this.#current = await this.#client.file(this.#current.name).catch(() => this.#current);
    }
    this.#busy = false;
    if (this.#problem !== null) await this.#load();
  }

  #draw() {
    render(this.#drawn(), this.element);
  }

  #drawn() {
    if (this.#history === null)
      return html`<p class="memory-note" role="status">${this.#problem ?? 'Loading the versions…'}</p>`;
    if (this.#history.length === 0)
      return html`<p class="memory-note">This is the original version. Nothing has changed it yet.</p>`;
    return html`<ol class="plain version-list" aria-label="Versions">
        ${this.#history.map((entry) => this.#item(entry))}
      </ol>
      <div class="version-shown">${this.#shown ? this.#version(this.#shown) : nothing}</div>`;
  }

  /** @param {VersionRow} entry */
  #item(entry) {
    const shown = this.#shown?.entry.version === entry.version;
    return html`<li>
      <button type="button" class="version-item" aria-pressed=${shown} @click=${() => this.#show(entry)}>
        <span class="version-name"
          ><strong>Version ${entry.version}</strong
          >${entry.version === this.#current.version ? html`<span class="badge ok">Now</span>` : nothing}</span
        >
        <span class="small-text muted"
          >${WHO[entry.source] ?? entry.source}, <time datetime=${iso(entry.at)}>${when(entry.at)}</time>,
          ${plural(entry.lines, 'line')}</span
        >
      </button>
    </li>`;
  }

  /** @param {Shown} shown */
  #version(shown) {
    const { entry, diff, content } = shown;
    const past = entry.version !== this.#current.version;
    return html`
      <div class="version-head">
        <p class="grow">${this.#why(shown)}</p>
        ${
          past
            ? html`<button
                type="button"
                class="button small"
                ?disabled=${this.#busy || content === null}
                @click=${() => this.#restore(shown)}
              >
                Restore version ${entry.version}
              </button>`
            : nothing
        }
      </div>
      ${this.#problem ? html`<p class="bad-words" role="alert">${this.#problem}</p>` : nothing}
      ${diff ?? html`<p class="memory-note" role="status">Comparing…</p>`}
    `;
  }

  /** @param {Shown} shown */
  #why({ entry, curation }) {
    if (entry.source === 'person') return BY_PERSON[String(curation?.detail.source)] ?? 'You wrote it here.';
    if (curation === null) return 'Written by the curator.';
    const { first_turn: first, last_turn: last, learnings } = curation;
    const learnt = learnings ? `, with ${plural(learnings, 'learning')}` : '';
    if (first === null || last === null) return `Written by the curator${learnt}.`;
    return html`Written by the curator after
      <button type="button" class="link" @click=${() => this.#acts.openTurn(last)}>${turnRange(first, last)}</button
      >${learnt}.`;
  }
}

/** @type {Record<string, string>} */
const BY_PERSON = {
  disk: 'You edited the file on disk.',
  accepted: 'The file changed on disk while the agent worked, and you accepted that.',
};
/** @type {Record<string, string>} */
const WHO = { curator: 'Curator', person: 'You' };
