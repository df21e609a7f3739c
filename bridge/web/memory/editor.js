// Edit one curated file: text is never lost, and never overwrites another change unseen.

import { drafts } from '../drafts.js';
import { bytes, number } from '../format.js';
import { codeOf, wordsOf } from '../problem.js';
import { elementOf, typedIn } from '../template.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { diffElement, diffOf } from './diff.js';
import { lineCount } from './labels.js';

/** @import { MemoryClient, MemoryFile, Page } from '../types/page.js' */

/** Most bytes of a curated file, equal to the writer's limit. */
const MOST_BYTES = 16_000;
/** @typedef {{ text: string, version: number }} Draft */

/**
 * Whether a file has an unsaved draft.
 * @param {string} name
 */
export const hasDraft = (name) => drafts.get(name) !== null;

export class Editor {
  /** @type {Page} */
  #page;
  /** @type {MemoryClient} */
  #client;
  /** @type {(saved: MemoryFile | null) => void} */
  #done;
  /** @type {MemoryFile & { limit: number }} */
  #file;
  /** @type {string} */
  #text;
  /** @type {number} */
  #base;
  /** @type {MemoryFile | null} */
  #theirs;
  /** @type {HTMLElement | null} */
  #comparison = null;
  #busy = false;
  /** @type {string | null} */
  #problem = null;

  /**
   * `file` is the opened file; `done(saved)` is called at the end, with the new file or null.
   * @param {Page} page
   * @param {MemoryClient} client
   * @param {MemoryFile & { limit: number }} file
   * @param {(saved: MemoryFile | null) => void} done
   */
  constructor(page, client, file, done) {
    this.#page = page;
    this.#client = client;
    this.#done = done;
    this.#file = file;
    /** @type {Draft | null} */
    const draft = drafts.get(file.name);
    this.#text = draft?.text ?? file.content;
    this.#base = draft?.version ?? file.version;
    this.#theirs = draft !== null && draft.version !== file.version ? file : null;
    this.element = elementOf(html`<div class="editor"></div>`);
    this.#draw();
  }

  get changed() {
    return this.#text !== this.#file.content;
  }

  focus() {
    this.element.querySelector('textarea')?.focus();
  }

  /** Handles a change of the file on the server while it is open here. */
  async changedMeanwhile() {
    if (this.#busy) return;
    try {
      const theirs = await this.#client.file(this.#file.name);
      // A forget changes the content of a version, not its number.
      if (theirs.version !== this.#base || theirs.content !== this.#file.content) this.#conflict(theirs);
    } catch {
      // Saving will report it.
    }
  }

  /** @param {MemoryFile} theirs */
  #conflict(theirs) {
    this.#theirs = theirs;
    this.#comparison = null;
    this.#page.announce(`${this.#file.name} has changed meanwhile. What you typed is still here.`);
    this.#draw();
  }

  /** @param {string} text */
  #type(text) {
    this.#text = text;
    drafts.keep(this.#file.name, { text, version: this.#base });
    this.#problem = null;
    this.#draw();
  }

  async #save() {
    this.#busy = true;
    this.#problem = null;
    this.#draw();
    try {
      const saved = await this.#client.edit(this.#file.name, this.#text, this.#base);
      drafts.drop(this.#file.name);
      this.#page.toast({
        kind: 'success',
        text: `${this.#file.name} is saved. The agent knows it from its next session on.`,
      });
      this.#done(saved);
      return;
    } catch (problem) {
      if (codeOf(problem) === 'conflict') await this.#fetchTheirs();
      else this.#problem = wordsOf(problem);
    }
    this.#busy = false;
    this.#draw();
  }

  async #fetchTheirs() {
    try {
      this.#conflict(await this.#client.file(this.#file.name));
    } catch (problem) {
      this.#problem = wordsOf(problem);
    }
  }

  async #compare() {
    const theirs = this.#theirs;
    if (theirs === null) return;
    try {
      const lines = await diffOf(theirs.content, this.#text);
      this.#comparison = diffElement(lines, 'From the current file to your text');
    } catch {
      this.#problem = 'The comparison could not be loaded. Is the bridge running?';
    }
    this.#draw();
  }

  /** Saves the person's text over the current version, which they have seen. */
  #keepMine() {
    if (this.#theirs === null) return;
    this.#base = this.#theirs.version;
    this.#theirs = null;
    this.#comparison = null;
    void this.#save();
  }

  async #takeTheirs() {
    const sure = await this.#page.confirm({
      title: 'Discard what you typed?',
      body: `${this.#file.name} stays as it is now.`,
      confirm: 'Discard it',
      danger: true,
    });
    if (sure) this.#close();
  }

  async #cancel() {
    if (this.changed) {
      const sure = await this.#page.confirm({
        title: 'Discard your changes?',
        body: 'Your changes are not saved.',
        confirm: 'Discard them',
        danger: true,
      });
      if (!sure) return;
    }
    this.#close();
  }

  #close() {
    drafts.drop(this.#file.name);
    this.#done(null);
  }

  #draw() {
    const lines = lineCount(this.#text);
    const size = new TextEncoder().encode(this.#text).length;
    const over = lines > this.#file.limit || size > MOST_BYTES;
    render(
      html`
        ${this.#theirs ? this.#choice(this.#theirs) : nothing}
        <textarea
          class="input mono"
          spellcheck="true"
          aria-label="Content of ${this.#file.name}"
          aria-describedby="editor-size"
          .value=${live(this.#text)}
          @input=${(/** @type {InputEvent} */ event) => this.#type(typedIn(event))}
          @keydown=${(/** @type {KeyboardEvent} */ event) => this.#key(event)}
        ></textarea>
        ${
          this.#problem
            ? html`<p class="bad-words" role="alert">Not saved: ${this.#problem} What you typed is still here.</p>`
            : nothing
        }
        <div class="editor-foot">
          <span id="editor-size" class=${over ? 'bad-words tabular' : 'muted tabular'}
            >${number(lines)} of ${number(this.#file.limit)} lines, ${bytes(size)} of
            ${bytes(MOST_BYTES)}${over ? ': too long to save' : ''}</span
          >
          <span class="grow"></span>
          <button type="button" class="button quiet" ?disabled=${this.#busy} @click=${() => this.#cancel()}>
            Cancel
          </button>
          <button
            type="button"
            class="button primary"
            ?disabled=${this.#busy || over || !this.changed || this.#theirs !== null}
            @click=${() => this.#save()}
          >
            ${this.#busy ? 'Saving…' : 'Save'}
          </button>
        </div>
      `,
      this.element,
    );
  }

  /** @param {MemoryFile} theirs */
  #choice(theirs) {
    return html`<div class="memory-banner warn conflict" role="alert">
      <p class="grow">
        <strong>${this.#file.name} has changed while you were writing</strong> (it is at version ${theirs.version}
        now). What you typed is still here. Which version do you want to keep?
      </p>
      <div class="row">
        <button type="button" class="button small" @click=${() => this.#compare()}>Compare</button>
        <button type="button" class="button small" ?disabled=${this.#busy} @click=${() => this.#keepMine()}>
          Save mine
        </button>
        <button type="button" class="button small" @click=${() => this.#takeTheirs()}>Take theirs</button>
      </div>
      ${this.#comparison}
    </div>`;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === 's' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!this.#busy && this.changed && this.#theirs === null) void this.#save();
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      void this.#cancel();
    }
  }
}
