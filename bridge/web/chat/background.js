// The agent's background work: each task with its clock, the end of its lease, and Stop.

import { h } from '../dom.js';
import { clock, when } from '../format.js';
import { iconElement } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';

/** @import { Page } from '../types/page.js' */

const TICK_MS = 1000;
/** Most tasks that are named, so that the conversation keeps its space. */
const NAMED = 3;

export class BackgroundLine {
  #timer = 0;
  #stopping = false;

  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.works = h('ul', { class: 'plain' });
    this.held = h('p', { class: 'small-text tabular' });
    this.stopWords = h('span');
    this.stop = h(
      'button',
      {
        class: 'button small',
        type: 'button',
        onclick: () => void this.#stop(),
      },
      iconElement('stop', true),
      this.stopWords,
    );
    this.element = h(
      'div',
      { class: 'background', role: 'group', 'aria-label': 'In the background', hidden: true },
      iconElement('clock', true),
      h('div', { class: 'background-words' }, this.held, this.works),
      this.stop,
    );
  }

  draw() {
    const { conversation, state } = this.page.store;
    const work = state.session.background ?? [];
    this.element.hidden = work.length === 0;
    clearTimeout(this.#timer);
    if (work.length === 0) return;
    const now = Date.now() / 1000;
    const named = work
      .slice(0, NAMED)
      .map(({ title, since }) =>
        h('li', null, h('span', { class: 'cut' }, title), ' ', h('span', { class: 'tabular' }, clock(now - since))),
      );
    if (work.length > NAMED) named.push(h('li', null, `and ${work.length - NAMED} more`));
    this.works.replaceChildren(...named);
    const until = state.session.held_until ?? null;
    this.held.textContent = until === null ? 'In the background' : `In the background, awake until ${when(until)}`;
    // While a person's mission runs, Stop would end that mission, which has its own Stop button.
    const { running } = conversation;
    const isPersons = running ? running.origin !== 'agent' : state.session.running_mission_id !== null;
    this.stop.hidden = isPersons || state.link.state !== 'ready';
    this.stop.disabled = this.#stopping;
    // A background turn of the agent ends with it.
    this.stopWords.textContent = running ? 'Stop all' : 'Stop';
    this.stop.setAttribute(
      'aria-label',
      running ? 'Stop all, the background too' : 'Stop what goes on in the background',
    );
    this.#timer = setTimeout(() => this.draw(), TICK_MS);
  }

  async #stop() {
    const titles = new Map((this.page.store.state.session.background ?? []).map(({ id, title }) => [id, title]));
    this.#stopping = true;
    this.draw();
    try {
      const { stopped } = await this.page.connection.ask('interrupt', {});
      const words = (stopped ?? []).map(({ id, kind }) => titles.get(id) ?? `the ${kind}`);
      if (words.length) this.page.toast({ text: `Stopped: ${words.join(', ')}` });
    } catch (problem) {
      if (codeOf(problem) !== 'not_running')
        this.page.toast({ kind: 'error', text: `It could not be stopped: ${wordsOf(problem)}` });
    } finally {
      this.#stopping = false;
      this.draw();
    }
  }
}
