// The form for a person's own note. Its text survives a reload and a lost link, and becomes exactly one card, however
// often it is sent.

import { makeId } from '../connection.js';
import { drafts } from '../drafts.js';
import { codeOf, wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, render } from '../vendor/lit-html/lit-html.js';

/** @import { Page } from '../types/page.js' */

/** As long as a sprite may take to wake; the bridge keeps the message. */
const ANSWER_MS = 10 * 60_000;
const KEY = 'note';
const LONGEST_TITLE = 200;

/**
 * `id` identifies the text once it was sent: sent again with it, it is the same note. A changed text gets a new id.
 * @typedef {{ title: string, text: string, id: string | null, pending: boolean }} Draft
 */

export class NoteForm {
  /** @type {Draft | null} */
  #draft = drafts.get(KEY);
  #id = this.#draft?.id ?? null;
  /** Whether to send the note as soon as possible. */
  #pending = this.#draft?.pending ?? false;
  #sending = false;
  element = elementOf(html`<form class="note-form" aria-label="New note" hidden></form>`);

  /**
   * `stackId()` returns the active stack; `made(cardId)` is called when a note is on the canvas.
   * @param {Page} page
   * @param {() => string | null} stackId
   * @param {(cardId: string) => void} made
   */
  constructor(page, stackId, made) {
    this.page = page;
    this.stackId = stackId;
    this.made = made;
    this.element.addEventListener('input', () => this.#typed());
    this.element.addEventListener('keydown', (event) => this.#keyed(event));
    this.element.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#send();
    });
    page.store.listen('auth_ok', () => this.#pending && void this.#send());
    this.#draw('');
    this.title = /** @type {HTMLInputElement} */ (this.element.querySelector('input'));
    this.text = /** @type {HTMLTextAreaElement} */ (this.element.querySelector('textarea'));
    this.title.value = this.#draft?.title ?? '';
    this.text.value = this.#draft?.text ?? '';
    if (this.#pending) void this.#send();
  }

  /** Shows the form with its draft; `focus` moves the keyboard focus to it. */
  show(focus = true) {
    this.element.hidden = false;
    this.#fit();
    if (focus) this.text.focus();
  }

  #fit() {
    const { style } = this.text;
    style.height = 'auto';
    style.height = `${this.text.scrollHeight + 2}px`;
  }

  #typed() {
    this.#id = null;
    this.#keep();
    this.#fit();
    this.#draw('');
  }

  #keep() {
    const draft = { title: this.title.value, text: this.text.value, id: this.#id, pending: this.#pending };
    if (draft.title || draft.text) drafts.keep(KEY, draft);
    else drafts.drop(KEY);
  }

  /** @param {KeyboardEvent} event */
  #keyed(event) {
    if (event.isComposing) return;
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void this.#send();
    else if (event.key === 'Escape') this.#close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #close() {
    const kept = this.title.value !== '' || this.text.value !== '';
    this.element.hidden = true;
    if (kept) this.page.announce('What you wrote is kept. New note brings it back.');
  }

  /** @param {string} words */
  #draw(words) {
    render(
      html`<input class="input" type="text" maxlength=${LONGEST_TITLE} placeholder="Title (optional)" autocomplete="off"
          aria-label="Title of the note" ?readonly=${this.#pending} />
        <textarea class="input" rows="4" spellcheck="true" placeholder="Write something. Markdown works."
          aria-label="Text of the note" ?readonly=${this.#pending}></textarea>
        <div class="edit-foot">
          <span class="edit-words grow" role="status">${words}</span>
          ${button(this.#pending ? 'Take back' : 'Discard', () => this.#dropped(), {
            look: 'quiet',
            disabled: this.#sending,
          })}
          <button type="submit" class="button small primary" ?disabled=${this.#pending}>Add note</button>
        </div>`,
      this.element,
    );
  }

  /** Clears the form; a note that waits to be sent becomes editable again first. */
  #dropped() {
    if (this.#pending) {
      this.#pending = false;
      this.#keep();
      this.#draw('');
      return;
    }
    this.#empty();
    this.element.hidden = true;
  }

  #empty() {
    this.#id = null;
    this.#pending = false;
    this.title.value = this.text.value = '';
    drafts.drop(KEY);
    this.#draw('');
  }

  async #send() {
    if (this.#sending) return;
    const content = this.text.value;
    if (!content.trim() && !this.title.value.trim()) {
      this.#draw('Write something first.');
      this.text.focus();
      return;
    }
    this.#id ??= makeId();
    this.#pending = true;
    this.#keep();
    this.#sending = true;
    const { state } = this.page.store.state.link;
    this.#draw(state === 'ready' ? 'Sending…' : 'The note is sent as soon as your sprite is connected.');
    const options = { id: this.#id, timeout: ANSWER_MS };
    try {
      const ack = await this.page.connection.ask('canvas_interaction', this.#card(content), options);
      this.#sending = false;
      this.#empty();
      const here = !this.element.hidden;
      this.element.hidden = true;
      this.page.announce('The note is on the canvas.');
      if (here && ack.card_id) this.made(ack.card_id);
    } catch (problem) {
      this.#sending = false;
      if (codeOf(problem) === 'offline') {
        this.#draw('Not sent yet: it goes out when the connection is back.');
        return;
      }
      this.#pending = false;
      this.#draw(`Not added: ${wordsOf(problem)} What you wrote is still here.`);
      this.#keep();
    }
  }

  /** @param {string} content */
  #card(content) {
    const stackId = this.stackId();
    const blocks = [{ type: 'text', data: { content } }];
    const card = { action: /** @type {const} */ ('create_card'), title: this.title.value, blocks };
    return stackId === null ? card : { ...card, stack_id: stackId };
  }
}
