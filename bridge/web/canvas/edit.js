// An edit at one address of a card. It survives a reload, a lost link and changes by others, and never overwrites a
// version that the person has not seen.

import { copyText } from '../dom.js';
import { drafts } from '../drafts.js';
import { codeOf, Problem, wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { hasLines, NAMES, surroundings, withWords, wordsAt } from './cell_address.js';
import { saveBlock } from './changes.js';
import { chosen } from './edit_choice.js';

/** @import { Block, Page } from '../types/page.js' */
/** @import { Address } from './cell_address.js' */

/** As long as a sprite may take to wake; the bridge keeps the message. */
const ANSWER_MS = 10 * 60_000;
/** Others may change other cells of a table repeatedly; after this many tries the person is asked. */
const TRIES = 5;

/** @typedef {{ text: string, address: Address, seen: number, around: string }} Draft */

/**
 * Returns the unsaved draft for a block, or null.
 * @param {string} cardId
 * @param {string} blockId
 * @returns {Draft | null}
 */
export const draftOf = (cardId, blockId) => drafts.get(keyOf(cardId, blockId));

/** @param {string} cardId @param {string} blockId */
const keyOf = (cardId, blockId) => `block/${cardId}/${blockId}`;

export class Edit {
  #page;
  #cardId;
  #key;
  /** The version that the person has seen, and the surroundings of the address in it. */
  #seen;
  #around;
  /**
   * The current block as a refusal reported it; its update may still be on the way.
   * @type {Block | null}
   */
  #refusedFor = null;
  #field;
  #saving = false;
  #waiting = false;
  #over = false;
  #told = '';
  #hooks;
  #listening;

  /**
   * `ended(focused)` is called when the edit is over, `grew()` when the field has another height; `draft` is the text
   * from before a reload.
   * @param {Page} page
   * @param {string} cardId
   * @param {Block} block
   * @param {Address} address
   * @param {{ ended: (focused: boolean) => void, grew: () => void }} hooks
   * @param {Draft | null} [draft]
   */
  constructor(page, cardId, block, address, hooks, draft = null) {
    this.#page = page;
    this.#cardId = cardId;
    /** The block as the person saw it when they began, or chose to overwrite it. */
    this.block = block;
    this.address = address;
    this.#hooks = hooks;
    this.#key = keyOf(cardId, block.id);
    this.#seen = draft?.seen ?? block.version ?? 1;
    this.#around = draft?.around ?? surroundings(block, address);
    this.element = elementOf(html`<div class="block-edit ${address.kind}"></div>`);
    this.element.addEventListener('keydown', (event) => this.#keyed(event));
    this.element.addEventListener('focusout', () => setTimeout(() => this.#left()));
    this.#draw();
    this.#field = /** @type {HTMLTextAreaElement} */ (this.element.querySelector('textarea'));
    this.#field.value = draft?.text ?? wordsAt(block, address) ?? '';
    this.#listening = [
      page.store.subscribe('cards', () => this.#look()),
      page.store.listen('auth_ok', () => this.#waiting && void this.save()),
    ];
    this.#look();
  }

  #draw() {
    const isConflict = !this.#unchanged;
    const title = this.#page.store.state.cards.get(this.#cardId)?.title ?? '';
    this.element.classList.toggle('conflict', isConflict);
    render(
      html`<textarea class="input" rows="1" spellcheck="true" aria-label="Edit ${this.#name} in ${title}"
          @input=${() => this.#typed()}></textarea>
        <div class="edit-foot">
          <span class="edit-words grow" role="status">${this.#told}</span>
          ${this.#button(this.#present === null ? 'Copy' : 'Compare…', () => this.#choose(), '', !isConflict)}
          ${this.#button('Cancel', () => this.cancel(), 'quiet', false, this.#saving)}
          ${this.#button('Save', () => this.save(), 'primary', false, this.#saving)}
        </div>`,
      this.element,
    );
  }

  /**
   * A button that does not take the focus from the field on mousedown, so that its click counts.
   * @param {string} label
   * @param {() => unknown} act
   * @param {string} look
   * @param {boolean} hidden
   * @param {boolean} [disabled]
   */
  #button(label, act, look, hidden, disabled = false) {
    return html`<button type="button" class="button small ${look}" ?hidden=${hidden} ?disabled=${disabled}
      @click=${act} @mousedown=${(/** @type {Event} */ event) => event.preventDefault()}>${label}</button>`;
  }

  /** The accessible name of the edited part. */
  get #name() {
    const { block, address } = this;
    if (address.kind !== 'cell') return NAMES.get(block.type) ?? block.type;
    const { columns } = block.data;
    const name = Array.isArray(columns) ? columns[address.column] : '';
    return `${name || `column ${address.column + 1}`}, row ${address.row + 1},`;
  }

  /** Focuses the field, with the cursor at its end. */
  focus() {
    this.fit();
    this.#field.focus({ preventScroll: true });
    this.#field.setSelectionRange(this.#field.value.length, this.#field.value.length);
    this.element.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }

  /** Makes the field as high as its text. */
  fit() {
    const { style } = this.#field;
    const before = style.height;
    style.height = 'auto';
    style.height = `${this.#field.scrollHeight + 2}px`;
    if (style.height !== before) this.#hooks.grew();
  }

  // --- the current block ---

  /** @returns {Block | null} */
  get #present() {
    const card = this.#page.store.state.cards.get(this.#cardId);
    const known = card?.blocks.find((block) => block.id === this.block.id) ?? null;
    const refused = this.#refusedFor;
    return refused && known && (refused.version ?? 1) > (known.version ?? 1) ? refused : known;
  }

  /** Whether the current block may be overwritten: it is the version seen, or equal around the address. */
  get #unchanged() {
    const present = this.#present;
    return present !== null && (present.version === this.#seen || surroundings(present, this.address) === this.#around);
  }

  get #changed() {
    return this.#field.value !== (wordsAt(this.block, this.address) ?? '');
  }

  #look() {
    if (this.#over) return;
    const card = this.#page.store.state.cards.get(this.#cardId);
    if (this.#saving) return;
    if (card?.archived) this.#tell('This card is archived now. Your text is kept until the card is restored.');
    else if (this.#present === null) this.#tell('This block is no longer on the card. Your text is still here.');
    else if (!this.#unchanged)
      this.#tell(`This block was changed meanwhile by ${this.#who()}. Your text is still here.`);
    else if (this.#waiting) this.#tell('Not saved yet: it is sent when the connection is back.');
    else this.#tell('');
  }

  #who() {
    return this.#present?.by === 'person' ? 'you on another page' : 'Sprite';
  }

  /**
   * Shows the state of the edit and its possible actions.
   * @param {string} words
   */
  #tell(words) {
    const grew = words !== this.#told;
    this.#told = words;
    this.#draw();
    if (grew) this.#hooks.grew();
  }

  // --- typing ---

  #typed() {
    this.#waiting = false;
    const text = this.#field.value;
    drafts.keep(this.#key, { text, address: this.address, seen: this.#seen, around: this.#around });
    this.fit();
    this.#look();
  }

  /** @param {KeyboardEvent} event */
  #keyed(event) {
    if (event.isComposing) return;
    const enter = event.key === 'Enter' && event.target === this.#field;
    const saves = enter && (event.ctrlKey || event.metaKey || (!hasLines(this.block.type) && !event.shiftKey));
    if (saves) void this.save();
    else if (event.key === 'Escape') this.cancel();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Saves when the focus moves elsewhere, but not when the whole window loses it. */
  #left() {
    const { activeElement } = document;
    if (this.#over || !this.element.isConnected || this.element.contains(activeElement) || !document.hasFocus()) return;
    if (document.querySelector('dialog[open]')) return;
    // An archived card is hidden some frames before it is removed; the person did not leave it.
    if (this.#page.store.state.cards.get(this.#cardId)?.archived) return;
    if (this.#changed) void this.save();
    else this.cancel();
  }

  /** Restores the former text. */
  cancel() {
    if (this.#changed) this.#page.announce('The earlier text is restored.');
    this.#end();
  }

  #end() {
    if (this.#over) return;
    this.#over = true;
    drafts.drop(this.#key);
    for (const stop of this.#listening) stop();
    this.#hooks.ended(this.element.contains(document.activeElement));
  }

  /** Ends the use of the elements; the draft stays. */
  leave() {
    this.#over = true;
    for (const stop of this.#listening) stop();
  }

  // --- saving ---

  /** Saves the text; stays open and says why if that fails. */
  async save() {
    if (this.#saving || this.#over) return;
    if (!this.#changed && this.#unchanged) return this.#end();
    this.#saving = true;
    this.#waiting = false;
    const { state } = this.#page.store.state.link;
    this.#tell(state === 'ready' ? 'Saving…' : 'Your change is saved as soon as your sprite is connected.');
    const problem = await this.#sent();
    this.#saving = false;
    if (problem === null) {
      this.#page.announce('Saved.');
      return this.#end();
    }
    const code = codeOf(problem);
    this.#waiting = code === 'offline';
    this.#look();
    if (code === 'conflict') await this.#choose();
    else if (!this.#waiting && this.#present !== null) this.#tell(`Not saved: ${wordsOf(problem)}`);
  }

  /** @returns {Promise<unknown>} */
  async #sent() {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const present = this.#present;
      const data = present && withWords(present, this.address, this.#field.value);
      if (!present || !data) return new Problem('not_found', 'This block is no longer on the card.');
      if (!this.#unchanged) break;
      try {
        await saveBlock(this.#page, this.#cardId, present, data, { timeout: ANSWER_MS });
        return null;
      } catch (problem) {
        if (codeOf(problem) !== 'conflict' || !(problem instanceof Problem)) return problem;
        this.#refusedFor = problem.block;
      }
    }
    return new Problem('conflict', 'This block has changed meanwhile.');
  }

  /** Shows both versions and lets the person choose. */
  async #choose() {
    const present = this.#present;
    if (present === null) return this.#copy();
    const theirs = wordsAt(present, this.address);
    if (theirs === null) {
      this.#tell('The row of this cell was removed. Copy what you typed, or cancel.');
      return this.#copy();
    }
    const choice = await chosen(this.#page, this.#who(), theirs, this.#field.value);
    if (choice === 'copy') await this.#copy();
    else if (choice === 'theirs') this.#end();
    else if (choice === 'mine') await this.#keepMine(present);
    else this.focus();
  }

  /**
   * Saves the person's text over the current version, which they have seen.
   * @param {Block} present
   */
  async #keepMine(present) {
    this.block = present;
    this.#seen = present.version ?? 1;
    this.#around = surroundings(present, this.address);
    await this.save();
  }

  async #copy() {
    const copied = await copyText(this.#field.value);
    const text = copied ? 'What you typed is copied.' : 'The browser does not allow copying here.';
    this.#page.toast({ kind: copied ? 'success' : 'error', text });
  }
}
