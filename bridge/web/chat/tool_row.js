// One tool call as a compact row that expands to its input and output.

import { duration } from '../format.js';
import { icon } from '../icons.js';
import { wordsOf } from '../problem.js';
import { button } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { describeCall, inputText, shortName } from './tools.js';

/** @import { Exchange, Page, ToolPart } from '../types/page.js' */

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
 * Ids of calls whose rows are open, also when the chat is drawn again: the others have no body, because inputs and
 * results may be long. A call without an id stands for itself.
 * @type {Set<string | ToolPart>}
 */
const opened = new Set();
/**
 * Whole calls from the log, by their id, or why they cannot be shown.
 * @type {WeakMap<ToolPart, { input: unknown, result: unknown } | string>}
 */
const whole = new WeakMap();
/** @type {Record<string, string>} */
const STATES = {
  asks: 'waits for your answer',
  refused: 'not allowed',
  stopped: 'stopped by you',
  cut: 'interrupted',
  failed: 'failed',
};
/** @type {Record<string, string>} */
const ANSWERS = { allow: 'you allowed it', session: 'allowed in this session', always: 'always allowed' };

/**
 * `redraw` draws the exchange again.
 * @param {ToolPart} part
 * @param {Exchange} entry
 * @param {Page} page
 * @param {() => void} redraw
 */
export function toolRow(part, entry, page, redraw) {
  const state = stateOf(part, entry);
  const key = part.toolUseId ?? part;
  const { words, detail } = describeCall(part.name, part.input, part.title, state);
  const ms = (part.endedAt ?? part.startedAt) - part.startedAt;
  const outcome = [ANSWERS[part.answer ?? ''], STATES[state], ms >= WORTH_SAYING_MS && duration(ms)];
  /** @param {Event} event */
  const toggled = ({ currentTarget }) => {
    if (!(currentTarget instanceof HTMLDetailsElement)) return;
    if (!currentTarget.open) {
      opened.delete(key);
      return;
    }
    if (!opened.has(key)) redraw();
    opened.add(key);
    if (entry.missionId && part.endedAt && !whole.has(part)) void fetchWhole(part, entry.missionId, page).then(redraw);
  };
  const output = state === 'running' && part.output ? html`<pre class="tool-live">${part.output}</pre>` : nothing;
  return html`<details class="tool" data-state=${state} ?open=${opened.has(key)} @toggle=${toggled}>
    <summary>
      ${icon(ICONS[shortName(part.name)] ?? 'tool', true)}
      <span class="tool-words">${words}</span>
      <span class=${detail ? 'tool-detail mono cut' : 'grow'}>${detail}</span>
      <span class="tool-state muted">${outcome.filter(Boolean).join(' · ')}</span>
      ${icon('chevron', true)}
    </summary>
    <div class="tool-body">${opened.has(key) ? body(part, page) : nothing}</div>
  </details>${output}`;
}

/** @param {ToolPart} part @param {Exchange} entry */
function stateOf(part, { parts, error }) {
  const isAsked = parts.some(
    (each) => each.kind === 'permission' && each.decision === undefined && each.tool_use_id === part.toolUseId,
  );
  if (part.stopped) return error?.code === 'crashed' ? 'cut' : 'stopped';
  if (part.toolUseId && isAsked && !part.endedAt) return 'asks';
  if (part.answer === 'deny') return 'refused';
  return !part.endedAt ? 'running' : part.isError ? 'failed' : 'done';
}

/** @param {ToolPart} part @param {string} missionId @param {Page} page */
async function fetchWhole(part, missionId, page) {
  try {
    const { turn } = await page.connection.ask('memory', { op: 'turn', mission_id: missionId });
    const calls = /** @type {{ tool_use_id?: string, input: unknown, result: unknown }[]} */ (turn.tool_calls);
    const call = calls.find(({ tool_use_id: id }) => id === part.toolUseId);
    if (call) whole.set(part, call);
  } catch (problem) {
    // A turn under way is not in the log yet: the row can be opened again.
    if (part.title !== null) whole.set(part, wordsOf(problem));
  }
}

/** @param {ToolPart} part @param {Page} page */
function body(part, page) {
  const { name, input, title, summary, isError } = part;
  const found = whole.get(part);
  const call = typeof found === 'object' ? found : null;
  const card = CARD_TOOLS.has(shortName(name)) && cardOf(part, page);
  const given = /** @type {import('../types/page.js').ToolInput} */ (call?.input ?? input);
  const result = call ? call.result : part.endedAt && !part.stopped ? summary : null;
  return html`<h4>Input</h4>
    ${block('Input', call || title === null ? inputText(name, given) : title)}
    ${
      result === null
        ? nothing
        : html`<h4>${isError ? 'What went wrong' : 'Result'}</h4>
            ${block('Result', result)}`
    }
    ${typeof found === 'string' ? html`<p class="muted small-text">${found}</p>` : nothing}
    ${card ? button('Show the card', () => page.openCard(card.card_id)) : nothing}`;
}

/** @param {string} label @param {unknown} value */
export const block = (label, value) =>
  html`<pre class="scroll" tabindex="0" role="group" aria-label=${label}>${
    (typeof value === 'string' ? value : JSON.stringify(value, null, 2)) || '(nothing)'
  }</pre>`;

/** @param {ToolPart} part @param {Page} page */
function cardOf({ input, title }, page) {
  const { cards } = page.store.state;
  return (
    cards.get(String(input.card_id)) ??
    [...cards.values()].findLast((card) => card.title === (title ?? input.title) && !card.archived)
  );
}
