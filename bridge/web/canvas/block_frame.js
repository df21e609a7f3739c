// Frame of an editable block: the block, a button to edit it, its last author, and the field during an edit.

import { h } from '../dom.js';
import { iconElement } from '../icons.js';
import { drawBlock } from './blocks.js';
import { NAMES } from './cell_address.js';

/** @import { Block } from '../types/page.js' */
/** @import { Edit } from './edit.js' */
/** @import { Address } from './cell_address.js' */

/**
 * Returns who changed a block last, unless that is the agent that drew it.
 * @param {Block} block
 */
export function authorOf({ by, version = 1 }) {
  if (by === 'person') return version > 1 ? 'Edited by you' : 'Written by you';
  return version > 1 ? 'Edited by Sprite' : '';
}

/** Arrow keys between the names and values of a list of pairs. */
const STEPS = new Map([
  ['ArrowUp', -2],
  ['ArrowDown', 2],
  ['ArrowLeft', -1],
  ['ArrowRight', 1],
]);

export class BlockFrame {
  #drawn;
  #type;
  /** @type {(address: Address) => void} */
  #begin;
  #button;

  /**
   * `begin(address)` is called when the person wants to edit; `title` is the card's.
   * @param {Block} block
   * @param {string} title
   * @param {(address: Address) => void} begin
   */
  constructor(block, title, begin) {
    this.#type = block.type;
    this.#begin = begin;
    this.#drawn = drawBlock(block);
    this.#button = h('button', { type: 'button', class: 'icon-button small' }, iconElement('edit', true));
    this.#button.title = 'Edit (F2)';
    this.#button.setAttribute('aria-label', `Edit ${NAMES.get(block.type)} in ${title}`);
    this.#button.addEventListener('click', () => this.begin());
    const author = h('span', { class: 'block-author' }, authorOf(block));
    this.element = h(
      'div',
      { class: `block ${block.type}` },
      this.#drawn,
      h('div', { class: 'block-tools' }, author, this.#button),
    );
    this.#drawn.addEventListener('click', (event) => this.#clicked(event));
    if (block.type === 'key-value') this.#rove();
  }

  /** Begins an edit at the first address. */
  begin() {
    this.#begin(this.#type === 'key-value' ? { kind: 'pair', index: 0, side: 'value' } : { kind: 'text' });
  }

  /**
   * Puts the field in the place of the text.
   * @param {Edit} edit
   */
  show({ element, address }) {
    this.element.classList.add('editing');
    const side =
      address.kind === 'pair' ? this.#sides[2 * address.index + (address.side === 'value' ? 1 : 0)] : undefined;
    if (side) side.replaceChildren(element);
    else this.#drawn.replaceWith(element);
  }

  /**
   * Moves the keyboard focus back to an address.
   * @param {Address} address
   */
  focus(address) {
    const side =
      address.kind === 'pair' ? this.#sides[2 * address.index + (address.side === 'value' ? 1 : 0)] : undefined;
    (side ?? this.#button).focus({ preventScroll: true });
  }

  /** @returns {HTMLElement[]} */
  get #sides() {
    return [...this.#drawn.querySelectorAll('dt, dd')].filter((side) => side instanceof HTMLElement);
  }

  /** @param {Event} event */
  #clicked(event) {
    const { target } = event;
    // A click on a link follows it, and a text selection is for copying.
    if (!(target instanceof Element) || target.closest('a, button, summary, textarea')) return;
    if (!getSelection()?.isCollapsed) return;
    if (this.#type !== 'key-value') this.begin();
    else this.#beginAt(this.#sides.findIndex((side) => side.contains(target)));
  }

  /** @param {number} at */
  #beginAt(at) {
    if (at >= 0) this.#begin({ kind: 'pair', index: Math.floor(at / 2), side: at % 2 ? 'value' : 'key' });
  }

  /** One stop for Tab; arrow keys move between the sides, Enter or F2 edits. */
  #rove() {
    const sides = this.#sides;
    sides.forEach((side, at) => {
      side.tabIndex = at === 1 ? 0 : -1;
      side.addEventListener('keydown', (event) => {
        const step = STEPS.get(event.key);
        if (event.target !== side) return;
        if (event.key === 'Enter' || event.key === 'F2') this.#beginAt(at);
        else if (step) sides[at + step]?.focus();
        else return;
        event.preventDefault();
        event.stopPropagation();
      });
    });
  }
}
