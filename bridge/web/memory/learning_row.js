// One learning as a row: text, date, source, evidence, and whether it still holds.

import { iso, number, when } from '../format.js';
import { button } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { ORIGINS, TYPES, where } from './labels.js';
import { isUnverified, question } from './learning_question.js';

/** @import { LearningRow, MemoryActs } from '../types/page.js' */

/**
 * `acts`: openTurn(id, quote), openLearning(id), answer(row, action), forget(row).
 * @param {LearningRow} row
 * @param {MemoryActs} acts
 * @param {{ fresh?: boolean }} [how]
 */
export function learningRow(row, acts, { fresh = false } = {}) {
  const heir = row.superseded_by;
  const gone = heir !== null;
  return html`<article
    class="learning ${gone ? 'gone' : ''} ${fresh ? 'fresh' : ''}"
    id="learning-${row.id}"
    tabindex="-1"
    aria-label="Learning ${row.id}"
  >
    <div class="learning-line">
      <span class="badge ${row.type === 'CORRECTION' ? 'info' : ''}">${TYPES[row.type] ?? row.type}</span>
      ${fresh ? html`<span class="badge ok">Just learned</span>` : nothing}
      ${gone ? html`<span class="badge warn">No longer true</span>` : nothing}
      ${isUnverified(row) ? html`<span class="badge warn">Unverified</span>` : nothing}
      <p class="learning-text">${row.content}</p>
    </div>
    ${isUnverified(row) ? question(row, acts.answer) : nothing}
    <div class="learning-line">${evidence(row, acts)}
    <p class="learning-foot small-text muted">
      <time datetime=${iso(row.created_at)}>${when(row.created_at)}</time> ·
      ${isConfirmed(row) ? 'you confirmed it' : (ORIGINS[row.origin] ?? row.origin)}${where(row)}${
        row.seen > 1 ? html` · heard ${number(row.seen)} times, last ${when(row.last_seen)}` : nothing
      }
      ${heir === 0 ? ' · you said that it is no longer true' : nothing}
      ${
        heir
          ? html` · replaced by
              <button type="button" class="link" @click=${() => acts.openLearning(heir)}>
                learning ${heir}
              </button>`
          : nothing
      }
    </p>
    <div class="row learning-acts">
      ${button('Edit', () => acts.answer(row, 'edit'), {
        look: 'quiet',
        label: `Edit learning ${row.id}`,
        hidden: gone,
      })}
      ${button('No longer true', () => acts.answer(row, 'retire'), {
        look: 'quiet',
        label: `Learning ${row.id} is no longer true`,
        hidden: gone || isUnverified(row),
      })}
      ${button('Forget', () => acts.forget(row), { look: 'quiet', label: `Forget learning ${row.id}` })}
    </div></div>
  </article>`;
}

/**
 * Whether its word is the person's answer to the question: then no quote is its evidence.
 * @param {LearningRow} row
 */
const isConfirmed = (row) => row.origin === 'user' && row.evidence === null;

/** @param {LearningRow} row @param {MemoryActs} acts */
function evidence({ source_observation_id: turn, evidence: quote }, { openTurn }) {
  if (turn === null) return nothing;
  const open = () => openTurn(turn, quote);
  if (!quote) return html`<button type="button" class="evidence" @click=${open}>From turn ${turn}</button>`;
  return html`<button type="button" class="evidence" title="Open turn ${turn}" @click=${open}>
    <q>${quote}</q> <span class="evidence-turn">turn ${turn}</span>
  </button>`;
}
