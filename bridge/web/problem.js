// What went wrong, in words for people.

/** @import { Block } from './types/page.js' */

/**
 * An answer that is a refusal, or none: `message` is for people, `code` for programs; `block` is what stands where an
 * edit came too late.
 */
export class Problem extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {Block | null} [block]
   */
  constructor(code, message, block = null) {
    super(message);
    this.name = 'Problem';
    this.code = code;
    this.block = block;
  }
}

/**
 * The code of what was caught, null where it is no Problem.
 * @param {unknown} error
 */
export const codeOf = (error) => (error instanceof Problem ? error.code : null);

/**
 * The words of what was caught.
 * @param {unknown} error
 */
export const wordsOf = (error) => (error instanceof Error ? error.message : String(error));
