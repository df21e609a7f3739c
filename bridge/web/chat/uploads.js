// Uploads into the agent's documents/: in chunks, one after another, each with its progress and a cancel button.

import { makeId } from '../connection.js';
import { bytes } from '../format.js';
import { icon } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';
import { button, iconButton, itself } from '../template.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @import { Page } from '../types/page.js' */

const CHUNK_MS = 60_000;
/** Pictures that the model accepts in one message; the agent may read others as files. */
const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);
const MOST_PICTURES = 20;
const MAX_PICTURE_BYTES = 3_932_160;
const MAX_PICTURES_BYTES = 15_728_640;

/**
 * `sent` are the bytes that have arrived, `path` where the file arrived.
 * @typedef {{ file: File, sent: number, path: string | null, state: 'waiting' | 'sending' | 'done' | 'failed',
 *   problem: string | null, mayRetry: boolean, abort: AbortController }} Item
 */

export class Uploads {
  /** @type {Item[]} */
  #items = [];

  /** @param {Page} page @param {() => void} onChange */
  constructor(page, onChange) {
    this.page = page;
    this.onChange = onChange;
  }

  /** Paths of the uploaded files, as the agent finds them. */
  get paths() {
    return this.#items.map((item) => item.path).filter((path) => path !== null);
  }

  /** Those of pictures that the model takes beside the text. */
  get pictures() {
    const found = this.#items
      .filter(({ path, file }) => path && PICTURES.has(file.type) && file.size <= MAX_PICTURE_BYTES)
      .slice(0, MOST_PICTURES);
    const size = found.reduce((sum, { file }) => sum + file.size, 0);
    return size <= MAX_PICTURES_BYTES ? found.map(({ path }) => path ?? '') : [];
  }

  get isBusy() {
    return this.#items.some((item) => item.state === 'sending');
  }

  /** Removes the uploaded files, because they are part of the sent message now. */
  clear() {
    this.#items = this.#items.filter((item) => !item.path);
    this.onChange();
  }

  /** @param {File[]} files */
  add(files) {
    for (const file of files) {
      const limit = this.page.store.state.limits.upload_bytes;
      /** @type {Item} */
      const item = {
        file,
        sent: 0,
        path: null,
        state: 'waiting',
        problem: null,
        mayRetry: true,
        abort: new AbortController(),
      };
      this.#items.push(item);
      if (file.size > limit) this.#fail(item, `${bytes(file.size)}: a file may have ${bytes(limit)}.`, false);
      else void this.#send(item);
    }
    this.onChange();
  }

  /** @param {Item} item */
  remove(item) {
    item.abort.abort();
    this.#items.splice(this.#items.indexOf(item), 1);
    this.onChange();
  }

  /** @param {Item} item */
  async #send(item) {
    item.state = 'sending';
    item.problem = null;
    item.sent = 0;
    const uploadId = makeId();
    const size = this.page.store.state.limits.upload_chunk_bytes;
    const chunks = Math.max(1, Math.ceil(item.file.size / size));
    try {
      for (let index = 0; index < chunks; index += 1) {
        const data = await base64(item.file.slice(index * size, (index + 1) * size));
        if (item.abort.signal.aborted) return;
        const last = index === chunks - 1;
        const payload = { upload_id: uploadId, name: item.file.name, index, last, data };
        const ack = await this.page.connection.ask('file_upload', payload, {
          timeout: CHUNK_MS,
          signal: item.abort.signal,
        });
        item.sent = Math.min(item.file.size, (index + 1) * size);
        if (last) item.path = ack.path ?? null;
        this.onChange();
      }
      item.state = 'done';
      this.page.announce(`${item.file.name} was uploaded.`);
    } catch (problem) {
      if (codeOf(problem) === 'aborted') return;
      this.#fail(item, problem instanceof DOMException ? 'The file could not be read.' : wordsOf(problem), true);
    }
    this.onChange();
  }

  /** @param {Item} item @param {string} words @param {boolean} mayRetry */
  #fail(item, words, mayRetry) {
    Object.assign(item, { state: 'failed', problem: words, mayRetry });
    this.page.announce(`${item.file.name}: ${words}`);
    this.onChange();
  }

  /** Returns the files as a list, nothing if there are none. */
  list() {
    if (!this.#items.length) return nothing;
    return html`<ul class="plain uploads" aria-label="Files for the next message">
      ${repeat(this.#items, itself, (item) => this.#item(item))}
    </ul>`;
  }

  /** @param {Item} item */
  #item(item) {
    const { state, file, sent, problem } = item;
    const percent = file.size ? Math.round((100 * sent) / file.size) : 100;
    const words = { waiting: 'waiting', sending: `${percent} %`, done: bytes(file.size), failed: problem }[state];
    const name = item.path?.split('/').at(-1) ?? file.name;
    const verb = state === 'sending' ? 'Cancel' : 'Remove';
    return html`<li class="upload" data-state=${state}>
      ${icon(state === 'failed' ? 'alert' : 'document', true)}
      <span class="upload-name cut" title=${name}>${name}</span>
      <span class="muted small-text tabular upload-state">${words}</span>
      ${state === 'failed' && item.mayRetry ? button('Try again', () => this.#retry(item), { look: 'quiet' }) : nothing}
      ${iconButton('close', `${verb} ${name}`, () => this.remove(item), { title: verb })}
      <progress class="upload-bar" max="100" .value=${percent} aria-label="Uploading ${file.name}"
        ?hidden=${state !== 'sending'}></progress>
    </li>`;
  }

  /** @param {Item} item */
  #retry(item) {
    item.abort = new AbortController();
    void this.#send(item);
    this.onChange();
  }
}

/**
 * Encodes a blob as base64, off the main thread.
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const address = String(reader.result);
      resolve(address.slice(address.indexOf(',') + 1));
    };
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
