// The versions of one file: who made each and why, what it changed, and the way back to it.

import { h } from '../dom.js';
import { iso, plural, when } from '../format.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { diffElement, diffOf } from './diff.js';
import { turnRange } from './words.js';

export class Versions {
  /** `current` is the file as it is; `acts`: openTurn(id), restored(file). Shows `version`, else the newest. */
  constructor(page, ledger, current, acts, version = null) {
    this._page = page;
    this._ledger = ledger;
    this._current = current;
    this._acts = acts;
    this._wanted = version;
    this._history = null;
    this._shown = null;
    this._problem = null;
    this._busy = false;
    this.element = h('div', { class: 'versions' });
    this._draw();
    void this._load();
  }

  async _load() {
    try {
      this._history = await this._ledger.history(this._current.name);
      const wanted = this._history.find(({ version }) => version === this._wanted) ?? this._history[0];
      if (wanted) await this._show(wanted);
    } catch (problem) {
      this._problem = problem.message;
    }
    this._draw();
  }

  /** Shows what a version changed, with the event that made it. */
  async _show(entry) {
    const shown = { entry, diff: null, curation: null, content: null };
    this._shown = shown;
    this._problem = null;
    this._draw();
    try {
      const { name } = this._current;
      const before = this._history.find(({ version }) => version === entry.version - 1);
      const [after, old, curation] = await Promise.all([
        this._ledger.file(name, entry.version),
        before ? this._ledger.file(name, before.version) : { content: '' },
        this._ledger.curation(entry.curation_id),
      ]);
      shown.content = after.content;
      shown.curation = curation;
      shown.diff = diffElement(await diffOf(old.content, after.content), `What version ${entry.version} changed`);
    } catch (problem) {
      this._problem = problem.message;
    }
    if (this._shown === shown) this._draw();
  }

  async _restore() {
    const { entry, content } = this._shown;
    this._busy = true;
    this._draw();
    try {
      const saved = await this._ledger.edit(this._current.name, content, this._current.version);
      this._page.toast({ kind: 'success', text: `${this._current.name} is as in version ${entry.version} again (version ${saved.version} now).` });
      this._acts.restored(saved);
      return;
    } catch (problem) {
      this._problem =
        problem.code === 'conflict' ? 'The file has changed meanwhile: look at its newest version first.' : `Not restored: ${problem.message}`;
      if (problem.code === 'conflict') this._current = await this._ledger.file(this._current.name).catch(() => this._current);
    }
    this._busy = false;
    if (this._problem !== null) await this._load();
  }

  _draw() {
    render(this._drawn(), this.element);
  }

  _drawn() {
    if (this._history === null) return html`<p class="memory-note" role="status">${this._problem ?? 'Loading the versions…'}</p>`;
    if (this._history.length === 0) return html`<p class="memory-note">It is as it came: nothing has changed it yet.</p>`;
    return html`<ol class="plain version-list" aria-label="Versions">
        ${this._history.map((entry) => this._item(entry))}
      </ol>
      <div class="version-shown">${this._shown ? this._version() : nothing}</div>`;
  }

  _item(entry) {
    const shown = this._shown?.entry.version === entry.version;
    return html`<li>
      <button type="button" class="version-item" aria-pressed=${shown} @click=${() => this._show(entry)}>
        <span class="version-name"><strong>Version ${entry.version}</strong>${entry.version === this._current.version ? html`<span class="badge ok">Now</span>` : nothing}</span>
        <span class="small-text muted">${WHO[entry.source] ?? entry.source}, <time datetime=${iso(entry.at)}>${when(entry.at)}</time>, ${plural(entry.lines, 'line')}</span>
      </button>
    </li>`;
  }

  _version() {
    const { entry, diff, content } = this._shown;
    const past = entry.version !== this._current.version;
    return html`
      <div class="version-head">
        <p class="grow">${this._why()}</p>
        ${past
          ? html`<button type="button" class="button small" ?disabled=${this._busy || content === null} @click=${() => this._restore()}>Restore version ${entry.version}</button>`
          : nothing}
      </div>
      ${this._problem ? html`<p class="bad-words" role="alert">${this._problem}</p>` : nothing} ${diff ?? html`<p class="memory-note" role="status">Comparing…</p>`}
    `;
  }

  _why() {
    const { entry, curation } = this._shown;
    if (entry.source === 'person') return curation?.detail.source === 'disk' ? 'You edited the file on disk.' : 'You wrote it here.';
    if (curation === null) return 'Written by the curator.';
    const { first_turn: first, last_turn: last, learnings } = curation;
    const learnt = learnings ? `, with ${plural(learnings, 'learning')}` : '';
    if (first === null) return `Written by the curator${learnt}.`;
    return html`Written by the curator after
      <button type="button" class="link" @click=${() => this._acts.openTurn(last)}>${turnRange(first, last)}</button>${learnt}.`;
  }
}

const WHO = { curator: 'Curator', person: 'You' };
