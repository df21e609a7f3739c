// The six files of memory: a list with how full each is, and one of them open to be read, edited, or looked back on.

import { icon } from '../icons.js';
import { ago, iso } from '../format.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { h } from '../dom.js';
import { renderMarkdown } from '../markdown.js';
import { evenOutline } from '../outline.js';
import { Editor, hasDraft } from './editor.js';
import { gauge, linesOf } from './gauge.js';
import { Versions } from './versions.js';
import { LOADING, View, unreachable } from './view.js';
import { FILES } from './words.js';

const FIRST = 'user.md';

export class Files extends View {
  /** `acts`: openTurn(id). */
  constructor(page, ledger, acts) {
    super(page, ledger);
    this._acts = acts;
    this._files = [];
    this._name = FIRST;
    this._file = null;
    this._fileProblem = null;
    /** 'read', 'edit' or 'versions'. */
    this._mode = 'read';
    this._part = null;
    /** On a narrow panel the list and the file take turns. */
    this._inFile = false;
    this._asked = 0;
  }

  async load() {
    const [files] = await Promise.all([this.ledger.files(), this._mode === 'read' ? this._fetch() : null]);
    this._files = files;
  }

  /** Everything is told anew, say after a forget or a long absence. */
  forgetRows() {
    if (this._mode === 'edit') void this._part.changedMeanwhile();
    else this.stopEditing();
    this.invalidate();
  }

  /** Back to reading, with the file fetched anew. */
  stopEditing() {
    this._mode = 'read';
    this._part = null;
    this._file = null;
    this.invalidate();
  }

  /** Files that have been written by somebody. */
  changed(names) {
    if (names.includes(this._name) && this._mode === 'edit') void this._part.changedMeanwhile();
    this.invalidate();
  }

  /** Opens a file, at a version if one is named. */
  async open(name, version = null) {
    if (!Object.hasOwn(FILES, name)) return;
    this._inFile = true;
    if (name !== this._name || this._mode !== 'edit') {
      this._name = name;
      this._file = null;
      this._mode = 'read';
      this._part = null;
      await this.refresh();
      if (version !== null && this._file) this._openVersions(version);
    }
    this.draw();
    this.element.querySelector('.memory-file h3')?.focus();
  }

  async _fetch() {
    this._asked += 1;
    const asked = this._asked;
    const name = this._name;
    try {
      const file = await this.ledger.file(name);
      if (asked === this._asked) this._file = { ...file, element: this._grown(file, prose(file.content)) };
      this._fileProblem = null;
    } catch (problem) {
      if (asked === this._asked) this._fileProblem = problem;
    }
  }

  /** Lights what the file now says and did not say a moment ago. */
  _grown(file, element) {
    if (this._file?.name !== file.name || this._file.content === file.content) return element;
    const before = new Set(pieces(this._file.element).map((piece) => piece.textContent));
    for (const piece of pieces(element)) if (!before.has(piece.textContent)) piece.classList.add('grown');
    return element;
  }

  get _state() {
    return this._files.find((file) => file.name === this._name);
  }

  _edit() {
    const file = { ...this._file, limit: this._state.limit };
    this._part = new Editor(this.page, this.ledger, file, (saved) => this._read(saved));
    this._mode = 'edit';
    this.draw();
    this._part.focus();
  }

  _openVersions(version = null) {
    const acts = { openTurn: this._acts.openTurn, restored: (saved) => this._read(saved) };
    this._part = new Versions(this.page, this.ledger, this._file, acts, version);
    this._mode = 'versions';
    this.draw();
  }

  /** Back to reading, with the file as it was saved. */
  _read(saved = null) {
    if (saved) this._file = { ...saved, element: this._grown(saved, prose(saved.content)) };
    this._mode = 'read';
    this._part = null;
    this.invalidate();
    this.draw();
  }

  template() {
    return html`<div class="files ${this._inFile ? 'in-file' : ''}">
      <nav class="file-list" aria-label="Memory files">
        ${this._files.map((file) => this._item(file))}
      </nav>
      <article class="memory-file" aria-label=${this._name}>${this._open()}</article>
    </div>`;
  }

  _item(file) {
    return html`<button type="button" class="file-item" aria-current=${file.name === this._name ? 'true' : 'false'} @click=${() => this._choose(file.name)}>
      <span class="file-item-name">${file.name}${hasDraft(file.name) ? html` <span class="badge warn">Not saved</span>` : nothing}</span>
      <span class="small-text muted">${FILES[file.name] ?? ''}</span>
      ${gauge(file)}
      <span class="small-text tabular">${linesOf(file)}${file.managed === 'curated' ? changedAgo(file) : ' · fixed'}</span>
    </button>`;
  }

  _choose(name) {
    this._inFile = true;
    if (name === this._name) {
      this.draw();
      return;
    }
    // What was typed in another file waits there as a draft.
    this._name = name;
    this._file = null;
    this._mode = 'read';
    this._part = null;
    void this.refresh();
  }

  _back() {
    this._inFile = false;
    this.draw();
  }

  _open() {
    const state = this._state;
    const curated = state?.managed === 'curated';
    return html`
      <header class="memory-file-head">
        <button type="button" class="icon-button small back" aria-label="All files" title="All files" @click=${() => this._back()}>${icon('back', true)}</button>
        <h3 tabindex="-1">${this._name}</h3>
        <span class="grow"></span>
        ${this._file && curated && this._mode === 'read'
          ? html`<button type="button" class="button small" @click=${() => this._edit()}>${icon('edit', true)}${hasDraft(this._name) ? 'Go on editing' : 'Edit'}</button>`
          : nothing}
        ${this._file && curated && this._mode !== 'edit' ? this._versionsButton() : nothing}
      </header>
      ${curated || !state ? nothing : html`<p class="memory-note">Comes with the sprite and is changed only by whoever deploys it; memory never writes it.</p>`}
      ${this._content()}
    `;
  }

  _versionsButton() {
    const there = this._mode === 'versions';
    const turn = () => (there ? this._read() : this._openVersions());
    return html`<button type="button" class="button small quiet" @click=${turn}>${there ? 'Back to the file' : html`${icon('history', true)}Versions`}</button>`;
  }

  _content() {
    if (this._mode !== 'read') return this._part.element;
    if (this._file) return this._file.content.trim() === '' ? html`<p class="memory-note">Empty.</p>` : this._file.element;
    return this._fileProblem === null ? LOADING : unreachable(this._fileProblem, () => void this.refresh());
  }
}

const changedAgo = ({ updated_at: at }) => (at ? html` · <time datetime=${iso(at)}>${ago(at)}</time>` : nothing);

const pieces = (element) => [...element.querySelectorAll('p, li, td, pre')];

function prose(content) {
  const element = h('div', { class: 'prose memory-prose' });
  element.append(renderMarkdown(content, { heading: 4 }));
  evenOutline(element, 3);
  return element;
}
