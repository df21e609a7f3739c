// One exchange on the page: the person's message and everything that followed, drawn as it arrives.

import { copyText, h } from '../dom.js';
import { duration, iso, money, when } from '../format.js';
import { iconElement } from '../icons.js';
import { codeOf, wordsOf } from '../problem.js';
import { isPersons } from './conversation.js';
import { Question } from './question.js';
import { TextPart } from './text_part.js';
import { ToolRow } from './tool_row.js';

/** @import { Exchange, Page, Part, View } from '../types/page.js' */

/** A longer message of a person is folded. */
const FOLD_CHARS = 1400;
/** Length of a schedule's or program's message that fits on a line. */
const LINE_CHARS = 160;
/** The speaker of a reply; turns of a schedule or of the agent itself have no message. */
const SPEAKERS = { person: 'Sprite', agent: 'Sprite, by itself', schedule: 'Sprite, as scheduled' };
const STATES = { queued: 'Waits for its turn', sent: 'Sent' };

export class ExchangeView {
  #version = -1;
  /** @type {string | null} */
  #text = null;
  /** @type {Map<number, View<Part>>} */
  #parts = new Map();
  #said = h('div', { class: 'said' });
  #speaker = h('h3', { class: 'visually-hidden' }, SPEAKERS.person);
  #body = h('div', { class: 'reply-body' });
  #foot = h('div', { class: 'reply-foot' });
  #footShown = '';

  /**
   * @param {Exchange} entry
   * @param {Page} page
   */
  constructor(entry, page) {
    this.entry = entry;
    this.page = page;
    this.reply = h('div', { class: 'reply' }, this.#speaker, this.#body, this.#foot);
    this.element = h(
      'article',
      { class: 'exchange', tabIndex: -1, 'aria-label': 'Message and reply' },
      this.#said,
      this.reply,
    );
  }

  /** @param {Exchange} entry */
  update(entry) {
    this.entry = entry;
    if (entry.version === this.#version) return;
    this.#version = entry.version;
    this.element.dataset.status = entry.status;
    if (entry.missionId) this.element.dataset.mission = entry.missionId;
    this.#speaker.textContent = SPEAKERS[entry.origin];
    const isSaid = entry.origin === 'person' || entry.text !== null;
    this.#speaker.className = isSaid ? 'visually-hidden' : 'by-itself';
    this.#drawSaid(entry);
    this.#drawParts(entry);
    this.#drawFoot(entry);
    this.reply.hidden = entry.origin === 'person' && entry.parts.length === 0 && this.#foot.childElementCount === 0;
  }

  /** @param {Exchange} entry */
  #drawSaid(entry) {
    const shown = `${entry.origin}|${entry.askedBy}|${entry.text}|${entry.status in STATES ? entry.status : ''}`;
    if (this.#text === shown) return;
    this.#text = shown;
    this.#said.hidden = entry.text === null;
    if (entry.text === null) return;
    if (entry.origin === 'schedule' || entry.askedBy !== null) {
      const line =
        entry.askedBy === null
          ? notTyped('clock', 'By schedule', entry.text)
          : notTyped('tool', `${entry.askedBy} asks`, entry.text);
      this.#said.replaceChildren(line, ...this.#queueTools(entry));
      return;
    }
    const text = h('div', { class: 'bubble-text' }, entry.text);
    const bubble = h('div', { class: 'bubble' }, text);
    if (entry.text.length > FOLD_CHARS) {
      text.classList.add('folded');
      const more = h(
        'button',
        { class: 'button quiet small', type: 'button', 'aria-expanded': 'false' },
        'Show all of it',
      );
      more.onclick = () => {
        const folded = text.classList.toggle('folded');
        more.textContent = folded ? 'Show all of it' : 'Show less';
        more.setAttribute('aria-expanded', String(!folded));
      };
      bubble.append(more);
    }
    const time = h('time', { class: 'visually-hidden', dateTime: iso(entry.at) }, when(entry.at));
    this.#said.replaceChildren(
      h('h3', { class: 'visually-hidden' }, 'You, ', time),
      bubble,
      ...this.#queueTools(entry),
    );
  }

  /** @param {Exchange} entry */
  #queueTools(entry) {
    const { missionId, text } = entry;
    if (entry.status !== 'queued' || missionId === null) return [];
    /** @param {boolean} edit */
    const takeBack = async (edit) => {
      try {
        await this.page.outbox.takeBack(missionId);
        if (edit) this.page.draft(text ?? '');
        else this.page.announce('Message removed.');
      } catch (problem) {
        this.page.toast({
          kind: 'error',
          text:
            codeOf(problem) === 'not_running' ? 'It is being worked on already. Stop it instead.' : wordsOf(problem),
        });
      }
    };
    return [
      h(
        'div',
        { class: 'queue-tools row' },
        h('span', { class: 'chip' }, iconElement('clock', true), STATES.queued),
        isPersons(entry) &&
          h(
            'button',
            {
              class: 'button quiet small',
              type: 'button',
              dataset: { act: 'edit' },
              onclick: () => void takeBack(true),
            },
            'Edit',
          ),
        h('button', { class: 'button quiet small', type: 'button', onclick: () => void takeBack(false) }, 'Remove'),
      ),
    ];
  }

  /** @param {Exchange} entry */
  #drawParts(entry) {
    const keys = new Set(entry.parts.map((part) => part.key));
    for (const [key, view] of this.#parts) {
      if (keys.has(key)) continue;
      view.element.remove();
      this.#parts.delete(key);
    }
    let at = null;
    for (const part of entry.parts) {
      let view = this.#parts.get(part.key);
      if (!view) {
        view = this.#made(part);
        this.#parts.set(part.key, view);
        if (at) at.after(view.element);
        else this.#body.prepend(view.element);
      }
      view.update(part);
      at = view.element;
    }
  }

  /**
   * @param {Part} part
   * @returns {View<Part>}
   */
  #made(part) {
    if (part.kind === 'tool') return new ToolRow(part, this.page);
    return part.kind === 'permission' ? new Question(part, this.page) : new TextPart();
  }

  /** @param {Exchange} entry */
  #drawFoot(entry) {
    const shown = [entry.status, entry.error?.message, entry.ms, entry.compacting, entry.isBegunAgain].join('|');
    if (shown === this.#footShown) return;
    this.#footShown = shown;
    const pieces = [];
    if (entry.compacting)
      pieces.push(
        h('p', { class: 'muted small-text' }, 'Making room: the older part of this conversation is being summed up.'),
      );
    if (entry.isBegunAgain && entry.status === 'running')
      pieces.push(
        h('p', { class: 'muted small-text' }, 'Begun again: Sprite was stopped before it had done anything.'),
      );
    if (entry.status === 'interrupted')
      pieces.push(h('p', { class: 'ended' }, iconElement('stop', true), 'Stopped.', this.#again(entry, 'Send again')));
    if (entry.status === 'error') {
      pieces.push(
        h(
          'div',
          { class: 'problem', role: 'group', 'aria-label': 'Error' },
          iconElement('alert', true),
          h('p', { class: 'grow' }, problemWords(entry.error)),
          this.#again(entry, 'Try again'),
        ),
      );
    }
    if (entry.status === 'complete' && entry.parts.some((part) => part.kind === 'text')) pieces.push(this.#meta(entry));
    this.#foot.replaceChildren(...pieces);
  }

  /**
   * @param {Exchange} entry
   * @param {string} label
   */
  #again(entry, label) {
    const { text } = entry;
    // A schedule repeats its own turns; a program's message must not become the person's.
    if (!text || !isPersons(entry)) return null;
    // Sent unchanged, it would fail again.
    if (entry.error?.retryable === false)
      return h(
        'button',
        { class: 'button small', type: 'button', onclick: () => this.page.draft(text) },
        iconElement('edit', true),
        'Change it',
      );
    const again = () => {
      const problem = this.page.outbox.submit(text, this.page.stackId());
      if (problem) this.page.toast({ kind: 'error', text: problem });
    };
    return h('button', { class: 'button small', type: 'button', onclick: again }, iconElement('retry', true), label);
  }

  /** @param {Exchange} entry */
  #meta(entry) {
    const said = () =>
      entry.parts
        .filter((part) => part.kind === 'text')
        .map((part) => part.text)
        .join('\n\n');
    const copy = async () => this.page.announce((await copyText(said())) ? 'Reply copied.' : 'It could not be copied.');
    const figures = [
      when(entry.at),
      entry.ms !== null && entry.ms >= 1000 && duration(entry.ms),
      entry.cost !== null && entry.cost > 0 && !this.page.isOffline() && money(entry.cost),
    ].filter(Boolean);
    return h(
      'div',
      { class: 'reply-meta row muted small-text tabular' },
      h(
        'button',
        {
          class: 'icon-button small',
          type: 'button',
          'aria-label': 'Copy the reply',
          title: 'Copy the reply',
          onclick: () => void copy(),
        },
        iconElement('copy', true),
      ),
      figures.join(' · '),
    );
  }
}

/**
 * Draws a message of a schedule or program: one line, which expands if there is more text.
 * @param {string} icon
 * @param {string} who
 * @param {string} text
 */
function notTyped(icon, who, text) {
  const [first = '', ...more] = text.trim().split('\n');
  const line = [iconElement(icon, true), h('span', { class: 'grow' }, `${who}: ${first}`)];
  if (more.length === 0 && first.length <= LINE_CHARS) return h('p', { class: 'notice by-schedule' }, ...line);
  return h(
    'details',
    { class: 'notice by-schedule' },
    h('summary', null, ...line, iconElement('chevron', true)),
    h('p', { class: 'bubble-text' }, text),
  );
}

/**
 * Removes the status number that the agent's client puts before an error message.
 * @param {Exchange['error']} error
 */
function problemWords(error) {
  if (!error?.message) return 'It could not be finished.';
  return error.message.replace(/^API Error: \d{3} ?/, 'The model’s service answered: ');
}
