// A person's changes of blocks: saved under the version that they saw, and taken back by Ctrl+Z, newest first.

import { codeOf, Problem, wordsOf } from '../problem.js';

/** @import { Block, BlockData, Page } from '../types/page.js' */

const MOST = 100;
/** @type {{ cardId: string, blockId: string, before: BlockData, after: string }[]} */
const done = [];

export const canUndo = () => done.length > 0;

/**
 * Saves a block's new data and shows it; the message to all pages has the same content. Throws the server's refusal.
 * @param {Page} page
 * @param {string} cardId
 * @param {Block} block  the one that the person saw
 * @param {BlockData} data
 * @param {{ timeout?: number, isUndo?: boolean }} [options]
 */
export async function saveBlock(page, cardId, block, data, { timeout, isUndo = false } = {}) {
  const { version = 1 } = block;
  const edit = { card_id: cardId, block_id: block.id, data, seen: version };
  await page.connection.ask('canvas_interaction', { action: 'update_block', ...edit }, { timeout });
  if (!isUndo) done.push({ cardId, blockId: block.id, before: block.data, after: JSON.stringify(data) });
  done.splice(0, done.length - MOST);
  const card = page.store.state.cards.get(cardId);
  if (!card?.blocks.some((each) => each.id === block.id && (each.version ?? 1) <= version)) return;
  /** @type {Block} */
  const saved = { ...block, data, version: version + 1, by: 'person' };
  page.store.setCard({ ...card, blocks: card.blocks.map((each) => (each.id === block.id ? saved : each)) });
}

/** Changes without a field run one after the other: each begins with the block that the one before left. */
let queue = Promise.resolve(true);

/**
 * Saves a change that needs no field, such as a tick; returns false and says why if that fails.
 * @param {Page} page
 * @param {string} cardId
 * @param {string} blockId
 * @param {(block: Block) => BlockData | null} change  the new data of the current block; null if it no longer fits
 * @returns {Promise<boolean>}
 */
export function changeBlock(page, cardId, blockId, change) {
  queue = queue.then(() => changeNow(page, cardId, blockId, change));
  return queue;
}

/**
 * @param {Page} page
 * @param {string} cardId
 * @param {string} blockId
 * @param {(block: Block) => BlockData | null} change
 * @param {boolean} [isUndo]
 */
async function changeNow(page, cardId, blockId, change, isUndo = false) {
  const block = blockOf(page, cardId, blockId);
  try {
    const data = block && change(block);
    if (!data) throw new Problem('conflict', 'The block has changed.');
    await saveBlock(page, cardId, block, data, { isUndo });
    return true;
  } catch (problem) {
    const why = codeOf(problem) === 'conflict' ? 'the card has just changed. Try again.' : wordsOf(problem);
    page.toast({ kind: 'error', text: `Not saved: ${why}` });
    return false;
  }
}

/** @param {Page} page @param {string} cardId @param {string} blockId */
function blockOf(page, cardId, blockId) {
  const card = page.store.state.cards.get(cardId);
  return card?.archived ? undefined : card?.blocks.find(({ id }) => id === blockId);
}

/**
 * Takes the person's last change back, if nobody has changed the block since.
 * @param {Page} page
 */
export function undo(page) {
  queue = queue.then(() => undoLast(page));
}

/** @param {Page} page */
async function undoLast(page) {
  const last = done.pop();
  if (!last) return true;
  const { cardId, blockId, before, after } = last;
  const block = blockOf(page, cardId, blockId);
  if (!block || JSON.stringify(block.data) !== after) {
    page.toast({ text: 'Your last change cannot be undone: the card was changed or archived since.' });
    return false;
  }
  const isUndone = await changeNow(page, cardId, blockId, () => before, true);
  if (isUndone) page.announce(`Undone on ${page.store.state.cards.get(cardId)?.title}.`);
  return isUndone;
}
