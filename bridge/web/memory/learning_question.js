// "Is this right?": the question about an unverified learning, in the chat and in the memory panel.

import { button } from '../template.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** @import { LearningAnswer, LearningRow } from '../types/page.js' */

/**
 * Whether the person is asked about it in the chat.
 * @param {LearningRow} row
 */
export const isAsked = (row) => Boolean(row.proposed) && row.superseded_by === null;

/**
 * Whether neither evidence nor the person has confirmed it.
 * @param {LearningRow} row
 */
export const isUnverified = (row) => isAsked(row) || (row.origin === 'none' && row.superseded_by === null);

/**
 * @param {LearningRow} row
 * @param {(row: LearningRow, action: LearningAnswer) => unknown} answer
 */
export const question = (row, answer) =>
  html`<span class="row learning-question" role="group" aria-label="Is this right? ${row.content}">
    <span class="small-text">Is this right?</span>
    ${button('Yes', () => answer(row, 'confirm'))} ${button('No', () => answer(row, 'retire'))}
  </span>`;
