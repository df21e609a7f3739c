// The list of sessions: open one in the chat, resume it, or give it another title.

import { plural, when } from '../format.js';
import { wordsOf } from '../problem.js';
import { button, elementOf } from '../template.js';
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** @import { Page, SessionRow } from '../types/page.js' */

const PAGE_ROWS = 30;

/**
 * `resume` continues a session by its id.
 * @param {Page} page
 * @param {(id: string) => unknown} resume
 */
export async function showSessions(page, resume) {
  const body = elementOf(html`<div class="sessions"></div>`);
  /** @type {SessionRow[]} */
  let rows = [];
  let hasMore = false;
  let problem = '';

  /** @param {number | null} before */
  async function load(before) {
    try {
      const paging = before === null ? {} : { before };
      const { sessions } = await page.connection.ask('memory', { op: 'sessions', limit: PAGE_ROWS, ...paging });
      rows = before === null ? sessions : [...rows, ...sessions];
      hasMore = sessions.length === PAGE_ROWS;
      problem = '';
    } catch (error) {
      problem = wordsOf(error);
    }
    draw();
  }

  const close = () => body.closest('dialog')?.close();

  /** @param {SessionRow} row */
  async function rename({ session_id: id, title }) {
    const given = await page.prompt({ title: 'Rename the session', label: 'Title', value: title, maxlength: 120 });
    if (given === null) return;
    try {
      await page.connection.ask('memory', { op: 'rename_session', session_id: id, title: given });
    } catch (error) {
      problem = wordsOf(error);
    }
    await load(null);
  }

  /** @param {SessionRow} row */
  function item(row) {
    const { session_id: id, title, started_at: from, last_at: to, turns, mission_id: mission } = row;
    const isNow = id === page.store.state.session.session_id;
    const time = to - from < 60 ? when(from) : `${when(from)} – ${when(to)}`;
    const name = title || 'Without a message';
    const show = () => {
      close();
      void page.openMission(mission);
    };
    const goOn = () => {
      close();
      resume(id);
    };
    return html`<li class="session-row">
      <div class="grow">
        <button type="button" class="link session-title" @click=${show}>${name}</button>
        ${isNow ? html`<span class="badge ok">Open now</span>` : nothing}
        <p class="small-text muted tabular">${time} · ${plural(turns, 'turn')}</p>
      </div>
      ${button('Rename', () => rename(row), { look: 'quiet', label: `Rename ${name}` })}
      ${button('Resume', goOn, { label: `Resume ${name}`, hidden: isNow })}
    </li>`;
  }

  function draw() {
    render(
      html`${problem ? html`<p class="bad-text" role="alert">${problem}</p>` : nothing}
        ${rows.length ? nothing : html`<p class="muted">No session yet: the first message begins one.</p>`}
        <ul class="plain">${rows.map(item)}</ul>
        ${button('Older', () => load(rows.at(-1)?.position ?? null), { hidden: !hasMore })}`,
      body,
    );
  }

  await load(null);
  await page.dialog({ title: 'Sessions', body, wide: true, actions: [{ label: 'Close', value: null }] });
}
