// Errors with messages for people.

/** @import { Block } from './types/page.js' */

/**
 * A refusal or a missing answer: `message` is for people, `code` for programs; `block` is the current block if an edit
 * came too late.
 */
export class Problem extends Error {
  /** @param {string} code @param {string} message @param {Block | null} [block] */
  constructor(code, message, block = null) {
    super(message);
    this.name = 'Problem';
    this.code = code;
    this.block = block;
  }
}

/**
 * Returns the code of an error, null if it is no Problem.
 * @param {unknown} error
 */
export const codeOf = (error) => (error instanceof Problem ? error.code : null);

/**
 * Returns the message of an error.
 * @param {unknown} error
 */
export const wordsOf = (error) => (error instanceof Error ? error.message : String(error));
