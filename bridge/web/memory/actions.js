// What the agent has noted to be done: complete it, dismiss it, or take it up again.

import { ago, iso, plural } from '../format.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { nothingYet, View } from './view.js';

/** @import { ActionRow, MemoryActs, MemoryClient, Page } from '../types/page.js' */

/** @type {Record<string, string>} */
const DONE = { done: 'Done', dismissed: 'Dismissed' };

export class Actions extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {ActionRow[]} */
  #all = [];
  /** @type {Set<number>} */
  #busy = new Set();

  /**
   * @param {Page} page
   * @param {MemoryClient} client
   * @param {MemoryActs} acts
   */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
  }

  async load() {
    this.#all = await this.client.actions();
  }

  /**
   * @param {ActionRow} action
   * @param {string} status
   */
  async #resolve(action, status) {
    this.#busy.add(action.id);
    this.draw();
    const all = await this.attempt('Nothing was changed', () => this.client.resolve(action.id, status));
    this.#busy.delete(action.id);
    if (all) {
      this.#all = all;
      const undo = { label: 'Undo', run: () => void this.#resolve(action, action.status) };
      this.page.toast({ kind: 'success', text: `${DONE[status] ?? 'Open again'}: ${action.content}`, action: undo });
    }
    this.draw();
  }

  template() {
    const open = this.#all.filter((action) => action.status === 'open');
    const closed = this.#all.filter((action) => action.status !== 'open');
    return html`
      ${
        open.length === 0
          ? nothingYet(
              closed.length === 0 ? 'Nothing noted yet' : 'All done',
              'Say “remind me to …” in a conversation, and it stands here until it is done. ' +
                'The agent sees what is open at the start of each session.',
              { label: 'Note something', run: () => this.#acts.draft('Remind me to ') },
            )
          : html`<ul class="plain actions">
              ${repeat(
                open,
                (action) => action.id,
                (action) => this.#open(action),
              )}
            </ul>`
      }
      ${
        closed.length === 0
          ? nothing
          : html`<details class="closed-actions">
              <summary>${plural(closed.length, 'thing')} done or dismissed</summary>
              <ul class="plain actions">
                ${repeat(
                  closed,
                  (action) => action.id,
                  (action) => this.#closed(action),
                )}
              </ul>
            </details>`
      }
    `;
  }

  /** @param {ActionRow} action */
  #open(action) {
    const busy = this.#busy.has(action.id);
    return html`<li class="action">
      <div class="grow">${this.#words(action)}</div>
      <button
        type="button"
        class="button small"
        ?disabled=${busy}
        aria-label="Complete: ${action.content}"
        @click=${() => this.#resolve(action, 'done')}
      >
        Complete
      </button>
      <button
        type="button"
        class="button quiet small"
        ?disabled=${busy}
        aria-label="Dismiss: ${action.content}"
        @click=${() => this.#resolve(action, 'dismissed')}
      >
        Dismiss
      </button>
    </li>`;
  }

  /** @param {ActionRow} action */
  #closed(action) {
    return html`<li class="action">
      <div class="grow gone">${this.#words(action)}</div>
      <span class="badge ${action.status === 'done' ? 'ok' : ''}">${DONE[action.status] ?? action.status}</span>
      <button
        type="button"
        class="button quiet small"
        ?disabled=${this.#busy.has(action.id)}
        aria-label="Reopen: ${action.content}"
        @click=${() => this.#resolve(action, 'open')}
      >
        Reopen
      </button>
    </li>`;
  }

  /** @param {ActionRow} action */
  #words(action) {
    const source = action.source_learning_id;
    return html`<p>${action.content}</p>
      <p class="small-text muted">
        <time datetime=${iso(action.created_at)}>${ago(action.created_at)}</time>${
          source === null
            ? nothing
            : html` ·
                <button type="button" class="link" @click=${() => this.#acts.openLearning(source)}>
                  where it comes from
                </button>`
        }
      </p>`;
  }
}
