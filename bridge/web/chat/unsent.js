// Messages that were submitted but not accepted yet: being sent, or refused with a reason and possible actions.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';

/** @import { Link, OutboxItem, Page } from '../types/page.js' */

export class Unsent {
  #shown = '';
  element = h('div', { class: 'unsent' });

  /** @param {Page} page */
  constructor(page) {
    this.page = page;
  }

  draw() {
    const { items } = this.page.outbox;
    const { link } = this.page.store.state;
    const shown = JSON.stringify([items, link.state]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.replaceChildren(...items.map((item) => this.#item(item, link)));
  }

  /**
   * @param {OutboxItem} item
   * @param {Link} link
   */
  #item(item, link) {
    const { outbox } = this.page;
    const edit = () => {
      outbox.remove(item.id);
      this.page.draft(item.text);
    };
    const isFailed = item.state === 'failed';
    const words = isFailed
      ? item.problem
      : link.state === 'ready'
        ? 'Sending'
        : 'Will be sent when your agent is reachable';
    /**
     * @param {string} label
     * @param {() => void} run
     */
    const button = (label, run) => h('button', { class: 'button quiet small', type: 'button', onclick: run }, label);
    return h(
      'article',
      { class: `exchange unsent-item ${item.state}`, 'aria-label': 'Message not sent yet' },
      h(
        'div',
        { class: 'said' },
        h('div', { class: 'bubble' }, h('div', { class: 'bubble-text folded' }, item.text)),
        h(
          'div',
          { class: 'queue-tools row' },
          h(
            'span',
            { class: isFailed ? 'badge bad' : 'chip' },
            iconElement(isFailed ? 'alert' : 'clock', true),
            isFailed ? 'Not sent' : words,
          ),
          isFailed ? h('span', { class: 'small-text muted' }, words) : null,
          isFailed
            ? [
                button('Send again', () => outbox.retry(item.id)),
                button('Edit', edit),
                button('Remove', () => outbox.remove(item.id)),
              ]
            : null,
        ),
      ),
    );
  }
}
