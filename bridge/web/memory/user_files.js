// The person's files on the agent's computer: by folder, newest first, to view, download and delete.

import { downloadAddress, fileName, visible } from '../canvas/files.js';
import { bytes, iso, number, plural, when } from '../format.js';
import { icon } from '../icons.js';
import { showPreview } from '../shell/preview.js';
import { typedIn } from '../template.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { nothingYet, View } from './view.js';

/** @import { MemoryActs, MemoryClient, Page, UserFile } from '../types/page.js' */

/**
 * The folders in their usual order, with their content.
 * @type {[folder: string, words: string][]}
 */
const FOLDERS = [
  ['documents', 'Documents'],
  ['artifacts', 'Made by the agent'],
  ['extractions', 'Data taken from documents'],
  ['ocr', 'Recognised text'],
];

export class UserFiles extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {UserFile[]} */
  #files = [];
  #more = 0;
  #query = '';

  /** @param {Page} page @param {MemoryClient} client @param {MemoryActs} acts */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
  }

  async load() {
    const { files, more = 0 } = await this.client.userFiles();
    this.#files = files;
    this.#more = more;
  }

  /** @param {UserFile} file */
  async #open(file) {
    if ((await showPreview(this.page, file, { mayDelete: true })) === 'delete') await this.#delete(file);
  }

  /** @param {UserFile} file */
  async #delete(file) {
    const name = visible(fileName(file.path));
    const sure = await this.page.confirm({
      title: `Delete ${name}?`,
      body: `${visible(file.path)} goes from the agent’s computer for good. Memory keeps what it has learned from it.`,
      confirm: 'Delete',
      danger: true,
    });
    if (!sure) return;
    const done = await this.attempt('Nothing was deleted', () => this.client.deleteUserFile(file.path));
    if (done) {
      this.#files = this.#files.filter((each) => each.path !== file.path);
      this.page.toast({ kind: 'success', text: `Deleted: ${name}` });
      this.draw();
    }
    this.invalidate();
  }

  template() {
    if (this.#files.length === 0)
      return nothingYet(
        'No files yet',
        'Attach a file to a message, or ask the agent for one. The folders documents, artifacts, extractions and ocr ' +
          'are listed here.',
        { label: 'Ask for something', run: () => this.#acts.draft('Make me a file with ') },
      );
    const wanted = this.#query.trim().toLowerCase();
    const found = wanted ? this.#files.filter((file) => file.path.toLowerCase().includes(wanted)) : this.#files;
    return html`<div class="user-files">
      <input
        type="search"
        class="input"
        placeholder="Find a file by its name"
        aria-label="Find a file by its name"
        autocomplete="off"
        .value=${live(this.#query)}
        @input=${this.#type}
      />
      ${FOLDERS.map((folder) => this.#folder(folder, found))}
      ${found.length === 0 ? html`<p class="muted">No file’s name has these words.</p>` : nothing}
      ${
        this.#more > 0
          ? html`<p class="muted small-text">
              The newest ${number(this.#files.length)} are listed, ${number(this.#more)} more are not.
            </p>`
          : nothing
      }
    </div>`;
  }

  /** @param {InputEvent} event */
  #type = (event) => {
    this.#query = typedIn(event);
    this.draw();
  };

  /** @param {[folder: string, words: string]} folder @param {UserFile[]} found */
  #folder([folder, words], found) {
    const files = found.filter((file) => file.path.startsWith(`${folder}/`));
    if (files.length === 0) return nothing;
    return html`<section aria-label=${words}>
      <h3>${words} <span class="muted small-text">${folder}/ · ${plural(files.length, 'file')}</span></h3>
      <ul class="plain user-file-list">
        ${repeat(
          files,
          (file) => file.path,
          (file) => this.#row(file, folder),
        )}
      </ul>
    </section>`;
  }

  /** @param {UserFile} file @param {string} folder */
  #row(file, folder) {
    const within = file.path.slice(folder.length + 1);
    const name = visible(within);
    const moment = html`<time class="muted small-text tabular" datetime=${iso(file.modified_at)}
      >${when(file.modified_at)}</time
    >`;
    if (file.path.endsWith('/'))
      return html`<li class="user-file">
        <span class="grow"><bdi>${name}</bdi> <span class="muted small-text">a program’s own files</span></span>
        ${moment}
      </li>`;
    const address = downloadAddress(file.path);
    return html`<li class="user-file">
      <button type="button" class="link grow user-file-name" @click=${() => void this.#open(file)}>
        ${icon('document', true)}<bdi>${name}</bdi>
      </button>
      <span class="muted small-text tabular">${bytes(file.size)}</span>
      ${moment}
      ${
        address === null
          ? nothing
          : html`<a
              class="icon-button small"
              href=${address}
              download=${fileName(file.path)}
              aria-label="Download ${name}"
              title="Download"
              >${icon('download', true)}</a
            >`
      }
      <button
        type="button"
        class="icon-button small"
        aria-label="Delete ${name}"
        title="Delete…"
        @click=${() => void this.#delete(file)}
      >
        ${icon('forget', true)}
      </button>
    </li>`;
  }
}
