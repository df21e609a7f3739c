// Frame of an editable block: the block, its last author, a button to edit it, and the field during an edit.

import { iconButton } from '../template.js';
import { html } from '../vendor/lit-html/lit-html.js';
import { drawBlock } from './blocks.js';
import { NAMES, withTick } from './cell_address.js';

/** @import { Block, BlockData } from '../types/page.js' */
/** @import { Address } from './cell_address.js' */
/** @import { Edit } from './edit.js' */

/** Arrow keys between the names and values of a list of pairs. */
const STEPS = new Map(Object.entries({ ArrowUp: -2, ArrowDown: 2, ArrowLeft: -1, ArrowRight: 1 }));

/**
 * Returns who changed a block last, unless that is the agent that drew it.
 * @param {Block} block
 */
export function authorOf({ by, version = 1 }) {
  if (by === 'person') return version > 1 ? 'Edited by you' : 'Written by you';
  return version > 1 ? 'Edited by Sprite' : '';
}

/**
 * `begin(address)` is called when the person wants to edit, `change(changed)` when they tick a box; `title` is the
 * card's, `key` names the block in it.
 * @param {string} key
 * @param {Block} block
 * @param {string} title
 * @param {Edit | null} edit
 * @param {(address: Address) => void} begin
 * @param {(changed: (now: Block) => BlockData | null) => Promise<boolean>} change
 */
export function blockFrame(key, block, title, edit, begin, change) {
  const { type } = block;
  /** @param {MouseEvent} event */
  const clicked = ({ target, currentTarget }) => {
    if (target instanceof HTMLInputElement && currentTarget instanceof HTMLElement) {
      const boxes = [...currentTarget.querySelectorAll('.task > input')];
      const at = boxes.indexOf(target);
      // Another box of the person's may have been ticked since, but nobody else may have changed the text.
      const ticked = (/** @type {Block} */ now) =>
        now.version === block.version || now.by === 'person' ? withTick(now.data, at, boxes.length) : null;
      if (ticked(block) === null) begin(firstAddress(type));
      else
        void change(ticked).then((isSaved) => {
          if (!isSaved) target.checked = !target.checked;
        });
      return;
    }
    // A click on a link follows it, and a text selection is for copying.
    if (!(target instanceof Element) || target.closest('a, button, summary, textarea, .block-tools')) return;
    if (!getSelection()?.isCollapsed) return;
    const at = sidesOf(currentTarget).findIndex((side) => side.contains(target));
    if (type !== 'key-value') begin(firstAddress(type));
    else if (at >= 0) begin(addressOf(at));
  };
  /** @param {KeyboardEvent} event */
  const keyed = (event) => {
    const sides = sidesOf(event.currentTarget);
    const at = sides.indexOf(/** @type {HTMLElement} */ (event.target));
    const step = STEPS.get(event.key);
    if (at < 0) return;
    if (event.key === 'Enter' || event.key === 'F2') begin(addressOf(at));
    else if (step) sides[at + step]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const tool = iconButton('edit', `Edit ${NAMES.get(type)} in ${title}`, () => begin(firstAddress(type)), {
    title: 'Edit (F2)',
  });
  return html`<div class="block ${type} ${edit ? 'editing' : ''}" data-key=${key} @click=${clicked} @keydown=${keyed}>
    ${drawBlock(edit?.block ?? block, edit)}
    <div class="block-tools"><span class="block-author">${authorOf(block)}</span>${tool}</div>
  </div>`;
}

/**
 * Returns the address at which an edit of a block begins.
 * @param {string} type
 * @returns {Address}
 */
export const firstAddress = (type) => (type === 'key-value' ? addressOf(1) : { kind: 'text' });

/**
 * Moves the keyboard focus back to an address.
 * @param {Element | null} frame
 * @param {Address} address
 */
export function focusAddress(frame, address) {
  if (!frame) return;
  const sides = sidesOf(frame);
  const side = address.kind === 'pair' ? sides[2 * address.index + (address.side === 'value' ? 1 : 0)] : undefined;
  /** @type {HTMLElement | null} */
  const target = side ?? frame.querySelector('.block-tools button');
  target?.focus({ preventScroll: true });
}

/** @param {number} at @returns {Address} */
const addressOf = (at) => ({ kind: 'pair', index: Math.floor(at / 2), side: at % 2 ? 'value' : 'key' });

/**
 * Returns the names and values of a list of pairs, in order.
 * @param {EventTarget | null} frame
 * @returns {HTMLElement[]}
 */
const sidesOf = (frame) =>
  frame instanceof HTMLElement ? /** @type {HTMLElement[]} */ ([...frame.querySelectorAll('dt, dd')]) : [];
