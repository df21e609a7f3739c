// How memory grew: turns, and what was learned, edited and forgotten, newest first.

import { icon } from '../icons.js';
import { iso, money, plural, when } from '../format.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { PAGE } from './ledger.js';
import { byDay, merged, wanting } from './merged.js';
import { Rows } from './rows.js';
import { View, nothingYet } from './view.js';
import { OUTCOMES, toolName, touched, turnRange } from './words.js';

const FRESH_MS = 20_000;
const TOOLS_NAMED = 4;
const LESSONS = 4;
const FIRST_OF_SESSION = 1;
const dayName = new Intl.DateTimeFormat(undefined, { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' });
const dayOf = (at) => dayName.format(new Date(at * 1000));

export class Timeline extends View {
  /** `acts`: openTurn(id), openFile(name, version), openLearningsOf(curation), draft(text). */
  constructor(page, ledger, acts) {
    super(page, ledger);
    this._acts = acts;
    this._turns = new Rows(PAGE);
    this._curations = new Rows(PAGE);
    /** What a curation taught, as far as it is among the newest learnings. */
    this._taught = new Map();
    this._fresh = new Set();
    this._busy = false;
  }

  forgetRows() {
    this._turns.clear();
    this._curations.clear();
    this._fresh.clear();
    this.loaded = false;
    this.invalidate();
  }

  async load() {
    const [turns, curations, learnings] = await Promise.all([this.ledger.turns(), this.ledger.curations(), this.ledger.learnings()]);
    this._taught = grouped(learnings);
    const news = [...this._turns.renew(turns).map((id) => `turn-${id}`), ...this._curations.renew(curations).map((id) => `curation-${id}`)];
    if (this.loaded) this._light(news);
  }

  _light(keys) {
    for (const key of keys) this._fresh.add(key);
    setTimeout(() => {
      for (const key of keys) this._fresh.delete(key);
      this.draw();
    }, FRESH_MS);
  }

  async _older() {
    this._busy = true;
    this.draw();
    await this.attempt('Older ones could not be fetched', async () => {
      if (wanting(...this._lists()) === 'turn') this._turns.append(await this.ledger.turns(this._turns.cursor));
      else this._curations.append(await this.ledger.curations(this._curations.cursor));
    });
    this._busy = false;
    this.draw();
  }

  _lists() {
    return [this._turns, this._curations].map((rows) => ({ rows: rows.list, more: rows.more }));
  }

  template() {
    const lists = this._lists();
    const entries = merged(...lists);
    if (entries.length === 0) {
      return nothingYet('No turn yet', 'Every message of yours and its answer becomes one line here, and below which turns something was learned.', {
        label: 'Write the first message',
        run: () => this._acts.draft(''),
      });
    }
    return html`
      ${byDay(entries, dayOf).map(
        ({ day, entries: each }) => html`<section class="timeline-day">
          <h3>${day}</h3>
          <ol class="plain timeline">
            ${repeat(each, ({ kind, row }) => `${kind}-${row.id}`, (entry) => this._entry(entry))}
          </ol>
        </section>`,
      )}
      ${wanting(...lists) === null
        ? html`<p class="memory-note">That is where it began.</p>`
        : html`<button type="button" class="button older" ?disabled=${this._busy} @click=${() => this._older()}>Older</button>`}
    `;
  }

  _entry({ kind, row }) {
    const idle = kind === 'curation' && row.kind === 'batch' && row.learnings === 0 && row.files.length === 0;
    const look = `${kind} ${idle ? 'nothing' : ''} ${this._fresh.has(`${kind}-${row.id}`) ? 'fresh' : ''}`;
    return html`<li class=${look} data-row="${kind}-${row.id}">${kind === 'turn' ? this._turn(row) : this._curation(row)}</li>`;
  }

  _turn(row) {
    const outcome = OUTCOMES[row.outcome];
    const asked = row.trigger === 'task' ? 'Went on by itself' : row.user_message;
    return html`<button type="button" class="timeline-main" @click=${() => this._acts.openTurn(row.id)}>
      <span class="timeline-icon">${icon('chat', true)}</span>
      <span class="timeline-words">
        <span class="timeline-asked">${asked || 'Nothing said'}</span>
        ${row.agent_response ? html`<span class="timeline-answered muted">${row.agent_response}</span>` : nothing}
        <span class="small-text muted"
          >Turn ${row.id}${row.sequence_num === FIRST_OF_SESSION ? html`, the first of a session` : nothing} · <time datetime=${iso(row.at)}>${when(row.at)}</time>${toolsOf(row.tools)}${outcome ? html` · ${outcome}` : nothing}${row.curated
            ? nothing
            : html` · waits to be looked through`}</span
        >
      </span>
    </button>`;
  }

  _lessons(row) {
    const rows = (this._taught.get(row.id) ?? []).slice(0, LESSONS).reverse();
    return rows.length === 0 ? nothing : html`<ul class="lessons">${rows.map(({ content }) => html`<li>${content}</li>`)}</ul>`;
  }

  _curation(row) {
    return html`<div class="timeline-main ${row.active ? '' : 'gone'}">
      <span class="timeline-icon">${icon(ICONS[row.kind] ?? 'brain', true)}</span>
      <div class="timeline-words">
        <span><strong>${headline(row)}</strong></span>
        ${row.kind === 'forget' && Array.isArray(row.detail.turns)
          ? html`<span class="muted">${touched(row.detail).map(({ what }) => what).join(', ')}</span>`
          : nothing}
        ${this._lessons(row)}
        <span class="timeline-links">
          ${row.learnings ? html`<button type="button" class="link" @click=${() => this._acts.openLearningsOf(row)}>${plural(row.learnings, 'learning')}</button>` : nothing}
          ${row.files.map(
            ({ name, version }) => html`<button type="button" class="link" @click=${() => this._acts.openFile(name, version)}>${name}, version ${version}</button>`,
          )}
        </span>
        ${row.rejected.length
          ? html`<details class="small-text"><summary>${plural(row.rejected.length, 'thing')} not taken over</summary><ul>${row.rejected.map((report) => html`<li>${report.detail}</li>`)}</ul></details>`
          : nothing}
        <span class="small-text muted"><time datetime=${iso(row.at)}>${when(row.at)}</time>${row.cost_usd ? html` · ${money(row.cost_usd)}` : nothing}</span>
      </div>
    </div>`;
  }
}

function grouped(learnings) {
  const by = new Map();
  for (const row of learnings) by.set(row.curation_id, [...(by.get(row.curation_id) ?? []), row]);
  return by;
}

const ICONS = { batch: 'brain', edit: 'edit', forget: 'forget' };

function toolsOf(tools) {
  if (tools.length === 0) return nothing;
  const names = [...new Set(tools.map(toolName))];
  const more = names.length > TOOLS_NAMED ? ` and ${names.length - TOOLS_NAMED} more` : '';
  return html` · used ${names.slice(0, TOOLS_NAMED).join(', ')}${more}`;
}

/** What happened, in a few words. */
export function headline({ kind, learnings, files, first_turn: first, last_turn: last, detail, active }) {
  if (kind === 'forget') return 'Something was forgotten';
  if (kind === 'edit') {
    if (detail.generation !== undefined) return 'Memory was made anew from the log';
    if (detail.action_id !== undefined) return `You set to-do ${detail.action_id} to ${detail.status}`;
    return detail.source === 'disk' ? `${detail.name ?? 'A file'} was edited by hand` : `You edited ${detail.name ?? 'a file'}`;
  }
  const from = first === null ? '' : ` from ${turnRange(first, last)}`;
  if (!active) return `Learned${from}, replaced since`;
  return learnings > 0 || files.length > 0 ? `Learned${from}` : `Looked for things to learn${from}: nothing new`;
}
