// A line between exchanges: memory has learned, or a session has ended. Unverified learnings have a question.

import { plural } from '../format.js';
import { icon } from '../icons.js';
import { isAsked, question } from '../memory/learning_question.js';
import { button } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @import { Notice, Page } from '../types/page.js' */

const MOST = 5;
/** Items shown at once; the others expand on request. */
const FEW = 3;

/** Set once the person has used "Why?": then it needs no explanation. */
const SEEN_KEY = 'sprite.why-seen';

/** @param {Page} page @param {number} id */
function show(page, id) {
  localStorage.setItem(SEEN_KEY, 'yes');
  void page.openLearning(id);
}

/** @param {Notice} entry @param {Page} page */
export function notice(entry, page) {
  const { learnings, files } = entry;
  const rows = learnings.slice(0, MOST).map((row) => {
    const { id, type, content } = row;
    const why = id ? button('Why?', () => show(page, id), { look: 'quiet' }) : nothing;
    const name = (type ?? '').toLowerCase().replaceAll('_', ' ');
    const asked = isAsked(row) ? question(row, page.answerLearning) : nothing;
    const gone = row.superseded_by === 0 ? html` <span class="badge warn">No longer true</span>` : nothing;
    return html`<li><span class="badge info">${name}</span> <span>${content}</span>${gone}${why}${asked}</li>`;
  });
  const hint = localStorage.getItem(SEEN_KEY)
    ? nothing
    : html`<p class="small-text muted"><strong>Why?</strong> shows its source. There you can edit or forget it.</p>`;
  const written = files.map((name) => button(name, () => page.openFile(name), { look: 'quiet mono' }));
  return html`<details class="notice learned" data-notice="learned" 
    ?open=${learnings.length <= FEW || learnings.some(isAsked) || entry.isAnswered}
  >
    <summary>
      ${icon('brain', true)}<span class="grow">Sprite learned ${plural(learnings.length, 'thing')}</span>
      ${icon('chevron', true)}
    </summary>
    <ul class="plain">
      ${rows}${learnings.length > MOST ? html`<li class="muted">and ${learnings.length - MOST} more</li>` : nothing}
    </ul>
    ${hint}
    ${written.length ? html`<p class="row small-text muted written">Written to ${written}</p>` : nothing}
  </details>`;
}
