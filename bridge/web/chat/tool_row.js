// One tool call as a compact row that expands to its input and output.

import { duration } from '../format.js';
import { icon } from '../icons.js';
import { button } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { describeCall, inputText, shortName } from './tools.js';

/** @import { Page, ToolPart } from '../types/page.js' */

/** @type {Record<string, string>} */
const ICONS = {
  Bash: 'tool',
  search_memory: 'brain',
  create_card: 'canvas',
  update_card: 'canvas',
  close_card: 'canvas',
  Read: 'document',
  Write: 'document',
  Edit: 'edit',
};
const CARD_TOOLS = new Set(['create_card', 'update_card']);
/** Shorter durations are not shown. */
const WORTH_SAYING_MS = 1000;
/**
 * Calls whose rows were opened: the others have no body, because inputs and results may be long.
 * @type {WeakSet<ToolPart>}
 */
const opened = new WeakSet();

/**
 * `redraw` draws the exchange again.
 * @param {ToolPart} part
 * @param {Page} page
 * @param {() => void} redraw
 */
export function toolRow(part, page, redraw) {
  const { words, detail } = describeCall(part.name, part.input, part.title);
  const state = part.stopped ? 'stopped' : !part.endedAt ? 'running' : part.isError ? 'failed' : 'done';
  const ms = (part.endedAt ?? part.startedAt) - part.startedAt;
  const outcome = [state === 'done' ? '' : state, ms >= WORTH_SAYING_MS ? duration(ms) : ''];
  /** @param {Event} event */
  const toggled = ({ currentTarget }) => {
    if (!(currentTarget instanceof HTMLDetailsElement) || !currentTarget.open || opened.has(part)) return;
    opened.add(part);
    redraw();
  };
  return html`<details class="tool" data-state=${state} @toggle=${toggled}>
    <summary>
      ${icon(ICONS[shortName(part.name)] ?? 'tool', true)}
      <span class="tool-words">${words}</span>
      <span class=${detail ? 'tool-detail mono cut' : 'grow'}>${detail}</span>
      <span class="tool-state muted">${outcome.filter(Boolean).join(' · ')}</span>
      ${icon('chevron', true)}
    </summary>
    <div class="tool-body">${opened.has(part) ? body(part, page) : nothing}</div>
  </details>`;
}

/** @param {ToolPart} part @param {Page} page */
function body(part, page) {
  const { name, input, title, summary, isError } = part;
  const card = CARD_TOOLS.has(shortName(name)) && cardOf(part, page);
  return html`<h4>Input</h4>
    ${block('Input', title ?? inputText(name, input))}
    ${
      title !== null
        ? html`<p class="muted small-text">Memory’s timeline has the call and its result whole.</p>`
        : part.endedAt && !part.stopped && summary !== null
          ? html`<h4>${isError ? 'What went wrong' : 'Result'}</h4>
              ${block('Result', summary)}`
          : nothing
    }
    ${card ? button('Show the card', () => page.openCard(card.card_id)) : nothing}`;
}

/** @param {string} label @param {string} text */
const block = (label, text) =>
  html`<pre class="scroll" tabindex="0" role="group" aria-label=${label}>${text || '(nothing)'}</pre>`;

/** @param {ToolPart} part @param {Page} page */
function cardOf({ input, title }, page) {
  const { cards } = page.store.state;
  return (
    cards.get(String(input.card_id)) ??
    [...cards.values()].findLast((card) => card.title === (title ?? input.title) && !card.archived)
  );
}
