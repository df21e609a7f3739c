// Uploads into the agent's documents/: in chunks, one after another, each with its progress and a cancel button.

import { makeId } from '../connection.js';
import { h } from '../dom.js';
import { bytes } from '../format.js';
import { iconElement } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';

/** @import { Page } from '../types/page.js' */

const CHUNK_MS = 60_000;

/**
 * @typedef {object} Item
 * @property {File} file
 * @property {number} sent  bytes that have arrived
 * @property {string | null} path  where it arrived
 * @property {'waiting' | 'sending' | 'done' | 'failed'} state
 * @property {string | null} problem
 * @property {boolean} mayRetry
 * @property {AbortController} abort
 * @property {HTMLElement} element
 * @property {string} shown
 */

export class Uploads {
  /** @type {Item[]} */
  #items = [];

  /**
   * @param {Page} page
   * @param {() => void} onChange
   */
  constructor(page, onChange) {
    this.page = page;
    this.onChange = onChange;
    this.element = h('ul', { class: 'plain uploads', 'aria-label': 'Files for the next message', hidden: true });
  }

  /** Paths of the uploaded files, as the agent finds them. */
  get paths() {
    return this.#items.map((item) => item.path).filter((path) => path !== null);
  }

  get isBusy() {
    return this.#items.some((item) => item.state === 'sending');
  }

  /** Removes the uploaded files, because they are part of the sent message now. */
  clear() {
    this.#items = this.#items.filter((item) => !item.path);
    this.#drawAll();
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
        element: h('li', { class: 'upload' }),
        shown: '',
      };
      this.#items.push(item);
      if (file.size > limit) this.#fail(item, `${bytes(file.size)}: a file may have ${bytes(limit)}.`, false);
      else void this.#send(item);
    }
    this.#drawAll();
  }

  /** @param {Item} item */
  remove(item) {
    item.abort.abort();
    this.#items.splice(this.#items.indexOf(item), 1);
    this.#drawAll();
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
        this.#draw(item);
      }
      item.state = 'done';
      this.page.announce(`${item.file.name} was uploaded.`);
    } catch (problem) {
      if (codeOf(problem) === 'aborted') return;
      this.#fail(item, problem instanceof DOMException ? 'The file could not be read.' : wordsOf(problem), true);
    }
    this.#drawAll();
  }

  /**
   * @param {Item} item
   * @param {string} words
   * @param {boolean} mayRetry
   */
  #fail(item, words, mayRetry) {
    Object.assign(item, { state: 'failed', problem: words, mayRetry });
    this.page.announce(`${item.file.name}: ${words}`);
    this.#drawAll();
  }

  #drawAll() {
    this.element.hidden = this.#items.length === 0;
    for (const item of this.#items) this.#draw(item);
    this.element.replaceChildren(...this.#items.map((item) => item.element));
    this.onChange();
  }

  /** @param {Item} item */
  #draw(item) {
    const percent = item.file.size ? Math.round((100 * item.sent) / item.file.size) : 100;
    const state = { waiting: 'waiting', sending: `${percent} %`, done: bytes(item.file.size), failed: item.problem }[
      item.state
    ];
    const shown = `${item.state}|${state}`;
    if (item.shown === shown) return;
    item.shown = shown;
    item.element.dataset.state = item.state;
    const bar = h('progress', {
      class: 'upload-bar',
      max: 100,
      value: percent,
      'aria-label': `Uploading ${item.file.name}`,
      hidden: item.state !== 'sending',
    });
    const name = item.path?.split('/').at(-1) ?? item.file.name;
    item.element.replaceChildren(
      iconElement(item.state === 'failed' ? 'alert' : 'document', true),
      h('span', { class: 'upload-name cut', title: name }, name),
      h('span', { class: 'muted small-text tabular upload-state' }, state),
      ...(item.state === 'failed' && item.mayRetry
        ? [
            h(
              'button',
              { class: 'button quiet small', type: 'button', onclick: () => void this.#retry(item) },
              'Try again',
            ),
          ]
        : []),
      h(
        'button',
        {
          class: 'icon-button small',
          type: 'button',
          'aria-label': `${item.state === 'sending' ? 'Cancel' : 'Remove'} ${name}`,
          title: item.state === 'sending' ? 'Cancel' : 'Remove',
          onclick: () => this.remove(item),
        },
        iconElement('close', true),
      ),
      bar,
    );
  }

  /** @param {Item} item */
  async #retry(item) {
    item.abort = new AbortController();
    const sending = this.#send(item);
    this.#drawAll();
    await sending;
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
