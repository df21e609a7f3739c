// Actions: due ones first, then by priority; add, change, complete, dismiss and reopen them.

import { ago, iso, plural, when } from '../format.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { ActionForm } from './action_form.js';
import { dueWords, inOrder, repeatWords } from './dues.js';
import { MAKERS } from './labels.js';
import { nothingYet, View } from './view.js';

/** @import { ActionRow, MemoryActs, MemoryClient, Page } from '../types/page.js' */

/** @type {Record<string, string>} */
const DONE = { done: 'Done', dismissed: 'Dismissed', failed: 'Did not work' };
/** Often enough that a due time in minutes is shown in time. */
const TICK_MS = 20_000;

export class Actions extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {ActionRow[]} */
  #all = [];
  /** @type {Set<number>} */
  #busy = new Set();
  /** @type {ActionForm | null} */
  #adding = null;
  /** @type {Map<number, ActionForm>} */
  #changing = new Map();
  /** @type {number | undefined} */
  #clock;

  /** @param {Page} page @param {MemoryClient} client @param {MemoryActs} acts */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
  }

  async load() {
    this.#all = await this.client.actions();
  }

  /** @param {ActionRow} action  as it now is, whoever changed it */
  changed(action) {
    if (!this.loaded) return;
    this.#all = [...this.#all.filter(({ id }) => id !== action.id), action];
    this.draw();
  }

  show() {
    super.show();
    this.#clock = setInterval(() => this.draw(), TICK_MS);
  }

  hide() {
    super.hide();
    clearInterval(this.#clock);
  }

  // --- actions of the person ---

  /** Opens the form for a new action. */
  add() {
    this.#adding ??= new ActionForm(
      null,
      async (draft) => {
        this.#all = await this.client.addAction(draft);
        this.page.announce(`Added: ${draft.content}`);
      },
      () => {
        this.#adding = null;
        this.#drawAndFocus('.add-action');
      },
    );
    this.draw();
    this.#adding.focus();
  }

  /** @param {ActionRow} action */
  #change(action) {
    const form = new ActionForm(
      action,
      async (draft) => {
        if (Object.keys(draft).length > 0) this.#all = await this.client.updateAction(action.id, draft, action.version);
      },
      () => {
        this.#changing.delete(action.id);
        this.#drawAndFocus(`[data-change="${action.id}"]`);
      },
    );
    this.#changing.set(action.id, form);
    this.draw();
    form.focus();
  }

  /** @param {string} selector */
  #drawAndFocus(selector) {
    this.draw();
    /** @type {HTMLElement | null} */
    const button = this.element.querySelector(selector);
    button?.focus();
  }

  /** @param {ActionRow} action @param {string} status */
  async #resolve(action, status) {
    this.#busy.add(action.id);
    this.draw();
    const all = await this.attempt('Nothing was changed', () => this.client.resolve(action.id, status, action.version));
    this.#busy.delete(action.id);
    if (all) {
      this.#all = all;
      const now = all.find(({ id }) => id === action.id) ?? action;
      const undo = { label: 'Undo', run: () => void this.#resolve(now, action.status) };
      this.page.toast({ kind: 'success', text: `${DONE[status] ?? 'Open again'}: ${action.content}`, action: undo });
    } else {
      // It may have changed meanwhile.
      await this.load();
    }
    this.draw();
  }

  // --- drawing ---

  template() {
    const open = inOrder(this.#all.filter((action) => action.status === 'open'));
    const failed = this.#all.filter((action) => action.status === 'failed').toReversed();
    const closed = this.#all.filter((action) => !['open', 'failed'].includes(action.status)).toReversed();
    return html`
      ${
        this.#adding !== null
          ? this.#adding.element
          : html`<p class="actions-head row">
              <button type="button" class="button small add-action" @click=${() => this.add()}>
                Add something to do
              </button>
              <button type="button" class="button quiet small" @click=${() => void this.page.openNotifications()}>
                Notifications…
              </button>
            </p>`
      }
      ${
        failed.length === 0
          ? nothing
          : html`<ul class="plain actions">
              ${this.#rows(failed, (action) => this.#failed(action))}
            </ul>`
      }
      ${
        open.length === 0
          ? nothingYet(
              this.#all.length === 0 ? 'Nothing noted yet' : 'All done',
              'Say “remind me on Tuesday at 9 to …” in a conversation, and Sprite does so, also while this page is ' +
                'closed. To-dos without a date stay here until you complete them.',
              { label: 'Say it', run: () => this.#acts.draft('Remind me on Tuesday at 9 to ') },
            )
          : html`<ul class="plain actions">${this.#rows(open, (action) => this.#open(action))}</ul>`
      }
      ${
        closed.length === 0
          ? nothing
          : html`<details class="closed-actions">
              <summary>${plural(closed.length, 'thing')} done or dismissed</summary>
              <ul class="plain actions">${this.#rows(closed, (action) => this.#closed(action))}</ul>
            </details>`
      }
    `;
  }

  /** @param {ActionRow[]} actions @param {(action: ActionRow) => unknown} row */
  #rows(actions, row) {
    return repeat(
      actions,
      (action) => action.id,
      (action) => {
        const form = this.#changing.get(action.id);
        return html`<li class="action" data-status=${action.status}>${form ? form.element : row(action)}</li>`;
      },
    );
  }

  /** @param {ActionRow} action */
  #open(action) {
    return html`<div class="grow">${this.#words(action)}</div>
      ${this.#button(action, 'done', 'Complete')}
      <button
        type="button"
        class="button quiet small"
        data-change=${action.id}
        aria-label="Change: ${action.content}"
        @click=${() => this.#change(action)}
      >
        Change
      </button>
      ${this.#button(action, 'dismissed', 'Dismiss', 'quiet')}`;
  }

  /** @param {ActionRow} action */
  #failed(action) {
    const why = action.history?.at(-1)?.what ?? '';
    return html`<div class="grow">
        <p><span class="badge bad">${DONE.failed}</span> ${action.content}</p>
        ${why === '' || why === action.status ? nothing : html`<p class="small-text">${why}</p>`}
        ${this.#facts(action)}
      </div>
      ${this.#button(action, 'open', 'Open again')} ${this.#button(action, 'dismissed', 'Dismiss', 'quiet')}`;
  }

  /** @param {ActionRow} action */
  #closed(action) {
    return html`<div class="grow gone">${this.#words(action)}</div>
      <span class="badge ${action.status === 'done' ? 'ok' : ''}">${DONE[action.status] ?? action.status}</span>
      ${this.#button(action, 'open', 'Reopen', 'quiet')}`;
  }

  /** @param {ActionRow} action @param {string} status @param {string} words @param {string} [look] */
  #button(action, status, words, look = '') {
    return html`<button
      type="button"
      class="button ${look} small"
      ?disabled=${this.#busy.has(action.id)}
      aria-label="${words}: ${action.content}"
      @click=${() => this.#resolve(action, status)}
    >
      ${words}
    </button>`;
  }

  /** @param {ActionRow} action */
  #words(action) {
    return html`<p>${action.content}</p>
      ${this.#facts(action)}`;
  }

  /** @param {ActionRow} action */
  #facts(action) {
    const { id, due, source_learning_id: source, origin = 'curator', created_at: at } = action;
    const isOpen = action.status === 'open';
    const late = isOpen && typeof due === 'number' && due < Date.now() / 1000;
    const often = isOpen || action.status === 'failed' ? repeatWords(action) : null;
    return html`<p class="action-facts small-text muted">
        ${
          typeof due === 'number' && isOpen
            ? html`<time class="due" data-late=${late} datetime=${iso(due)}>${dueWords({ due, tz: action.tz })}</time>`
            : nothing
        }
        ${often === null ? nothing : html`<span>${often}</span>`}
        ${isOpen && action.priority > 0 ? html`<span class="badge">High</span>` : nothing}
        <span>${MAKERS[origin] ?? origin}, <time datetime=${iso(at)}>${ago(at)}</time></span>
        ${
          source === null
            ? nothing
            : html`<button type="button" class="link" @click=${() => this.#acts.openLearning(source)}>
                where it comes from
              </button>`
        }
      </p>
      ${history(id, action.history ?? [])}`;
  }
}

/** @param {number} id @param {NonNullable<ActionRow['history']>} changes */
const history = (id, changes) =>
  changes.length < 2
    ? nothing
    : html`<details class="action-history small-text">
        <summary>What happened to it</summary>
        <ol class="plain" aria-label="History of ${id}">
          ${changes.map(
            ({ at, by, what }) =>
              html`<li>
                <time class="muted tabular" datetime=${iso(at)}>${when(at)}</time> ${what}, ${MAKERS[by] ?? by}
              </li>`,
          )}
        </ol>
      </details>`;
