// The reason why the agent waits for the person, with a button to continue.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';
import { wordsOf } from '../problem.js';

/** @import { Page } from '../types/page.js' */

export class PausedLine {
  #isAsking = false;

  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.words = h('p', { class: 'background-words' });
    this.button = h('button', { class: 'button small', type: 'button', onclick: () => void this.#goOn() });
    this.element = h(
      'div',
      { class: 'background paused', role: 'group', 'aria-label': 'Paused', hidden: true },
      iconElement('alert', true),
      this.words,
      this.button,
    );
  }

  draw() {
    const { link, session } = this.page.store.state;
    const paused = session.paused ?? null;
    const wasHidden = this.element.hidden;
    this.element.hidden = paused === null;
    if (paused === null) return;
    this.words.textContent = paused.why;
    this.button.textContent = paused.by === 'budget' ? 'Raise today’s limit and go on' : 'Go on';
    this.button.disabled = this.#isAsking || link.state !== 'ready';
    if (wasHidden) this.page.announce(`Paused. ${paused.why}`);
  }

  async #goOn() {
    const isBudget = this.page.store.state.session.paused?.by === 'budget';
    this.#isAsking = true;
    this.draw();
    try {
      await this.page.connection.ask('system', { action: 'go_on', raise_limit: isBudget });
    } catch (problem) {
      this.page.toast({ kind: 'error', text: wordsOf(problem) });
    } finally {
      this.#isAsking = false;
      this.draw();
    }
  }
}
