// The form of one action: text, time, repetition. The sprite's validation errors appear at their fields.

import { codeOf, wordsOf } from '../problem.js';
import { elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';
import { HERE, untimed, wallClock } from './dues.js';

/** @import { ActionDraft, ActionRow } from '../types/page.js' */

const MOST_CHARS = 2000;
/**
 * The named repeats.
 * @type {Record<string, [words: string, rule: string]>}
 */
const REPEATS = {
  none: ['Never', ''],
  daily: ['Every day', 'FREQ=DAILY'],
  weekdays: ['Every weekday', 'FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR'],
  weekly: ['Every week', 'FREQ=WEEKLY'],
  monthly: ['Every month', 'FREQ=MONTHLY'],
  custom: ['Custom rule…', ''],
};
/** @type {Record<string, string>} */
const PRIORITIES = { 1: 'High', 0: 'Normal', '-1': 'Low' };
/**
 * The field of a validation error, by its code; other errors concern the whole form.
 * @type {Record<string, Field>}
 */
const FIELD_OF = {
  too_long: 'content',
  bad_due: 'day',
  past: 'day',
  unknown_zone: 'day',
  bad_repeat: 'repeat',
  never: 'repeat',
  too_often: 'repeat',
};

/** @typedef {'content' | 'day' | 'time' | 'repeat' | 'rule' | 'priority'} Field */

let count = 0;

export class ActionForm {
  #id;
  #action;
  #zone;
  #save;
  #close;
  #repeat;
  /** The repeat as shown: without its own time if the time field shows the same. */
  #rule;
  #busy = false;
  /** @type {{ field: Field | null, words: string } | null} */
  #problem = null;

  /**
   * @param {ActionRow | null} action  the one that is changed; null for a new one
   * @param {(draft: ActionDraft) => Promise<unknown>} save  rejects with a Problem, and the form stays as it is
   * @param {() => void} close  the form is done with
   */
  constructor(action, save, close) {
    count += 1;
    this.#id = `action-form-${count}`;
    this.#action = action;
    this.#save = save;
    this.#close = close;
    // An action keeps its time zone, because its repeat follows that clock.
    this.#zone = action?.tz ?? HERE;
    this.#rule = untimed(action);
    this.#repeat = namedRepeat(this.#rule);
    /** @type {HTMLFormElement} */
    this.element = elementOf(html`<form
      class="action-form"
      aria-label=${action === null ? 'Something to do' : `Change: ${action.content}`}
      novalidate
      @submit=${this.#submit}
      @keydown=${this.#key}
    ></form>`);
    this.#draw();
  }

  focus() {
    this.#input('content').focus();
  }

  #draw() {
    const { content = '', priority = 0 } = this.#action ?? {};
    const before = this.#before();
    const elsewhere = this.#zone === HERE ? '' : ` (${this.#zone.replaceAll('_', ' ')})`;
    const priorities = { ...(priority in PRIORITIES ? {} : { [priority]: `As it is (${priority})` }), ...PRIORITIES };
    const { field = null, words = '' } = this.#problem ?? {};
    render(
      html`
        ${this.#labelled(
          'content',
          'What',
          html`<input
            class="input"
            id=${this.#idOf('content')}
            name="content"
            .value=${content}
            maxlength=${MOST_CHARS}
            autocomplete="off"
            aria-invalid=${field === 'content'}
            aria-describedby=${this.#idOf('problem')}
          />`,
        )}
        <div class="action-when">
          ${this.#labelled(
            'day',
            `Day${elsewhere}`,
            html`<input
              class="input"
              id=${this.#idOf('day')}
              name="day"
              type="date"
              .value=${before.day}
              aria-invalid=${field === 'day'}
              aria-describedby=${this.#idOf('problem')}
            />`,
          )}
          ${this.#labelled(
            'time',
            'Time',
            html`<input
              class="input"
              id=${this.#idOf('time')}
              name="time"
              type="time"
              .value=${before.time}
              aria-invalid=${field === 'day'}
              aria-describedby=${this.#idOf('problem')}
            />`,
          )}
          ${this.#labelled(
            'repeat',
            'Repeat',
            html`<select
              class="input"
              id=${this.#idOf('repeat')}
              name="repeat"
              aria-invalid=${field === 'repeat'}
              aria-describedby=${this.#idOf('problem')}
              @change=${this.#chooseRepeat}
            >
              ${options(
                Object.entries(REPEATS).map(([name, [words]]) => [name, words]),
                this.#repeat,
              )}
            </select>`,
          )}
          ${this.#labelled(
            'priority',
            'Priority',
            html`<select class="input" id=${this.#idOf('priority')} name="priority">
              ${options(
                Object.entries(priorities).toSorted(([a], [b]) => Number(b) - Number(a)),
                String(priority),
              )}
            </select>`,
          )}
        </div>
        ${
          this.#repeat === 'custom'
            ? this.#labelled(
                'rule',
                'Rule, as calendars write it (RFC 5545)',
                html`<input
                  class="input mono"
                  id=${this.#idOf('rule')}
                  name="rule"
                  .value=${this.#rule}
                  placeholder="FREQ=MONTHLY;BYDAY=1MO"
                  spellcheck="false"
                  autocomplete="off"
                  aria-invalid=${field === 'repeat'}
                  aria-describedby=${this.#idOf('problem')}
                />`,
              )
            : nothing
        }
        <p class="bad-words" id=${this.#idOf('problem')} role="alert">${words}</p>
        <div class="row">
          <button type="submit" class="button primary small" ?disabled=${this.#busy}>
            ${this.#action === null ? 'Add' : 'Save'}
          </button>
          <button type="button" class="button quiet small" @click=${() => this.#close()}>Cancel</button>
          <span class="small-text muted">
            A day without a time means 09:00. Without both, the to-do stays listed until it is done.
          </span>
        </div>
      `,
      this.element,
    );
  }

  /** @param {Field} field @param {string} words @param {unknown} control */
  #labelled(field, words, control) {
    return html`<div class="field">
      <label for=${this.#idOf(field)}>${words}</label>
      ${control}
    </div>`;
  }

  /** @param {Field | 'problem'} field */
  #idOf(field) {
    return `${this.#id}-${field}`;
  }

  /** @param {Field} field */
  #input(field) {
    return /** @type {HTMLInputElement} */ (this.element.querySelector(`[name=${field}]`));
  }

  /** @param {Field} field */
  #value(field) {
    return this.element.querySelector(`[name=${field}]`) === null ? '' : this.#input(field).value.trim();
  }

  /** Returns the day and time with which the form was opened. */
  #before() {
    const due = this.#action?.due ?? null;
    return due === null ? { day: '', time: '' } : wallClock(due, this.#zone);
  }

  #chooseRepeat = () => {
    this.#repeat = this.#value('repeat');
    this.#draw();
    if (this.#repeat === 'custom') this.#input('rule').focus();
  };

  /** @param {KeyboardEvent} event */
  #key = (event) => {
    if (event.key !== 'Escape') return;
    event.preventDefault();
    event.stopPropagation();
    this.#close();
  };

  /** @param {Event} event */
  #submit = async (event) => {
    event.preventDefault();
    if (this.#busy) return;
    if (this.#value('content') === '') return this.#refuse('content', 'Write what is to be done.');
    if (this.#repeat === 'custom' && this.#value('rule') === '')
      return this.#refuse('repeat', 'A rule is missing, such as FREQ=MONTHLY;BYDAY=1MO.');
    this.#busy = true;
    this.#problem = null;
    this.#draw();
    try {
      await this.#save(this.#draft());
      this.#close();
    } catch (problem) {
      this.#busy = false;
      this.#refuse(FIELD_OF[codeOf(problem) ?? ''] ?? null, wordsOf(problem));
    }
  };

  /** @param {Field | null} field @param {string} words */
  #refuse(field, words) {
    this.#problem = { field, words };
    this.#draw();
    if (field !== null) this.#input(field === 'repeat' && this.#repeat === 'custom' ? 'rule' : field).focus();
  }

  /**
   * Returns a complete new action, or the changes of a known one.
   * @returns {ActionDraft}
   */
  #draft() {
    const draft = { content: this.#value('content'), ...this.#when(), priority: Number(this.#value('priority')) };
    const action = this.#action;
    if (action === null) return draft;
    const { day, time } = this.#before();
    const isSameTime = this.#value('day') === day && this.#value('time') === time;
    const isSameRepeat = (draft.rrule ?? '') === this.#rule;
    return {
      ...(draft.content !== action.content && { content: draft.content }),
      ...(!isSameTime && { due: draft.due ?? '', tz: draft.tz }),
      // Otherwise the repeat would be lost with its time.
      ...((!isSameRepeat || (!isSameTime && draft.rrule)) && { rrule: draft.rrule ?? '', tz: draft.tz }),
      ...(draft.priority !== action.priority && { priority: draft.priority }),
    };
  }

  /** @returns {Pick<ActionDraft, 'due' | 'rrule' | 'tz'>} */
  #when() {
    const [day, time] = [this.#value('day'), this.#value('time')];
    const rule = this.#repeat === 'custom' ? this.#value('rule') : (REPEATS[this.#repeat]?.[1] ?? '');
    if (day !== '') return { due: time === '' ? day : `${day}T${time}`, rrule: rule || null, tz: this.#zone };
    if (rule === '') return { due: time || null, rrule: null, tz: this.#zone };
    // Without a day, the rule determines the first due date.
    const [hour, minute] = time.split(':').map(Number);
    const at = time === '' || rule.includes('BYHOUR') ? '' : `;BYHOUR=${hour};BYMINUTE=${minute}`;
    return { due: null, rrule: rule + at, tz: this.#zone };
  }
}

/** @param {string} rule */
function namedRepeat(rule) {
  const known = Object.keys(REPEATS).find((name) => name !== 'custom' && REPEATS[name]?.[1] === rule);
  return known ?? 'custom';
}

/** @param {[value: string, words: string][]} all @param {string} chosen */
const options = (all, chosen) =>
  all.map(([value, words]) => html`<option value=${value} ?selected=${value === chosen}>${words}</option>`);
