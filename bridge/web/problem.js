// What went wrong, in words for people.

/** An answer that is a refusal, or none: `message` is for people, `code` for programs. */
export class Problem extends Error {
  /**
   * @param {string} code
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.name = 'Problem';
    this.code = code;
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
