// "Found for this answer": the hits of a turn's searches of memory, each with its source. It claims no use of them.

import { plural, when } from '../format.js';
import { icon } from '../icons.js';
import { FILES, TYPES } from '../memory/labels.js';
import { button } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @import { Exchange, FoundHit, Page } from '../types/page.js' */

/** @param {Exchange} entry @param {Page} page */
export function foundRow({ found }, page) {
  if (!found.length) return nothing;
  return html`<details class="tool found">
    <summary>
      ${icon('brain', true)}
      <span class="tool-words">Found for this answer</span>
      <span class="grow"></span>
      <span class="tool-state muted">${plural(found.length, 'hit')}</span>
      ${icon('chevron', true)}
    </summary>
    <div class="tool-body">
      <ul class="plain">${found.map((hit) => row(hit, page))}</ul>
      <p class="small-text muted">
        Also given to the agent when the session began:
        ${Object.keys(FILES).map((name) => button(name, () => page.openFile(name), { look: 'quiet mono' }))}
      </p>
    </div>
  </details>`;
}

/** @param {FoundHit} hit @param {Page} page */
function row({ kind, id, type, at, text, turn = null }, page) {
  const open = () => (kind === 'learning' ? page.openLearning(id) : page.openTurn(id));
  const [look, name] = kind === 'learning' ? ['info', TYPES[type] ?? type] : ['', 'Turn'];
  const source = turn === null ? '' : `turn ${turn}, `;
  return html`<li class="row">
    <span class="badge ${look}">${name}</span>
    <span class="grow">${text} <span class="muted small-text">${source}${when(at)}</span></span>
    ${button('Why?', open, { look: 'quiet', label: `Open ${kind} ${id}` })}
  </li>`;
}
