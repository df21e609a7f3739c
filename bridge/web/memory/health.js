// The state and cost of memory.

import { ago, moment, money, number, plural } from '../format.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { DriftNotice, hasDrift } from './drift.js';
import { LOADING, View } from './view.js';

/** @import * as Types from '../types/page.js' */
/** @import { MemoryActs, MemoryClient, Page } from '../types/page.js' */

export class Health extends View {
  /** @type {MemoryActs} */
  #acts;
  /** @type {Types.Health | null} */
  #health = null;
  /** @type {Map<string, DriftNotice>} */
  #drift = new Map();
  /** @type {Set<number>} */
  #busy = new Set();

  /** @param {Page} page @param {MemoryClient} client @param {MemoryActs} acts */
  constructor(page, client, acts) {
    super(page, client);
    this.#acts = acts;
    page.store.subscribe('memory', () => this.draw());
  }

  async load() {
    const health = await this.client.health();
    const files = await Promise.all((health.drift ?? []).map(({ name }) => this.client.file(name)));
    const drift = files.filter(hasDrift).map((file) => {
      const notice =
        this.#drift.get(file.name) ?? new DriftNotice(this.page, this.client, file, () => this.#settled(file.name));
      notice.update(file);
      return /** @type {const} */ ([file.name, notice]);
    });
    this.#drift = new Map(drift);
    this.#health = health;
  }

  /** @param {string} name */
  #settled(name) {
    this.#drift.delete(name);
    this.draw();
    /** @type {HTMLElement | null} */
    const heading = this.element.querySelector('h3');
    heading?.focus();
    this.invalidate();
  }

  /** @param {number} id */
  async #retry(id) {
    this.#busy.add(id);
    this.draw();
    const left = await this.attempt('The turn is still set aside', () => this.client.retry(id));
    this.#busy.delete(id);
    if (left && this.#health) this.#health = { ...this.#health, quarantined: left };
    if (left) this.page.toast({ kind: 'success', text: `Turn ${id} waits to be learned from again.` });
    this.draw();
  }

  template() {
    const health = this.#health;
    if (health === null) return LOADING;
    return html`
      ${
        health.last_error
          ? html`<div class="memory-banner bad" role="alert">
              <p class="grow">
                <strong>Learning is interrupted.</strong> ${health.last_error} No turn is lost: the turns
                wait until learning works again.
              </p>
              <button type="button" class="button small" @click=${this.#acts.flush}>Try now</button>
            </div>`
          : nothing
      }
      ${attention(health)} ${unforgotten(this.page.store.state.memory?.unshipped_forgets ?? 0)}
      ${[...this.#drift.values()].map((notice) => notice.element)}
      ${health.quarantined.map(
        ({ turn_id: id, reason, at }) =>
          html`<div class="memory-banner warn" role="group" aria-label="Turn ${id}, set aside">
            <p class="grow">
              <strong
                ><button type="button" class="link" @click=${() => this.#acts.openTurn(id)}>Turn ${id}</button> was set
                aside</strong
              > ${ago(at)}, and learning went on without it. ${reason} It is
              still in the log, and search finds it.
            </p>
            <button type="button" class="button small" ?disabled=${this.#busy.has(id)} @click=${() => this.#retry(id)}>
              Try again
            </button>
          </div>`,
      )}
      <section class="health-part">
        <h3 tabindex="-1">What there is</h3>
        <dl class="figures">
          ${figure('Sessions', number(health.sessions))} ${figure('Turns', number(health.turns))}
          ${figure('Learnings', number(health.learnings))}
          ${figure('To do', number(health.open_actions), next(this.page.store.state.nextDue))}
          ${figure('Waiting', number(health.waiting), 'turns not learned from yet')}
          ${figure('Unverified', number(health.unverified), 'learnings without evidence')}
        </dl>
        <p class="memory-note">
          ${
            health.last_curation_at === null
              ? 'Nothing has been learned yet.'
              : `Last learned ${ago(health.last_curation_at)}.`
          }
        </p>
      </section>
      ${health.spend?.plan ? onPlan(health.spend.plan) : [spent(health), ofMemory(health)]}
      ${
        health.refusals.length === 0
          ? nothing
          : html`<section class="health-part">
              <h3>What was not taken over</h3>
              <p class="memory-note">Suggestions of the curator that a guard refused, and why.</p>
              <ul class="refusals">
                ${health.refusals.map((report) => html`<li>${report.detail}</li>`)}
              </ul>
            </section>`
      }
      <section class="health-part">
        <h3>Forget something</h3>
        <p class="memory-note">
          Words are removed everywhere. Before that, you see all the places.
        </p>
        <button type="button" class="button danger" @click=${this.#acts.forgetWords}>Forget…</button>
      </section>
    `;
  }
}

/**
 * Draws problems that need the person, except the one with its own banner and button.
 * @param {Types.Health} health
 */
function attention({ attention: all, last_error: error }) {
  const others = all.filter((words) => words !== error);
  return others.length === 0
    ? nothing
    : html`<div class="memory-banner bad" role="alert">
        <div class="grow">
          <strong>This needs your attention</strong>
          <ul class="refusals">
            ${others.map((words) => html`<li>${words}</li>`)}
          </ul>
        </div>
      </div>`;
}

/**
 * Draws a warning while forgotten data is still in the replica at the bridge.
 * @param {number} forgets
 */
const unforgotten = (forgets) =>
  forgets === 0
    ? nothing
    : html`<div class="memory-banner warn" role="status">
        <p class="grow">
          <strong>Forgotten here, but not yet in the bridge’s replica</strong> (${plural(forgets, 'forget')}).
          It is deleted there as soon as the agent is connected to the bridge’s store.
        </p>
      </div>`;

/** @param {number} part */
const percent = (part) => `${Math.round(part * 100)} %`;

/** @param {Types.PlanLimit[]} limits */
const onPlan = (limits) =>
  html`<section class="health-part">
    <h3>Claude plan</h3>
    <p class="memory-note">Your plan pays.${limits.length ? '' : ' Its limits are known after a turn.'}</p>
    <dl class="figures">
      ${limits.map((each) => figure(each.name, percent(each.used), `resets ${moment(each.resets_at)}`))}
    </dl>
  </section>`;

/** @param {Types.Health} health */
const ofMemory = (health) =>
  html`<section class="health-part">
    <h3>What memory has cost</h3>
    <dl class="figures">
      ${figure('Today', money(health.spend_today_usd), cap(health))}
      ${figure('In all', money(health.spend_usd), plural(health.curations, 'call'))}
      ${health.usd_per_100_turns === null ? nothing : figure('Per 100 turns', money(health.usd_per_100_turns))}
    </dl>
    ${
      health.calls_of_unknown_price > 0
        ? html`<p class="memory-note">
            ${plural(health.calls_of_unknown_price, 'call')} to a model whose price is not known, in no sum
            but the estimated spend.
          </p>`
        : nothing
    }
  </section>`;

/** @param {Types.Health} health */
function spent({ spend }) {
  if (!spend) return nothing;
  const { today, session, turn = null } = spend;
  return html`<section class="health-part">
    <h3>Spend</h3>
    <dl class="figures">
      ${figure('Today', costs(Object.values(today)), parts(today))}
      ${figure('This session', costs(Object.values(session)), parts(session))}
      ${turn === null ? nothing : figure('Last turn', costs([turn]))}
    </dl>
  </section>`;
}

/** @param {Types.Costs} spent */
const parts = ({ agent, schedules, memory }) =>
  `agent ${costs([agent])}, schedules ${costs([schedules])}, memory ${costs([memory])}`;

/** @param {Types.Cost[]} all */
function costs(all) {
  const settled = all.reduce((sum, cost) => sum + (cost.settled ?? 0), 0);
  const estimated = all.reduce((sum, cost) => sum + (cost.estimated ?? 0), 0);
  return money(settled) + (estimated ? ` + ${money(estimated)} estimated` : '');
}

/** @param {Types.NextDue | null} due */
const next = (due) => (due === null ? null : `next ${moment(due.at)}`);

/** @param {Types.Health} health */
const cap = ({ daily_cap_usd: most }) => (most ? `of ${money(most)} a day` : null);

/** @param {string} name @param {string} value @param {string | null} [more] */
const figure = (name, value, more = null) =>
  html`<div class="figure-of">
    <dt>${name}</dt>
    <dd class="tabular">${value}</dd>
    ${more === null ? nothing : html`<dd class="small-text muted">${more}</dd>`}
  </div>`;
