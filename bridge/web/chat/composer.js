// The composer: a draft that survives a reload, attached files, Enter to send.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';

/** @import { Page } from '../types/page.js' */
/** @import { Uploads } from './uploads.js' */

const DRAFT_KEY = 'sprite.draft';
const KEEP_MS = 300;
/** From this share of the limit on, the length of a draft is shown. */
const NEAR_LIMIT = 0.9;
/** A taller field scrolls. */
const TALLEST_PX = 260;

export class Composer {
  #timer = 0;
  /** @type {Uploads | null} */
  #uploads = null;

  field = h('textarea', {
    id: 'composer-text',
    class: 'composer-text',
    rows: 1,
    placeholder: 'Message Sprite',
    'aria-label': 'Message',
    'aria-describedby': 'composer-note',
    enterKeyHint: 'send',
    spellcheck: true,
  });
  note = h('p', { id: 'composer-note', class: 'composer-note', role: 'alert', hidden: true });
  picker = h('input', {
    type: 'file',
    multiple: true,
    hidden: true,
    'aria-label': 'Choose files',
    onchange: () => {
      void this.addFiles([...(this.picker.files ?? [])]);
      this.picker.value = '';
    },
  });
  attach = h(
    'button',
    {
      class: 'icon-button',
      type: 'button',
      'aria-label': 'Attach files',
      title: 'Attach files',
      onclick: () => this.picker.click(),
    },
    iconElement('attach'),
  );
  send = h(
    'button',
    { class: 'icon-button send', type: 'submit', 'aria-label': 'Send', title: 'Send (Enter)' },
    iconElement('send'),
  );
  element = h(
    'form',
    {
      class: 'composer',
      autocomplete: 'off',
      onsubmit: (event) => {
        event.preventDefault();
        this.submit();
      },
    },
    h('div', { class: 'composer-row' }, this.attach, this.picker, this.field, this.send),
    this.note,
  );

  /**
   * @param {Page} page
   * @param {{ onSent: () => void, onEditQueued: () => boolean }} heard
   */
  constructor(page, { onSent, onEditQueued }) {
    this.page = page;
    this.onSent = onSent;
    this.onEditQueued = onEditQueued;
    this.#listen();
    this.field.value = sessionStorage.getItem(DRAFT_KEY) ?? localStorage.getItem(DRAFT_KEY) ?? '';
    this.#changed();
  }

  #listen() {
    this.field.addEventListener('input', () => this.#changed());
    this.field.addEventListener('keydown', (event) => this.#key(event));
    this.field.addEventListener('paste', (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      void this.addFiles(files);
    });
    addEventListener('pagehide', () => this.#keep());
  }

  /**
   * Adds a text to the field, below its content.
   * @param {string} text
   */
  draft(text) {
    this.field.value = this.field.value.trim() ? `${this.field.value.trimEnd()}\n\n${text}` : text;
    this.#changed();
    this.focus();
    this.field.setSelectionRange(this.field.value.length, this.field.value.length);
  }

  /**
   * Uploads files for the message that is being written.
   * @param {File[]} files
   */
  async addFiles(files) {
    if (!files.length) return;
    const { Uploads } = await import('./uploads.js');
    if (!this.#uploads) {
      this.#uploads = new Uploads(this.page, () => this.#check());
      this.element.prepend(this.#uploads.element);
    }
    this.#uploads.add(files);
  }

  focus() {
    this.field.focus();
  }

  submit() {
    const paths = this.#uploads?.paths ?? [];
    const text = this.field.value.trim();
    if (this.#uploads?.isBusy) return this.#say('A file is still on its way. Wait for it, or cancel it.');
    if (!text && !paths.length) return this.focus();
    const whole = paths.length ? `${text || 'I am giving you files.'}\n\nFiles: ${paths.join(', ')}` : text;
    const problem = this.page.outbox.submit(whole, this.page.stackId());
    if (problem) return this.#say(problem);
    this.field.value = '';
    this.#uploads?.clear();
    this.#changed();
    this.#keep();
    this.onSent();
    return undefined;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.isComposing) return;
    // On a phone's keyboard Enter adds a line; the button sends.
    if (event.key === 'Enter' && !event.shiftKey && !matchMedia('(pointer: coarse)').matches) {
      event.preventDefault();
      this.submit();
    } else if (event.key === 'ArrowUp' && this.field.value === '' && this.onEditQueued()) {
      event.preventDefault();
    }
  }

  #changed() {
    this.#check();
    // Only for browsers that cannot size the field by its content.
    if (!CSS.supports('field-sizing', 'content')) {
      this.field.style.height = 'auto';
      this.field.style.height = `${Math.min(this.field.scrollHeight, TALLEST_PX)}px`;
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#keep(), KEEP_MS);
  }

  #check() {
    const limit = this.page.store.state.limits.mission_chars;
    const { length } = this.field.value;
    const isBlank = !this.field.value.trim() && !this.#uploads?.paths.length;
    this.send.disabled = isBlank;
    if (length > limit)
      this.#say(
        `${length.toLocaleString()} characters; a message may have ${limit.toLocaleString()}. ` +
          'Shorten it, or attach it as a file.',
      );
    else if (length > NEAR_LIMIT * limit)
      this.#say(`${length.toLocaleString()} of ${limit.toLocaleString()} characters.`);
    else this.note.hidden = true;
  }

  /** @param {string} words */
  #say(words) {
    this.note.textContent = words;
    this.note.hidden = false;
  }

  #keep() {
    clearTimeout(this.#timer);
    for (const storage of [sessionStorage, localStorage]) {
      try {
        if (this.field.value) storage.setItem(DRAFT_KEY, this.field.value);
        else storage.removeItem(DRAFT_KEY);
      } catch {
        // A draft that is too large for the storage still stays in the field.
      }
    }
  }
}
