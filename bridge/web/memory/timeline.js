// The history of memory: turns, learnings, edits and forgets, newest first.

import { did } from '../chat/tools.js';
import { iso, money, plural, when } from '../format.js';
import { icon } from '../icons.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { PAGE } from './client.js';
import { byItself, OUTCOMES, SEEN, touched, turnRange, where } from './labels.js';
import { byDay, mergePages, wanting } from './merge_pages.js';
import { Rows } from './rows.js';
import { nothingYet, View } from './view.js';

/** @import { CurationRow, Forgotten, LearningRow, MemoryActs, MemoryClient, Page, TurnRow } from '../types/page.js' */
/** @import { Entry, Listed } from './merge_pages.js' */

const FRESH_MS = 20_000;
const TOOLS_NAMED = 4;
const LESSONS = 4;
const FIRST_OF_SESSION = 1;
const dayName = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' });
/** @param {number} at */
const dayOf = (at) => dayName.format(new Date(at * 1000));

export class Timeline extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {Rows<TurnRow>} */
  #turns;
  /** @type {Rows<CurationRow>} */
  #curations;
  /**
   * Learnings by curation, as far as they are among the newest ones.
   * @type {Map<number, LearningRow[]>}
   */
  #taught = new Map();
  /** @type {Set<string>} */
  #fresh = new Set();
  #busy = false;

  /** @param {Page} page @param {MemoryClient} client @param {MemoryActs} acts */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
    this.#turns = new Rows(PAGE);
    this.#curations = new Rows(PAGE);
  }

  forgetRows() {
    this.#turns.clear();
    this.#curations.clear();
    this.#fresh.clear();
    this.loaded = false;
    this.invalidate();
  }

  async load() {
    const [turns, curations, learnings] = await Promise.all([
      this.client.turns(),
      this.client.curations(),
      this.client.learnings(),
    ]);
    this.#taught = grouped(learnings);
    const news = [
      ...this.#turns.renew(turns).map((id) => `turn-${id}`),
      ...this.#curations.renew(curations).map((id) => `curation-${id}`),
    ];
    if (this.loaded) this.#light(news);
  }

  /** @param {string[]} keys */
  #light(keys) {
    for (const key of keys) this.#fresh.add(key);
    setTimeout(() => {
      for (const key of keys) this.#fresh.delete(key);
      this.draw();
    }, FRESH_MS);
  }

  async #older() {
    this.#busy = true;
    this.draw();
    await this.attempt('Older ones could not be loaded', async () => {
      if (wanting(...this.#lists()) === 'turn') this.#turns.append(await this.client.turns(this.#turns.cursor));
      else this.#curations.append(await this.client.curations(this.#curations.cursor));
    });
    this.#busy = false;
    this.draw();
  }

  /** @returns {[Listed<TurnRow>, Listed<CurationRow>]} */
  #lists() {
    return [listed(this.#turns), listed(this.#curations)];
  }

  template() {
    const lists = this.#lists();
    const entries = mergePages(...lists);
    if (entries.length === 0) {
      return nothingYet(
        'No turn yet',
        'Each of your messages with its answer becomes a line here, and so does each time Sprite learns.',
        {
          label: 'Write the first message',
          run: () => this.#acts.draft(''),
        },
      );
    }
    return html`
      ${byDay(entries, dayOf).map(
        ({ day, entries: each }) =>
          html`<section class="timeline-day">
            <h3>${day}</h3>
            <ol class="plain timeline">
              ${repeat(
                each,
                ({ kind, row }) => `${kind}-${row.id}`,
                (entry) => this.#entry(entry),
              )}
            </ol>
          </section>`,
      )}
      ${
        wanting(...lists) === null
          ? html`<p class="memory-note">This is the oldest entry.</p>`
          : html`<button type="button" class="button older" ?disabled=${this.#busy} @click=${() => this.#older()}>
              Older
            </button>`
      }
    `;
  }

  /** @param {Entry} entry */
  #entry(entry) {
    const { kind, row } = entry;
    const idle = entry.kind === 'curation' && isIdle(entry.row);
    const look = `${kind} ${idle ? 'nothing' : ''} ${this.#fresh.has(`${kind}-${row.id}`) ? 'fresh' : ''}`;
    return html`<li class=${look} data-row="${kind}-${row.id}">
      ${entry.kind === 'turn' ? this.#turn(entry.row) : this.#curation(entry.row)}
    </li>`;
  }

  /** @param {TurnRow} row */
  #turn(row) {
    const outcome = OUTCOMES[row.outcome];
    const ownWords = row.trigger === 'task' ? byItself(row.tools).title : row.user_message;
    const asked = row.trigger === 'schedule' ? 'Begun by a schedule' : ownWords;
    return html`<button type="button" class="timeline-main" @click=${() => this.#acts.openTurn(row.id)}>
      <span class="timeline-icon">${icon('chat', true)}</span>
      <span class="timeline-words">
        <span class="timeline-asked">${asked || 'Nothing said'}</span>
        ${row.agent_response ? html`<span class="timeline-answered muted">${row.agent_response}</span>` : nothing}
        <span class="small-text muted"
          >Turn ${row.id}${row.sequence_num === FIRST_OF_SESSION ? html`, the first of a session` : nothing} ·
          <time datetime=${iso(row.at)}>${when(row.at)}</time
          >${toolsOf(row.tools)}${outcome ? html` · ${outcome}` : nothing}${
            row.curated
              ? nothing
              : row.quarantined
                ? html` · set aside`
                : row.off_record
                  ? html` · off the record`
                  : html` · not learned from yet`
          }${where(row)}</span
        >
      </span>
    </button>`;
  }

  /** @param {CurationRow} row */
  #lessons(row) {
    const rows = (this.#taught.get(row.id) ?? []).slice(0, LESSONS).reverse();
    return rows.length === 0
      ? nothing
      : html`<ul class="lessons">
          ${rows.map(({ content }) => html`<li>${content}</li>`)}
        </ul>`;
  }

  /** @param {CurationRow} row */
  #curation(row) {
    return html`<div class="timeline-main ${row.active ? '' : 'gone'}">
      <span class="timeline-icon">${icon(ICONS[row.kind] ?? 'brain', true)}</span>
      <div class="timeline-words">
        <span><strong>${headline(row)}</strong></span>
        ${
          row.kind === 'forget' && isForgotten(row.detail)
            ? html`<span class="muted"
                >${touched(row.detail)
                  .map(({ what }) => what)
                  .join(', ')}</span
              >`
            : nothing
        }
        ${this.#lessons(row)}
        <span class="timeline-links">
          ${
            row.learnings
              ? html`<button type="button" class="link" @click=${() => this.#acts.openLearningsOf(row)}>
                  ${plural(row.learnings, 'learning')}
                </button>`
              : nothing
          }
          ${row.files.map(
            ({ name, version }) =>
              html`<button type="button" class="link" @click=${() => this.#acts.openFile(name, version)}>
                ${name}, version ${version}
              </button>`,
          )}
        </span>
        ${
          row.rejected.length
            ? html`<details class="small-text">
                <summary>${plural(row.rejected.length, 'thing')} not taken over</summary>
                <ul>
                  ${row.rejected.map((report) => html`<li>${report.detail}</li>`)}
                </ul>
              </details>`
            : nothing
        }
        <span class="small-text muted"
          ><time datetime=${iso(row.at)}>${when(row.at)}</time
          >${row.cost_usd ? html` · ${money(row.cost_usd)}` : nothing}</span
        >
      </div>
    </div>`;
  }
}

/**
 * @template {{ id: number }} R
 * @param {Rows<R>} rows
 */
const listed = (rows) => ({ rows: rows.list, more: rows.more });

/**
 * Whether the details of a forget list its turns.
 * @param {object} detail
 * @returns {detail is Forgotten}
 */
const isForgotten = (detail) => 'turns' in detail && Array.isArray(detail.turns);

/**
 * Whether a curation found nothing to learn.
 * @param {CurationRow} row
 */
const isIdle = (row) => row.kind === 'batch' && row.learnings === 0 && row.files.length === 0;

/** @param {LearningRow[]} learnings */
function grouped(learnings) {
  const by = new Map();
  for (const row of learnings) by.set(row.curation_id, [...(by.get(row.curation_id) ?? []), row]);
  return by;
}

/** @type {Record<string, string>} */
const ICONS = {
  batch: 'brain',
  edit: 'edit',
  forget: 'forget',
  drift: 'document',
  quarantine: 'alert',
  action: 'check',
  undo: 'history',
};

/** @param {string[]} tools */
function toolsOf(tools) {
  const done = [...new Set(tools.filter((name) => !(name in SEEN)).map(did))];
  if (done.length === 0) return nothing;
  const more = done.length > TOOLS_NAMED ? ` and ${done.length - TOOLS_NAMED} more` : '';
  return html` · ${done.slice(0, TOOLS_NAMED).join(', ')}${more}`;
}

/**
 * Returns a short description of a curation.
 * @param {CurationRow} curation
 */
export function headline({ kind, learnings, files, first_turn: first, last_turn: last, detail, active }) {
  if (kind === 'forget') return 'Something was forgotten';
  if (kind === 'undo') return `The file changes of turn ${first} were ${detail.undone ? 'undone' : 'brought back'}`;
  if (kind === 'quarantine')
    return `Turn ${first} ${detail.retry ? 'waits to be learned from again' : 'was set aside'}`;
  if (kind === 'drift') {
    if (detail.accepted !== undefined) return `You accepted what changed in ${detail.name}`;
    if (detail.rejected === undefined) return `${detail.name} changed on disk while the agent was at work`;
    return detail.source === 'disk'
      ? `${detail.name} was restored on disk from memory`
      : `You discarded what changed in ${detail.name}`;
  }
  if (kind === 'edit') {
    if (detail.generation !== undefined) return 'Memory was rebuilt from the log';
    if (detail.action_id !== undefined) return `You set ${toDo(detail)} to ${detail.status}`;
    if (detail.source === 'accepted') return `You accepted what changed in ${detail.name}`;
    return detail.source === 'disk'
      ? `${detail.name ?? 'A file'} was edited by hand`
      : `You edited ${detail.name ?? 'a file'}`;
  }
  if (kind === 'action') return actionHeadline(detail);
  if (kind === 'learning') {
    const told = detail.content === undefined ? `learning ${detail.learning}` : `“${detail.content}”`;
    if (detail.op === 'edit') return `You changed ${told}`;
    return detail.op === 'confirm' ? `You confirmed ${told}` : `You said that ${told} is no longer true`;
  }
  const from = first === null ? '' : ` from ${turnRange(first, last)}`;
  if (!active) return `Learned${from}, replaced since`;
  return learnings > 0 || files.length > 0 ? `Learned${from}` : `Looked for things to learn${from}: nothing new`;
}

/** @param {CurationRow['detail']} detail */
function actionHeadline(detail) {
  const { op, by, status, once, tz, what } = detail;
  const one = toDo(detail);
  const who = by === 'person' ? 'You' : 'Sprite';
  if (op === 'zone') return `Your time zone is ${tz}`;
  if (op === 'add') return `${who} added ${one}`;
  if (op === 'fired') return `Due: ${one}`;
  if (op === 'update') return `${who} changed ${one}`;
  if (op === 'resolve') return once ? `Done this time: ${one}` : `${who} set ${one} to ${status}`;
  return `${one}: ${what ?? 'something was noted'}`;
}

/**
 * Returns an action's text, if memory still has it.
 * @param {CurationRow['detail']} detail
 */
const toDo = ({ content }) => (content ? `“${content}”` : 'a to-do');
