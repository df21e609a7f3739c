// One tool call as a compact row that expands to its input and output.

import { h } from '../dom.js';
import { duration } from '../format.js';
import { iconElement } from '../icons.js';
import { describeCall, inputText, shortName } from './tools.js';

/** @import { Page, ToolPart } from '../types/page.js' */

/** @type {Record<string, string>} */
const ICONS = {
  Bash: 'tool',
  search_memory: 'brain',
  create_card: 'canvas',
  update_card: 'canvas',
  close_card: 'canvas',
  Read: 'document',
  Write: 'document',
  Edit: 'edit',
};
const CARD_TOOLS = new Set(['create_card', 'update_card']);
/** Shorter durations are not shown. */
const WORTH_SAYING_MS = 1000;

export class ToolRow {
  #shown = '';
  #opened = false;
  #state = h('span', { class: 'tool-state muted' });
  #body = h('div', { class: 'tool-body' });

  /**
   * @param {ToolPart} part
   * @param {Page} page
   */
  constructor(part, page) {
    const { words, detail } = describeCall(part.name, part.input, part.title);
    this.part = part;
    this.page = page;
    const row = h(
      'summary',
      null,
      iconElement(ICONS[shortName(part.name)] ?? 'tool', true),
      h('span', { class: 'tool-words' }, words),
      detail ? h('span', { class: 'tool-detail mono cut' }, detail) : h('span', { class: 'grow' }),
      this.#state,
      iconElement('chevron', true),
    );
    this.element = h('details', { class: 'tool' }, row, this.#body);
    this.element.addEventListener('toggle', () => {
      if (this.element.open && !this.#opened) {
        this.#opened = true;
        this.#fill();
      }
    });
  }

  /** @param {ToolPart} part */
  update(part) {
    const shown = `${part.endedAt}|${part.isError}|${part.stopped}|${part.summary}`;
    if (this.#shown === shown) return;
    this.#shown = shown;
    this.part = part;
    const [state, words] = part.stopped
      ? ['stopped', 'stopped']
      : !part.endedAt
        ? ['running', 'running']
        : part.isError
          ? ['failed', 'failed']
          : ['done', ''];
    this.element.dataset.state = state;
    const took =
      part.endedAt && part.endedAt - part.startedAt >= WORTH_SAYING_MS ? duration(part.endedAt - part.startedAt) : '';
    this.#state.textContent = [words, took].filter(Boolean).join(' · ');
    if (this.#opened) this.#fill();
  }

  #fill() {
    const { part } = this;
    /** @type {HTMLElement[]} */
    const pieces = [
      h('h4', null, 'Input'),
      h(
        'pre',
        { class: 'scroll', tabIndex: 0, role: 'group', 'aria-label': 'Input' },
        (part.title ?? inputText(part.name, part.input)) || '(nothing)',
      ),
    ];
    if (part.title !== null) {
      pieces.push(h('p', { class: 'muted small-text' }, 'Memory’s timeline has the call and its result whole.'));
    } else if (part.endedAt && !part.stopped && part.summary !== null) {
      pieces.push(
        h('h4', null, part.isError ? 'What went wrong' : 'Result'),
        h('pre', { class: 'scroll', tabIndex: 0, role: 'group', 'aria-label': 'Result' }, part.summary || '(nothing)'),
      );
    }
    const card = CARD_TOOLS.has(shortName(part.name)) && this.#card();
    if (card)
      pieces.push(
        h(
          'button',
          { class: 'button small', type: 'button', onclick: () => this.page.openCard(card.card_id) },
          'Show the card',
        ),
      );
    this.#body.replaceChildren(...pieces);
  }

  #card() {
    const { input, title } = this.part;
    const cards = this.page.store.state.cards;
    return (
      cards.get(String(input.card_id)) ??
      [...cards.values()].findLast((card) => card.title === (title ?? input.title) && !card.archived)
    );
  }
}
