// A file that changed on disk while the agent worked: the reason, the difference, and the person's decision.

import { ago, iso } from '../format.js';
import { codeOf, wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { diffElement, diffOf } from './diff.js';

/** @import { Drifted, FileResult, MemoryClient, MemoryFile, Page } from '../types/page.js' */

const AT_WORK = 'The agent may have written this, or a program that it ran.';

/** @typedef {FileResult & { drift: string, drifted: Drifted }} DriftedFile */

export class DriftNotice {
  /** @type {Page} */
  #page;
  /** @type {MemoryClient} */
  #client;
  /** @type {(file: MemoryFile) => void} */
  #decided;
  /** @type {DriftedFile} */
  #file;
  /** @type {HTMLElement | null} */
  #diff = null;
  #busy = false;
  /** @type {string | null} */
  #problem = null;

  /**
   * `decided(file)` is called with the current file once no change waits any more.
   * @param {Page} page
   * @param {MemoryClient} client
   * @param {DriftedFile} file
   * @param {(file: MemoryFile) => void} decided
   */
  constructor(page, client, file, decided) {
    this.#page = page;
    this.#client = client;
    this.#decided = decided;
    this.#file = file;
    this.element = elementOf(
      html`<div class="memory-banner warn drift" role="group" aria-label="${file.name}, changed on disk"></div>`,
    );
    void this.#compare();
  }

  /**
   * Shows the newly fetched file; an unchanged view stays, with its keyboard focus.
   * @param {DriftedFile} file
   */
  update(file) {
    const { content, drifted } = this.#file;
    if (content === file.content && drifted.curation_id === file.drifted.curation_id) return;
    this.#file = file;
    void this.#compare();
  }

  async #compare() {
    const file = this.#file;
    this.#diff = null;
    this.#draw();
    try {
      const lines = await diffOf(file.content, file.drift);
      if (file !== this.#file) return;
      this.#diff = diffElement(lines, `What would change in ${file.name}`);
    } catch {
      this.#problem = 'The change could not be shown. Is the bridge running?';
    }
    this.#draw();
  }

  /** @param {'accept' | 'reject'} word */
  async #decide(word) {
    const { name, drifted } = this.#file;
    this.#busy = true;
    this.#problem = null;
    this.#draw();
    try {
      const file = await this.#client.decide(word, name, drifted.curation_id);
      const text = word === 'accept' ? `${name} now has the content on disk.` : `${name} has its old content again.`;
      this.#page.toast({ kind: 'success', text });
      this.#decided(file);
    } catch (problem) {
      if (['conflict', 'not_found'].includes(codeOf(problem) ?? '')) await this.#lookAgain();
      else this.#problem = `Nothing was changed: ${wordsOf(problem)}`;
    }
    this.#busy = false;
    this.#draw();
  }

  /** Handles a further change, or a decision elsewhere. */
  async #lookAgain() {
    try {
      const file = await this.#client.file(this.#file.name);
      if (hasDrift(file)) {
        this.#problem = 'The file has changed again. This is the newest version.';
        this.update(file);
      } else {
        this.#page.toast({ text: `${file.name} has been decided on already.` });
        this.#decided(file);
      }
    } catch (problem) {
      this.#problem = wordsOf(problem);
    }
  }

  #draw() {
    const { name, drifted } = this.#file;
    render(
      html`
        <div class="grow">
          <p>
            <strong>${name} changed on disk while the agent was at work</strong>,
            found <time datetime=${iso(drifted.at)}>${ago(drifted.at)}</time>.
          </p>
          <p>
            ${AT_WORK}
            It is not part of memory until you decide:
            <em>Accept</em> saves it as your edit, <em>Discard</em> restores the file.
          </p>
        </div>
        ${this.#diff ?? html`<p class="memory-note" role="status">Comparing…</p>`}
        ${this.#problem ? html`<p class="bad-words" role="alert">${this.#problem}</p>` : nothing}
        <div class="row">
          ${this.#button('accept', 'Accept', this.#diff === null)} ${this.#button('reject', 'Discard')}
        </div>
      `,
      this.element,
    );
  }

  /** @param {'accept' | 'reject'} word @param {string} label @param {boolean} [isUnseen] */
  #button(word, label, isUnseen = false) {
    return html`<button
      type="button"
      class="button small"
      aria-label="${label} the change of ${this.#file.name}"
      ?disabled=${this.#busy || isUnseen}
      @click=${() => this.#decide(word)}
    >
      ${label}
    </button>`;
  }
}

/**
 * Whether a change on disk waits for the person's decision.
 * @param {MemoryFile} file
 * @returns {file is DriftedFile}
 */
export const hasDrift = (file) => Boolean(file.drifted) && typeof file.drift === 'string';
