// One complete turn of the log: message, tool calls, answer. The evidence of a learning is highlighted.

import { block } from '../chat/tool_row.js';
import { describeCall, inputText } from '../chat/tools.js';
import { iso, when } from '../format.js';
import { renderMarkdown } from '../markdown.js';
import { evenOutline } from '../outline.js';
import { wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { byItself, OUTCOMES, SEEN, where } from './labels.js';

/** @import { LoggedTurn, MemoryClient, Page } from '../types/page.js' */
/** @import { TemplateResult } from 'lit-html' */

const MARK = 'evidence';

/**
 * Opens a turn and highlights `quote` in it. Resolves with the data that the person wants to forget, or null.
 * @param {Page} page
 * @param {MemoryClient} client
 * @param {number} id
 * @param {string | null} [quote]
 */
export async function showTurn(page, client, id, quote = null) {
  const body = elementOf(html`<div class="turn-view"></div>`);
  let shown = id;
  /** @type {string | null} */
  let session = null;
  /** @type {string | null} */
  let mission = null;

  /** @param {number} turnId @param {string | null} [words] */
  async function open(turnId, words = null) {
    shown = turnId;
    const around = { previous: () => open(turnId - 1), next: () => open(turnId + 1) };
    render(head(turnId, around, html`<p role="status">Loading…</p>`), body);
    try {
      const turn = await client.turn(turnId);
      if (shown !== turnId) return;
      session = turn.session_id;
      mission = turn.mission_id;
      render(head(turnId, around, content(turn)), body);
      mark(body, words);
    } catch (problem) {
      if (shown === turnId) render(head(turnId, around, html`<p class="bad-words">${wordsOf(problem)}</p>`), body);
    }
  }

  void open(id, quote);
  const answer = await page.dialog({
    title: 'From the log',
    body,
    wide: true,
    actions: [
      { label: 'Forget its whole session…', value: 'session', danger: true },
      { label: 'Forget this turn…', value: 'turn', danger: true },
      { label: 'Show in the chat', value: 'chat' },
      { label: 'Close', value: null, primary: true },
    ],
  });
  CSS.highlights?.delete(MARK);
  if (answer === 'chat')
    if (mission === null) page.toast({ text: 'This turn was not said in this chat.' });
    else void page.openMission(mission);
  if (answer === 'session' && session !== null) return { session };
  return answer === 'turn' ? { turn: shown } : null;
}

/** @param {number} id @param {{ previous: () => void, next: () => void }} around @param {TemplateResult} content */
const head = (id, { previous, next }, content) =>
  html`<div class="turn-head">
      <h3>Turn ${id}</h3>
      <span class="grow"></span>
      <button type="button" class="button quiet small" ?disabled=${id <= 1} @click=${previous}>Earlier</button>
      <button type="button" class="button quiet small" @click=${next}>Later</button>
    </div>
    ${content}`;

/** @param {LoggedTurn} turn */
function content(turn) {
  const outcome = OUTCOMES[turn.outcome];
  const asker = turn.asked_by ?? 'You';
  return html`
    <p class="small-text">
      <time datetime=${iso(turn.timestamp)}>${when(turn.timestamp)}</time>${outcome ? html` · ${outcome}` : nothing} ·
      ${
        turn.processed
          ? 'learned from'
          : turn.quarantined
            ? 'set aside: learning from it failed'
            : turn.off_record
              ? 'off the record, as you asked: kept in the log, and not learned from'
              : 'not learned from yet'
      }${where(turn)}
    </p>
    ${
      turn.trigger === 'task'
        ? html`<p>${byItself(turn.tool_calls.map(nameOf)).words}</p>`
        : turn.trigger === 'schedule'
          ? html`<p>A schedule began this: an action was due.</p>`
          : nothing
    }
    ${turn.user_message ? said(asker, html`<div class="turn-text">${turn.user_message}</div>`) : nothing}
    ${turn.notice ? said('What it was told', html`<div class="turn-text">${turn.notice}</div>`) : nothing}
    ${
      turn.tool_calls.length
        ? said('What it did', html`<div class="turn-calls">${turn.tool_calls.map(call)}</div>`)
        : nothing
    }
    ${turn.agent_response ? said('Agent', prose(turn.agent_response)) : nothing}
  `;
}

/** @param {string} who @param {unknown} what */
const said = (who, what) =>
  html`<section class="turn-part">
    <h4>${who}</h4>
    ${what}
  </section>`;

/** @param {string} text */
function prose(text) {
  const element = elementOf(html`<div class="prose">${renderMarkdown(text, { heading: 5 })}</div>`);
  evenOutline(element, 4);
  return element;
}

/**
 * Draws a tool call, which another program may have recorded.
 * @param {unknown} made
 */
function call(made) {
  const { name, input, result, is_error: failed } = /** @type {Record<string, unknown>} */ (Object(made));
  const seen = SEEN[String(name)];
  if (seen !== undefined) {
    return html`<details class="turn-call">
      <summary>${seen}</summary>
      ${block(seen, result)}
    </details>`;
  }
  const given = typeof input === 'object' ? Object(input) : { input };
  const { words, detail } = describeCall(String(name), given, null, 'done');
  return html`<details class="turn-call">
    <summary>
      ${words} ${failed ? html`<span class="badge bad">failed</span>` : nothing}
      <span class="mono muted">${detail}</span>
    </summary>
    ${block('Input', inputText(String(name), given))}
    ${result === null || result === undefined || result === '' ? nothing : block('Result', result)}
  </details>`;
}

/**
 * Highlights the quote, across elements, and scrolls it into view.
 * @param {HTMLElement} root
 * @param {string | null} quote
 */
function mark(root, quote) {
  CSS.highlights?.delete(MARK);
  const range = quote ? rangeOf(root, quote) : null;
  if (range === null) return;
  const place = range.startContainer.parentElement;
  place?.closest('details')?.setAttribute('open', '');
  CSS.highlights?.set(MARK, new Highlight(range));
  place?.scrollIntoView({ block: 'center' });
}

/**
 * Returns the range of a quote in an element's text, ignoring spaces and case; null if it is missing.
 * @param {Node} root
 * @param {string} quote
 */
export function rangeOf(root, quote) {
  const wanted = quote.replace(/\s+/gu, '').toLowerCase();
  if (wanted === '') return null;
  /** @type {{ node: Text, offset: number }[]} */
  const places = [];
  let text = '';
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = /** @type {Text} */ (walker.currentNode);
    for (let offset = 0; offset < node.data.length; offset += 1) {
      const letter = node.data.charAt(offset);
      if (/\s/u.test(letter)) continue;
      const lower = letter.toLowerCase();
      text += lower.length === 1 ? lower : letter;
      places.push({ node, offset });
    }
  }
  const at = text.indexOf(wanted);
  const first = places[at];
  const last = places[at + wanted.length - 1];
  if (!first || !last) return null;
  const range = document.createRange();
  range.setStart(first.node, first.offset);
  range.setEnd(last.node, last.offset + 1);
  return range;
}

/**
 * Returns the name of a call, whose format another program may have chosen.
 * @param {unknown} used
 */
const nameOf = (used) => String(/** @type {{ name?: unknown } | null} */ (used)?.name);
