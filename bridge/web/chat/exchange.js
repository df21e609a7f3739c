// One exchange: the person's message and everything that followed, drawn as it arrives.

import { copyText } from '../dom.js';
import { duration, iso, money, when } from '../format.js';
import { icon } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';
import { button, byKey, iconButton } from '../template.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { changesRow } from './changes.js';
import { isPersons } from './conversation.js';
import { foundRow } from './found.js';
import { question } from './question.js';
import { TextPart } from './text_part.js';
import { toolRow } from './tool_row.js';

/** @import { Exchange, Page, Part } from '../types/page.js' */
/** @import * as Types from '../types/page.js' */

/** A longer message of a person is folded. */
const FOLD_CHARS = 1400;
/** Length of a schedule's or program's message that fits on a line. */
const LINE_CHARS = 160;
/** The speaker of a reply; turns of a schedule or of the agent itself have no message. */
const SPEAKERS = { person: 'Sprite', agent: 'Sprite, by itself', schedule: 'Sprite, as scheduled' };

/**
 * The texts of replies keep their elements, because they are drawn piece by piece.
 * @type {WeakMap<Types.TextPart, TextPart>}
 */
const texts = new WeakMap();
/**
 * Exchanges whose long message was unfolded.
 * @type {WeakSet<Exchange>}
 */
const unfolded = new WeakSet();

/** @param {Exchange} entry @param {Page} page */
export function exchange(entry, page) {
  const redraw = () => {
    entry.version += 1;
    page.store.touch('chat');
  };
  const { origin, missionId, parts, status, text } = entry;
  const isSaid = origin === 'person' || text !== null;
  const foot = footOf(entry, page);
  const changed = changesRow(entry, page, redraw);
  const hasReply = origin !== 'person' || parts.length > 0 || foot.length > 0 || changed !== nothing;
  return html`<article class="exchange" tabindex="-1" aria-label="Message and reply" data-status=${status}
    data-mission=${missionId ?? nothing}>
    <div class="said" ?hidden=${text === null}>${text === null ? nothing : said(entry, text, page, redraw)}</div>
    <div class="reply" ?hidden=${!hasReply}>
      <h3 class=${isSaid ? 'visually-hidden' : 'by-itself'}>${SPEAKERS[origin]}</h3>
      <div class="reply-body">${repeat(parts, byKey, (part) => partOf(part, entry, page, redraw))}</div>
      ${changed}${foundRow(entry, page)}
      <div class="reply-foot">${foot}</div>
    </div>
  </article>`;
}

/** @param {Part} part @param {Exchange} entry @param {Page} page @param {() => void} redraw */
function partOf(part, entry, page, redraw) {
  if (part.kind === 'tool') return toolRow(part, entry, page, redraw);
  if (part.kind === 'note') return html`<p class="notice">${icon('alert', true)}${part.text}</p>`;
  if (part.kind === 'permission') return isInRow(part, entry) ? nothing : question(part, page, redraw);
  const text = texts.get(part) ?? new TextPart();
  texts.set(part, text);
  text.update(part);
  return text.element;
}

/**
 * Whether the row of the call tells the answer. "Always" also shows where to take it back.
 * @param {Types.PermissionPart} part
 * @param {Exchange} entry
 */
function isInRow({ decision, tool_use_id: id }, { parts }) {
  const isTold = decision === 'allow' || decision === 'session' || decision === 'deny';
  return isTold && parts.some((part) => part.kind === 'tool' && id && part.toolUseId === id);
}

/** @param {Exchange} entry @param {string} text @param {Page} page @param {() => void} redraw */
function said(entry, text, page, redraw) {
  const queued =
    entry.status === 'queued' && entry.missionId !== null ? queueTools(entry, entry.missionId, page) : nothing;
  if (entry.askedBy !== null) return html`${notTyped('tool', `${entry.askedBy} asks`, text)}${queued}`;
  if (entry.origin === 'schedule') return html`${notTyped('clock', 'By schedule', text)}${queued}`;
  const isLong = text.length > FOLD_CHARS;
  const isFolded = isLong && !unfolded.has(entry);
  const toggle = () => {
    if (!unfolded.delete(entry)) unfolded.add(entry);
    redraw();
  };
  return html`<h3 class="visually-hidden">You, <time datetime=${iso(entry.at)}>${when(entry.at)}</time></h3>
    <div class="bubble">
      <div class="bubble-text ${isFolded ? 'folded' : ''}">${text}</div>
      ${
        isLong
          ? html`<button type="button" class="button quiet small" aria-expanded=${!isFolded} @click=${toggle}>
              ${isFolded ? 'Show all of it' : 'Show less'}
            </button>`
          : nothing
      }
    </div>
    ${queued}`;
}

/**
 * Draws a message of a schedule or program: one line, which expands if there is more text.
 * @param {string} name
 * @param {string} who
 * @param {string} text
 */
function notTyped(name, who, text) {
  const [first = '', ...more] = text.trim().split('\n');
  const line = html`${icon(name, true)}<span class="grow">${who}: ${first}</span>`;
  if (more.length === 0 && first.length <= LINE_CHARS) return html`<p class="notice by-schedule">${line}</p>`;
  return html`<details class="notice by-schedule">
    <summary>${line}${icon('chevron', true)}</summary>
    <p class="bubble-text">${text}</p>
  </details>`;
}

/**
 * Draws the buttons of a message that waits for its turn.
 * @param {Exchange} entry
 * @param {string} missionId
 * @param {Page} page
 */
function queueTools(entry, missionId, page) {
  /** @param {boolean} edit */
  const takeBack = async (edit) => {
    try {
      await page.outbox.takeBack(missionId);
      if (edit) page.draft(entry.text ?? '', entry.pasted);
      else page.announce('Message removed.');
    } catch (problem) {
      const isRunning = codeOf(problem) === 'not_running';
      const text = isRunning ? 'The agent already works on this message. Stop it instead.' : wordsOf(problem);
      page.toast({ kind: 'error', text });
    }
  };
  return html`<div class="queue-tools row">
    <span class="chip">${icon('clock', true)}Waits for its turn</span>
    ${isPersons(entry) ? button('Edit', () => takeBack(true), { look: 'quiet' }) : nothing}
    ${button('Remove', () => takeBack(false), { look: 'quiet' })}
  </div>`;
}

/**
 * Returns the lines below a reply: how it goes or ended.
 * @param {Exchange} entry
 * @param {Page} page
 */
function footOf(entry, page) {
  const { status, parts } = entry;
  const lines = [];
  if (entry.compacting)
    lines.push(html`<p class="muted small-text">
      Making room: the older part of this conversation is being summed up.
    </p>`);
  if (entry.isBegunAgain && status === 'running')
    lines.push(html`<p class="muted small-text">Begun again: Sprite was stopped before it had done anything.</p>`);
  if (status === 'interrupted')
    lines.push(html`<p class="ended">${icon('stop', true)}Stopped.${again(entry, 'Send again', page)}</p>`);
  if (status === 'error')
    lines.push(html`<div class="problem" role="group" aria-label="Error">
      ${icon('alert', true)}
      <div class="grow">
        <p>${entry.error?.message || 'The agent could not finish this.'}</p>
        ${
          entry.error?.details
            ? html`<details class="small-text">
                <summary>Details</summary>
                ${entry.error.details}
              </details>`
            : nothing
        }
      </div>
      ${again(entry, 'Try again', page)}
    </div>`);
  if (status === 'complete' && parts.some((part) => part.kind === 'text')) lines.push(meta(entry, page));
  return lines;
}

/** @param {Exchange} entry @param {string} label @param {Page} page */
function again(entry, label, page) {
  const { text, pasted } = entry;
  // A schedule repeats its own turns; a program's message must not become the person's.
  if (!text || !isPersons(entry)) return nothing;
  // Sent unchanged, it would fail again.
  if (entry.error?.retryable === false)
    return button(html`${icon('edit', true)}Change it`, () => page.draft(text, pasted));
  return button(html`${icon('retry', true)}${label}`, () => {
    const problem = page.outbox.submit(text, page.stackId(), pasted);
    if (problem) page.toast({ kind: 'error', text: problem });
  });
}

/** @param {Exchange} entry @param {Page} page */
function meta({ parts, at, ms, cost }, page) {
  const copy = async () => {
    const reply = parts.filter((part) => part.kind === 'text').map((part) => part.text);
    page.announce((await copyText(reply.join('\n\n'))) ? 'Reply copied.' : 'The reply could not be copied.');
  };
  const figures = [
    when(at),
    ms !== null && ms >= 1000 && duration(ms),
    cost !== null && cost > 0 && !page.isOffline() && money(cost),
  ];
  return html`<div class="reply-meta row muted small-text tabular">
    ${iconButton('copy', 'Copy the reply', copy)}${figures.filter(Boolean).join(' · ')}
  </div>`;
}
