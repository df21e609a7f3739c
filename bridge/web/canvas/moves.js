// Places on their way to the server: the person sees them at once; they are undone if saving fails.

import { wordsOf } from '../problem.js';

/** @import { Card, Page, Place } from '../types/page.js' */

export class Moves {
  #page;
  #answered;
  /** @type {Map<string, Place>} */
  #pending = new Map();

  /**
   * `answered()` is called when the server has answered, because the card may have to go back.
   * @param {Page} page
   * @param {() => void} answered
   */
  constructor(page, answered) {
    this.#page = page;
    this.#answered = answered;
  }

  /**
   * Returns the place that a card is being moved to, or undefined. Until the answer, echoes of earlier moves are stale.
   * @param {string} cardId
   */
  of(cardId) {
    return this.#pending.get(cardId);
  }

  /**
   * Saves a card's place on the server; other pages follow.
   * @param {Card} card
   * @param {Place} place
   */
  async keep({ card_id, title }, place) {
    this.#pending.set(card_id, place);
    const position = { x: place.x, y: place.y };
    const size = { width: place.width, height: place.height };
    const { connection, store, toast } = this.#page;
    let problem = null;
    try {
      await connection.ask('canvas_interaction', { action: 'move_card', card_id, position, size });
    } catch (error) {
      problem = error;
    }
    // A newer move of the card has its own answer.
    if (this.#pending.get(card_id) !== place) return;
    const known = store.state.cards.get(card_id);
    if (problem) toast({ kind: 'error', text: `“${title}” went back to its place: ${wordsOf(problem)}` });
    else if (known) store.setCard({ ...known, position, size });
    this.#pending.delete(card_id);
    this.#answered();
  }
}
