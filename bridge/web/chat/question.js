// The agent's permission request: the intended action, and the person's answers. "Always" is offered if its effect is
// small enough to be named on a button.

import { h } from '../dom.js';
import { escapeVisible } from '../escape_visible.js';
import { iconElement } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';
import { askedInput } from './asked_input.js';
import { showPermissions } from './permissions.js';
import { wants } from './tools.js';

/** @import { Decision, Page, PermissionPart } from '../types/page.js' */

/** @type {Record<string, string>} */
const ANSWERS = {
  allow: 'Allowed',
  deny: 'Not allowed',
  null: 'Nobody answered in time',
};

export class Question {
  /** @type {PermissionPart['decision']} */
  #decision;
  /** @type {HTMLButtonElement[]} */
  #choices;
  /** @type {HTMLButtonElement} */
  #listed;
  #buttons = h('div', { class: 'row question-buttons' });

  /**
   * @param {PermissionPart} part
   * @param {Page} page
   */
  constructor(part, page) {
    const id = `question-${part.key}`;
    /** @param {Decision} decision */
    const answer = (decision) => void this.#answer(part, page, decision);
    this.#choices = [
      h('button', { class: 'button primary small', type: 'button', onclick: () => answer('allow') }, 'Allow once'),
      h('button', { class: 'button small danger', type: 'button', onclick: () => answer('deny') }, 'Don’t allow'),
    ];
    if (part.always) {
      const words = `Always allow ${escapeVisible(part.always)}`;
      const always = h('button', { class: 'button small', type: 'button', onclick: () => answer('always') }, words);
      this.#choices.splice(1, 0, always);
    }
    this.#listed = h(
      'button',
      { class: 'button small quiet', type: 'button', hidden: true, onclick: () => void showPermissions(page) },
      'What runs without asking',
    );
    this.#buttons.append(...this.#choices);
    this.state = h('p', { class: 'muted small-text', hidden: true });
    this.element = h(
      'div',
      { class: 'question', role: 'group', 'aria-labelledby': id },
      h('h4', { id }, iconElement('alert', true), `May Sprite ${wants(part.tool)}?`),
      ...askedInput(part),
      this.#buttons,
      this.state,
      this.#listed,
    );
  }

  /** @param {PermissionPart} part */
  update(part) {
    if (this.#decision === part.decision) return;
    this.#decision = part.decision;
    const isOpen = part.decision === undefined;
    this.element.classList.toggle('answered', !isOpen);
    this.#buttons.hidden = !isOpen;
    this.state.hidden = isOpen;
    const isAlways = part.decision === 'always';
    const words = isAlways ? `Always allowed: ${escapeVisible(part.always ?? '')}` : ANSWERS[String(part.decision)];
    this.state.textContent = isOpen ? '' : (words ?? '');
    this.#listed.hidden = !isAlways;
  }

  /**
   * @param {PermissionPart} part
   * @param {Page} page
   * @param {Decision} decision
   */
  async #answer(part, page, decision) {
    for (const button of this.#choices) button.disabled = true;
    try {
      await page.connection.ask('permission', { request_id: part.request_id, decision });
      page.store.conversation.resolved(part.request_id, decision);
      page.store.state.permissions = page.store.conversation.openPermissions();
      page.store.touch('chat', 'permissions');
    } catch (problem) {
      if (codeOf(problem) === 'not_found') page.store.conversation.resolved(part.request_id, null);
      else page.toast({ kind: 'error', text: wordsOf(problem) });
      page.store.touch('chat', 'permissions');
    } finally {
      for (const button of this.#choices) button.disabled = false;
    }
  }
}
