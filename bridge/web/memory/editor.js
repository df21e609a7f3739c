// Editing one curated file: what is typed is never lost, and never overwrites what somebody else wrote unseen.

import { bytes, number } from '../format.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { h } from '../dom.js';
import { diffElement, diffOf } from './diff.js';
import { lineCount } from './words.js';

/** Most bytes of a curated file, as the writer's own limit has it. */
const MOST_BYTES = 16_000;
const KEPT = 'sprite.edit.';

/** Drafts live as long as the tab: on disk, no forget could reach them. */
const drafts = {
  get: (name) => parsed(sessionStorage.getItem(KEPT + name)),
  keep: (name, draft) => sessionStorage.setItem(KEPT + name, JSON.stringify(draft)),
  drop: (name) => sessionStorage.removeItem(KEPT + name),
};

function parsed(json) {
  try {
    const draft = JSON.parse(json);
    return typeof draft?.text === 'string' ? draft : null;
  } catch {
    return null;
  }
}

/** Drops every draft: what was forgotten must not come back by a save. */
export function dropDrafts() {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(KEPT)) sessionStorage.removeItem(key);
}

/** Whether something typed for a file waits to be saved. */
export const hasDraft = (name) => drafts.get(name) !== null;

export class Editor {
  /** `file` is `{name, content, version, limit}` as opened; `done(saved)` is called at the end, with the new file or null. */
  constructor(page, ledger, file, done) {
    this._page = page;
    this._ledger = ledger;
    this._done = done;
    this._file = file;
    const draft = drafts.get(file.name);
    this._text = draft?.text ?? file.content;
    this._base = draft?.version ?? file.version;
    this._theirs = draft !== null && draft.version !== file.version ? file : null;
    this._comparison = null;
    this._busy = false;
    this._problem = null;
    this.element = h('div', { class: 'editor' });
    this._draw();
  }

  get changed() {
    return this._text !== this._file.content;
  }

  focus() {
    this.element.querySelector('textarea')?.focus();
  }

  /** The file has changed on the server while it is open here. */
  async changedMeanwhile() {
    if (this._busy) return;
    try {
      const theirs = await this._ledger.file(this._file.name);
      // A forget changes what a version says, not its number.
      if (theirs.version !== this._base || theirs.content !== this._file.content) this._conflict(theirs);
    } catch {
      // Saving will find out.
    }
  }

  _conflict(theirs) {
    this._theirs = theirs;
    this._comparison = null;
    this._page.announce(`${this._file.name} has changed meanwhile. What you typed is still here.`);
    this._draw();
  }

  _type(text) {
    this._text = text;
    drafts.keep(this._file.name, { text, version: this._base });
    this._problem = null;
    this._draw();
  }

  async _save() {
    this._busy = true;
    this._problem = null;
    this._draw();
    try {
      const saved = await this._ledger.edit(this._file.name, this._text, this._base);
      drafts.drop(this._file.name);
      this._page.toast({ kind: 'success', text: `${this._file.name} is saved. The agent knows it from its next session on.` });
      this._done(saved);
      return;
    } catch (problem) {
      if (problem.code === 'conflict') await this._fetchTheirs();
      else this._problem = problem.message;
    }
    this._busy = false;
    this._draw();
  }

  async _fetchTheirs() {
    try {
      this._conflict(await this._ledger.file(this._file.name));
    } catch (problem) {
      this._problem = problem.message;
    }
  }

  async _compare() {
    const { _theirs: theirs } = this;
    try {
      const lines = await diffOf(theirs.content, this._text);
      this._comparison = diffElement(lines, 'From the file as it is now to what you typed');
    } catch {
      this._problem = 'The comparison could not be loaded. Is the bridge running?';
    }
    this._draw();
  }

  /** The person has seen what is there now, and their text shall come in its place. */
  _keepMine() {
    this._base = this._theirs.version;
    this._theirs = null;
    this._comparison = null;
    void this._save();
  }

  async _takeTheirs() {
    const sure = await this._page.confirm({
      title: 'Drop what you typed?',
      body: `${this._file.name} stays as it is now.`,
      confirm: 'Drop it',
      danger: true,
    });
    if (sure) this._close();
  }

  async _cancel() {
    if (this.changed) {
      const sure = await this._page.confirm({ title: 'Drop your changes?', body: 'They are not saved.', confirm: 'Drop them', danger: true });
      if (!sure) return;
    }
    this._close();
  }

  _close() {
    drafts.drop(this._file.name);
    this._done(null);
  }

  _draw() {
    const lines = lineCount(this._text);
    const size = new TextEncoder().encode(this._text).length;
    const over = lines > this._file.limit || size > MOST_BYTES;
    render(
      html`
        ${this._theirs ? this._choice() : nothing}
        <textarea
          class="input mono"
          spellcheck="true"
          aria-label="Content of ${this._file.name}"
          aria-describedby="editor-size"
          .value=${live(this._text)}
          @input=${(event) => this._type(event.target.value)}
          @keydown=${(event) => this._key(event)}
        ></textarea>
        ${this._problem ? html`<p class="bad-words" role="alert">Not saved: ${this._problem} What you typed is still here.</p>` : nothing}
        <div class="editor-foot">
          <span id="editor-size" class=${over ? 'bad-words tabular' : 'muted tabular'}
            >${number(lines)} of ${number(this._file.limit)} lines, ${bytes(size)} of ${bytes(MOST_BYTES)}${over ? ': too long to save' : ''}</span
          >
          <span class="grow"></span>
          <button type="button" class="button quiet" ?disabled=${this._busy} @click=${() => this._cancel()}>Cancel</button>
          <button type="button" class="button primary" ?disabled=${this._busy || over || !this.changed || this._theirs !== null} @click=${() => this._save()}>
            ${this._busy ? 'Saving…' : 'Save'}
          </button>
        </div>
      `,
      this.element,
    );
  }

  _choice() {
    return html`<div class="memory-banner warn conflict" role="alert">
      <p class="grow">
        <strong>${this._file.name} has changed while you were writing</strong> (it is at version ${this._theirs.version} now). What you typed is still here. What shall
        stand?
      </p>
      <div class="row">
        <button type="button" class="button small" @click=${() => this._compare()}>Compare</button>
        <button type="button" class="button small" ?disabled=${this._busy} @click=${() => this._keepMine()}>Save mine</button>
        <button type="button" class="button small" @click=${() => this._takeTheirs()}>Take theirs</button>
      </div>
      ${this._comparison}
    </div>`;
  }

  _key(event) {
    if (event.key === 's' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!this._busy && this.changed && this._theirs === null) void this._save();
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      void this._cancel();
    }
  }
}
