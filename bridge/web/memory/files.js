// The six memory files: a list with their fill levels, and one open file to read, edit, view its versions, or decide on
// its changes on disk.

import { ago, iso } from '../format.js';
import { icon } from '../icons.js';
import { renderMarkdown } from '../markdown.js';
import { evenOutline } from '../outline.js';
import { wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { DriftNotice, hasDrift } from './drift.js';
import { Editor, hasDraft } from './editor.js';
import { gauge, linesOf } from './gauge.js';
import { FILES } from './labels.js';
import { Versions } from './versions.js';
import { LOADING, unreachable, View } from './view.js';

/** @import { FileState, MemoryActs, MemoryClient, MemoryFile, Page } from '../types/page.js' */

const FIRST = 'user.md';

export class Files extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {FileState[]} */
  #files = [];
  /** @type {string} */
  #name;
  /** @type {(MemoryFile & { element: HTMLElement }) | null} */
  #file = null;
  /** @type {DriftNotice | null} */
  #drift = null;
  /** @type {string | null} */
  #fileProblem = null;
  /**
   * The editor or the list of versions in place of the file: at most one of them.
   * @type {Editor | null}
   */
  #editor = null;
  /** @type {Versions | null} */
  #versions = null;
  /** On a narrow panel the list and the file take turns. */
  #inFile = false;
  #asked = 0;

  /** @param {Page} page @param {MemoryClient} client @param {MemoryActs} acts */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
    this.#name = FIRST;
  }

  async load() {
    const [files] = await Promise.all([this.client.files(), this.#fetch()]);
    this.#files = files;
  }

  forgetRows() {
    if (this.#editor) void this.#editor.changedMeanwhile();
    else this.stopEditing();
    this.invalidate();
  }

  /** Returns to reading, and fetches the file again. */
  stopEditing() {
    this.#close();
    this.#file = null;
    this.invalidate();
  }

  /**
   * Handles changes of files by others.
   * @param {string[]} names
   */
  changed(names) {
    if (names.includes(this.#name)) void this.#editor?.changedMeanwhile();
    this.invalidate();
  }

  /**
   * Opens a file, at a version if one is given.
   * @param {string} name
   * @param {number | null} [version]
   */
  async open(name, version = null) {
    if (!Object.hasOwn(FILES, name)) return;
    this.#inFile = true;
    if (name !== this.#name || this.#editor === null) {
      this.#name = name;
      this.#file = null;
      this.#close();
      await this.refresh();
      if (version !== null && this.#file) this.#openVersions(version);
    }
    this.draw();
    this.#focus();
  }

  #focus() {
    /** @type {HTMLElement | null} */
    const title = this.element.querySelector('.memory-file h3');
    title?.focus();
  }

  async #fetch() {
    this.#asked += 1;
    const asked = this.#asked;
    const name = this.#name;
    try {
      const file = await this.client.file(name);
      if (asked === this.#asked) this.#take(file);
      this.#fileProblem = null;
    } catch (problem) {
      if (asked === this.#asked) this.#fileProblem = wordsOf(problem);
    }
  }

  /** @param {MemoryFile} file */
  #take(file) {
    const before = this.#file?.name === file.name ? this.#drift : null;
    this.#file = { ...file, element: this.#grown(file, prose(file.content, this.#acts.why)) };
    this.#drift = null;
    if (!hasDrift(file)) return;
    this.#drift = before ?? new DriftNotice(this.page, this.client, file, (decided) => this.#settled(decided));
    this.#drift.update(file);
  }

  /** @param {MemoryFile} file */
  #settled(file) {
    if (this.#editor === null) {
      this.#read(file);
      this.#focus();
      return;
    }
    // The draft stays; the editor handles a change of the file as usual.
    this.#take(file);
    this.draw();
    this.#editor.focus();
  }

  /**
   * Highlights text that the former file did not have.
   * @param {MemoryFile} file
   * @param {HTMLElement} element
   */
  #grown(file, element) {
    if (this.#file?.name !== file.name || this.#file.content === file.content) return element;
    const before = new Set(pieces(this.#file.element).map((piece) => piece.textContent));
    for (const piece of pieces(element)) if (!before.has(piece.textContent)) piece.classList.add('grown');
    return element;
  }

  get #state() {
    return this.#files.find((file) => file.name === this.#name);
  }

  get #isRead() {
    return this.#editor === null && this.#versions === null;
  }

  /** Returns to the file itself. */
  #close() {
    this.#editor = null;
    this.#versions = null;
  }

  #edit() {
    if (!this.#file || !this.#state) return;
    const file = { ...this.#file, limit: this.#state.limit };
    this.#close();
    this.#editor = new Editor(this.page, this.client, file, (saved) => {
      void this.#askAboutRemoved(file.content, saved?.content ?? file.content);
      this.#read(saved);
    });
    this.draw();
    this.#editor.focus();
  }

  /**
   * Offers to retire the learning of a line that the person removed.
   * @param {string} before
   * @param {string} after
   */
  async #askAboutRemoved(before, after) {
    const removed = before.split('\n').filter((line) => /^[-*] /.test(line) && !after.includes(line));
    for (const line of removed.slice(0, 3)) {
      const rows = await this.client.behind(line).catch(() => []);
      const row = rows.find((each) => each.superseded_by === null);
      if (!row) continue;
      const action = { label: 'No longer true', run: () => this.#acts.answer(row, 'retire') };
      this.page.toast({ text: `Sprite had learned this line: “${row.content}”`, action });
    }
  }

  /** @param {number | null} [version] */
  #openVersions(version = null) {
    if (!this.#file) return;
    /** @param {MemoryFile} saved */
    const restored = (saved) => this.#read(saved);
    this.#close();
    const acts = { openTurn: this.#acts.openTurn, restored };
    this.#versions = new Versions(this.page, this.client, this.#file, acts, version);
    this.draw();
  }

  /**
   * Returns to reading, with the saved file.
   * @param {MemoryFile | null} [saved]
   */
  #read(saved = null) {
    if (saved) this.#take(saved);
    this.#close();
    this.invalidate();
    this.draw();
  }

  template() {
    return html`<div class="files ${this.#inFile ? 'in-file' : ''}">
      <nav class="file-list" aria-label="Memory files">${this.#files.map((file) => this.#item(file))}</nav>
      <article class="memory-file" aria-label=${this.#name}>${this.#open()}</article>
    </div>`;
  }

  /** @param {FileState} file */
  #item(file) {
    return html`<button
      type="button"
      class="file-item"
      aria-current=${file.name === this.#name ? 'true' : 'false'}
      @click=${() => this.#choose(file.name)}
    >
      <span class="file-item-name"
        >${file.name}${hasDraft(file.name) ? html` <span class="badge warn">Not saved</span>` : nothing}${
          this.page.store.state.memory?.drift?.includes(file.name)
            ? html` <span class="badge warn">Waits for you</span>`
            : nothing
        }</span
      >
      <span class="small-text muted">${FILES[file.name] ?? ''}</span>
      ${gauge(file)}
      <span class="small-text tabular"
        >${linesOf(file)}${file.managed === 'curated' ? changedAgo(file) : ' · comes with Sprite'}</span
      >
    </button>`;
  }

  /** @param {string} name */
  #choose(name) {
    this.#inFile = true;
    if (name === this.#name) {
      this.draw();
      return;
    }
    // An unsaved text of another file stays as a draft.
    this.#name = name;
    this.#file = null;
    this.#close();
    void this.refresh();
  }

  #back() {
    this.#inFile = false;
    this.draw();
  }

  #open() {
    const state = this.#state;
    const curated = state?.managed === 'curated';
    return html`
      <header class="memory-file-head">
        <button
          type="button"
          class="icon-button small back"
          aria-label="All files"
          title="All files"
          @click=${() => this.#back()}
        >
          ${icon('back', true)}
        </button>
        <h3 tabindex="-1">${this.#name}</h3>
        <span class="grow"></span>
        ${
          this.#file && curated && this.#isRead && this.#drift === null
            ? html`<button type="button" class="button small" @click=${() => this.#edit()}>
                ${icon('edit', true)}${hasDraft(this.#name) ? 'Go on editing' : 'Edit'}
              </button>`
            : nothing
        }
        ${this.#file && curated && this.#editor === null ? this.#versionsButton() : nothing}
      </header>
      ${
        curated || !state
          ? nothing
          : html`<p class="memory-note">
              Comes with Sprite, and memory never writes it. To change it, edit <code>.os/memory/${state.name}</code> in
              the workspace; updates then leave it alone.
            </p>`
      }
      ${this.#content()}
    `;
  }

  #versionsButton() {
    const there = this.#versions !== null;
    const turn = () => (there ? this.#read() : this.#openVersions());
    return html`<button type="button" class="button small quiet" @click=${turn}>
      ${there ? 'Back to the file' : html`${icon('history', true)}Versions`}
    </button>`;
  }

  #content() {
    const part = this.#editor ?? this.#versions;
    if (part) return html`${this.#drift?.element} ${part.element}`;
    if (this.#file)
      return html`${this.#drift?.element}
      ${this.#file.content.trim() === '' ? html`<p class="memory-note">Empty.</p>` : this.#file.element}`;
    return this.#fileProblem === null ? LOADING : unreachable(this.#fileProblem, () => void this.refresh());
  }
}

/** @param {FileState} file */
const changedAgo = ({ updated_at: at }) => (at ? html` · <time datetime=${iso(at)}>${ago(at)}</time>` : nothing);

/** @param {HTMLElement} element */
const pieces = (element) => [...element.querySelectorAll('p, li, td, pre')];

/** @param {string} content @param {(line: string) => unknown} why */
function prose(content, why) {
  const text = renderMarkdown(content, { heading: 4 });
  const element = elementOf(html`<div class="prose memory-prose">${text}</div>`);
  evenOutline(element, 3);
  for (const item of element.querySelectorAll('li')) {
    const line = (item.firstChild?.textContent ?? '') && item.textContent;
    if (line)
      item.append(' ', elementOf(button('Why?', () => why(line), { look: 'quiet why', label: `Why: ${line}` })));
  }
  return element;
}
