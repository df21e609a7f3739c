// Places on their way to the server: the person sees them at once; they are undone if saving fails.

import { wordsOf } from '../problem.js';

/** @import { Card, Page, Place } from '../types/page.js' */

/** @typedef {{ place: Place }} Move */

export class Moves {
  #page;
  #answered;
  /** @type {Map<string, Move>} */
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
    return this.#pending.get(cardId)?.place;
  }

  /**
   * Saves a card's place on the server; other pages follow.
   * @param {Card} card
   * @param {Place} place
   */
  async keep(card, place) {
    const move = { place };
    this.#pending.set(card.card_id, move);
    const position = { x: place.x, y: place.y };
    const size = { width: place.width, height: place.height };
    const { connection, store } = this.#page;
    try {
      await connection.ask('canvas_interaction', { action: 'move_card', card_id: card.card_id, position, size });
      const known = store.state.cards.get(card.card_id);
      if (this.#isNewest(card, move) && known) store.setCard({ ...known, position, size });
    } catch (problem) {
      if (this.#isNewest(card, move)) {
        this.#page.toast({ kind: 'error', text: `“${card.title}” went back to its place: ${wordsOf(problem)}` });
      }
    }
    if (this.#isNewest(card, move)) {
      this.#pending.delete(card.card_id);
      this.#answered();
    }
  }

  /**
   * @param {Card} card
   * @param {Move} move
   */
  #isNewest(card, move) {
    return this.#pending.get(card.card_id) === move;
  }
}
