// The composer: a draft that survives a reload with its pasted parts, attached files, Enter to send.

import { number } from '../format.js';
import { icon } from '../icons.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { PastedSpans, toField, toMessage } from './pasted.js';

/** @import { Page, Span } from '../types/page.js' */
/** @import { Uploads } from './uploads.js' */

const DRAFT_KEY = 'sprite.draft';
const KEEP_MS = 300;
/** A command and its argument. Neither a path such as `/etc/hosts` nor a text after a space is one. */
const COMMAND = /^(\/[a-z-]+)(?:\s+(.*))?$/s;
/** From this share of the limit on, the length of a draft is shown. */
const NEAR_LIMIT = 0.9;
/** A taller field scrolls. */
const TALLEST_PX = 260;

export class Composer {
  #timer = 0;
  /** @type {Uploads | null} */
  #uploads = null;
  #pasted = new PastedSpans();
  /** The words below the field, empty for none. */
  #note = '';
  element = elementOf(
    html`<form class="composer" autocomplete="off" @submit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      this.submit();
    }}></form>`,
  );

  /**
   * `commands` are those that the page has.
   * @param {Page} page
   * @param {{
   *   onSent: () => void, onEditQueued: () => boolean, commands: Map<string, (rest: string) => unknown>
   * }} heard
   */
  constructor(page, { onSent, onEditQueued, commands }) {
    this.page = page;
    this.commands = commands;
    this.onSent = onSent;
    this.onEditQueued = onEditQueued;
    this.#draw(true);
    this.field = /** @type {HTMLTextAreaElement} */ (this.element.querySelector('textarea'));
    this.picker = /** @type {HTMLInputElement} */ (this.element.querySelector('input'));
    const { text, pasted } = storedDraft();
    this.#put(text, pasted);
    addEventListener('pagehide', () => this.#keep());
  }

  /** @param {boolean} isBlank */
  #draw(isBlank) {
    render(
      html`${this.#uploads?.list() ?? nothing}
        <div class="composer-row">
          <button type="button" class="icon-button" aria-label="Attach files" title="Attach files"
            @click=${() => this.picker.click()}>${icon('attach')}</button>
          <input type="file" multiple hidden aria-label="Choose files" @change=${() => this.#picked()} />
          <textarea id="composer-text" class="composer-text" rows="1" placeholder="Message Sprite" aria-label="Message"
            aria-describedby="composer-note" enterkeyhint="send" spellcheck="true"
            @beforeinput=${() => this.#pasted.before(this.field)}
            @input=${(/** @type {Event} */ event) => {
              this.#pasted.changed(this.field, event instanceof InputEvent ? event.inputType : '');
              this.#changed();
            }}
            @keydown=${(/** @type {KeyboardEvent} */ event) => this.#key(event)}
            @paste=${(/** @type {ClipboardEvent} */ event) => this.#paste(event)}></textarea>
          <button type="submit" class="icon-button send" aria-label="Send" title="Send (Enter)" ?disabled=${isBlank}>
            ${icon('send')}
          </button>
        </div>
        <p id="composer-note" class="composer-note" role="alert" ?hidden=${this.#note === ''}>${this.#note}</p>`,
      this.element,
    );
  }

  #picked() {
    void this.addFiles([...(this.picker.files ?? [])]);
    this.picker.value = '';
  }

  /** @param {ClipboardEvent} event */
  #paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    void this.addFiles(files);
  }

  /**
   * Adds a text to the field, below its content; `pasted` are its pasted spans, as in a message.
   * @param {string} text @param {Span[]} [pasted]
   */
  draft(text, pasted = []) {
    const above = this.field.value.trim() ? `${this.field.value.trimEnd()}\n\n` : '';
    const kept = this.#pasted.spans.map(([from, to]) => /** @type {Span} */ ([from, Math.min(to, above.length)]));
    const added = toField(text, pasted).map(
      ([from, to]) => /** @type {Span} */ ([from + above.length, to + above.length]),
    );
    this.#put(above + text, [...kept.filter(([from, to]) => from < to), ...added]);
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
    this.#uploads ??= new Uploads(this.page, () => this.#check());
    this.#uploads.add(files);
  }

  /** @param {string} text @param {Span[]} spans */
  #put(text, spans) {
    this.field.value = text;
    this.#pasted.reset(this.field.value, spans);
    this.#changed();
  }

  focus() {
    this.field.focus();
  }

  submit() {
    const [, name = '', rest = ''] = COMMAND.exec(this.field.value.trimEnd()) ?? [];
    if (name) return this.#run(name, rest);
    const paths = this.#uploads?.paths ?? [];
    const { text, pasted } = toMessage(this.field.value, this.#pasted.spans);
    if (this.#uploads?.isBusy) return this.#say('A file is still on its way. Wait for it, or cancel it.');
    if (!text && !paths.length) return this.focus();
    const whole = paths.length ? `${text || 'I am giving you files.'}\n\nFiles: ${paths.join(', ')}` : text;
    const problem = this.page.outbox.submit(whole, this.page.stackId(), pasted, this.#uploads?.pictures);
    if (problem) return this.#say(problem);
    this.#put('', []);
    this.#uploads?.clear();
    this.#keep();
    this.onSent();
    return undefined;
  }

  /** @param {string} name @param {string} rest */
  #run(name, rest) {
    const command = this.commands.get(name);
    if (!command) return this.#say('Commands are for the terminal. To send this as a message, put a space before it.');
    this.#put('', []);
    this.#keep();
    command(rest);
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
    this.#say(
      length > limit
        ? `${number(length)} characters; a message may have ${number(limit)}. Shorten it, or attach it as a file.`
        : length > NEAR_LIMIT * limit
          ? `${number(length)} of ${number(limit)} characters.`
          : '',
    );
  }

  /** @param {string} words */
  #say(words) {
    this.#note = words;
    this.#draw(!this.field.value.trim() && !this.#uploads?.paths.length);
  }

  #keep() {
    clearTimeout(this.#timer);
    for (const storage of [sessionStorage, localStorage]) {
      try {
        const draft = { text: this.field.value, pasted: this.#pasted.spans };
        if (draft.text) storage.setItem(DRAFT_KEY, JSON.stringify(draft));
        else storage.removeItem(DRAFT_KEY);
      } catch {
        // A draft that is too large for the storage still stays in the field.
      }
    }
  }
}

/** @returns {{ text: string, pasted: Span[] }} */
function storedDraft() {
  try {
    const draft = JSON.parse(sessionStorage.getItem(DRAFT_KEY) ?? localStorage.getItem(DRAFT_KEY) ?? 'null');
    return { text: draft?.text ?? '', pasted: draft?.pasted ?? [] };
  } catch {
    return { text: '', pasted: [] };
  }
}
