// "3 files changed" below a reply: expands to the diffs and previews, with Undo for all files or for one.

import { escapeVisible } from '../escape_visible.js';
import { plural } from '../format.js';
import { icon } from '../icons.js';
import { wordsOf } from '../problem.js';
import { button } from '../template.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @import { ChangedFile, ChangesResult, Exchange, Page, UndoResult } from '../types/page.js' */

/** @typedef {{ shown: ChangesResult | null, left: UndoResult | null, problem: string, busy: boolean }} State */

const KINDS = { added: 'Added', modified: 'Changed', deleted: 'Deleted' };
/** @type {Record<string, string>} */
const LINES = { '+': 'added', '-': 'removed', '@': 'place' };
/** Only programs that compare texts need it. */
const NO_NEWLINE = /\n\\ No newline at end of file/g;
/** An undo copies files; the sprite answers when all are restored. */
const UNDO_MS = 120_000;

/**
 * The contents of opened rows, by mission, also when the chat is drawn again; the others ask for nothing.
 * @type {Map<string, State>}
 */
const opened = new Map();

/**
 * `redraw` draws the exchange again.
 * @param {Exchange} entry
 * @param {Page} page
 * @param {() => void} redraw
 */
export function changesRow(entry, page, redraw) {
  const { changes, missionId } = entry;
  const count = changes ? changes.added + changes.modified + changes.deleted : 0;
  if (!count || !missionId) return nothing;
  const state = opened.get(missionId);
  /** @param {Event} event */
  const toggled = ({ currentTarget }) => {
    if (!(currentTarget instanceof HTMLDetailsElement) || currentTarget.open === opened.has(missionId)) return;
    if (!currentTarget.open) {
      opened.delete(missionId);
      return;
    }
    opened.set(missionId, { shown: null, left: null, problem: '', busy: false });
    void look(missionId, page, redraw);
  };
  const files = state?.shown?.files;
  const isUndone = files ? files.some((file) => file.undone) : entry.undone;
  const undone = files?.some((file) => !file.undone) ? 'partly undone' : 'undone';
  return html`<details class="tool changes" ?open=${state !== undefined} @toggle=${toggled}>
    <summary>
      ${icon('document', true)}
      <span class="tool-words">${plural(count, 'file')} changed</span>
      <span class="grow"></span>
      <span class="tool-state muted">${isUndone ? undone : ''}</span>
      ${icon('chevron', true)}
    </summary>
    <div class="tool-body">${state ? body(missionId, state, page, redraw) : nothing}</div>
  </details>`;
}

/** @param {string} turn @param {Page} page @param {() => void} redraw */
async function look(turn, page, redraw) {
  const state = opened.get(turn);
  if (!state) return;
  try {
    state.shown = await page.connection.ask('memory', { op: 'changes', turn });
    state.problem = '';
  } catch (problem) {
    state.problem = wordsOf(problem);
  }
  redraw();
}

/** @param {string} turn @param {State} state @param {Page} page @param {() => void} redraw */
function body(turn, state, page, redraw) {
  const { shown, left, busy, problem } = state;
  /** @param {{ turn: string, paths?: string[], over?: string[] }} what */
  const undo = async (what) => {
    state.busy = true;
    redraw();
    try {
      const done = await page.connection.ask('memory', { op: 'undo', ...what }, { timeout: UNDO_MS });
      Object.assign(state, { left: what.turn === turn ? done : null, problem: '' });
      const words = done.restored.length
        ? `${plural(done.restored.length, 'file')} restored.`
        : 'Nothing was restored.';
      page.announce(words);
      await look(turn, page, redraw);
    } catch (error) {
      state.problem = wordsOf(error);
    }
    state.busy = false;
    redraw();
  };
  if (!shown) return html`<p class="muted small-text">${problem || 'Loading…'}</p>`;
  const back = shown.undone_by ?? null;
  /** @param {ChangedFile} file */
  const item = (file) =>
    row(file, left, (over) => undo({ turn, paths: [file.path], over }), busy, shown.files.length === 1);
  return html`${problem ? html`<p class="problem">${icon('alert', true)}${problem}</p>` : nothing}
    <ul class="change-list">
      ${shown.files.map((file) => html`<li>${item(file)}</li>`)}
    </ul>
    ${shown.more ? html`<p class="muted small-text">And ${plural(shown.more, 'file')} more.</p>` : nothing}
    <div class="row">
      ${
        back
          ? button(html`${icon('retry', true)}Redo`, () => undo({ turn: back }), { disabled: busy })
          : button(html`${icon('history', true)}Undo`, () => undo({ turn }), { disabled: busy })
      }
    </div>`;
}

/**
 * Draws one file. `undo` restores it alone; its argument names it again to overwrite a later change.
 * @param {ChangedFile} file
 * @param {UndoResult | null} left
 * @param {(over: string[]) => unknown} undo
 * @param {boolean} busy
 * @param {boolean} isOnly  then the button for all files is enough
 */
function row(file, left, undo, busy, isOnly) {
  const { path, kind, diff, mode, mode_before: before, undone: isRestored = false } = file;
  const isConflict = left?.conflicts.includes(path) ?? false;
  const notes = [
    isRestored && 'undone',
    isConflict && 'changed again since then: not restored',
    file.yours && !isRestored && 'maybe your own change: undone only by its own button',
    !file.kept && 'its content is not kept: cannot be undone',
    mode && before && mode !== before && `${before} → ${mode}`,
  ].filter(Boolean);
  return html`<div class="change-head row">
      <span class="badge">${KINDS[kind]}</span><span class="mono cut grow" title=${path}>${escapeVisible(path)}</span>
      ${
        isConflict
          ? button('Restore it anyway', () => undo([path]), { disabled: busy, label: `Restore ${path} anyway` })
          : button('Undo this file', () => undo([]), {
              look: 'quiet',
              disabled: busy,
              hidden: !file.kept || isRestored || (isOnly && !file.yours),
              label: `Undo ${path}`,
            })
      }
    </div>
    ${notes.length ? html`<p class="muted small-text">${notes.join(' · ')}</p>` : nothing}
    ${file.preview_before ? image(file.preview_before, `${path} before`) : nothing}
    ${file.preview ? image(file.preview, `${path} after`) : nothing}
    ${
      diff
        ? html`<div class="change-diff mono scroll" role="region" tabindex="0" aria-label="Changes of ${path}">
            ${diff.replace(NO_NEWLINE, '').split('\n').map(line)}
          </div>`
        : nothing
    }`;
}

/** @param {string} url @param {string} words */
const image = (url, words) => html`<img class="change-image" src=${url} alt=${words}>`;

/** @param {string} text */
const line = (text) => {
  const words = text.split('\t').map(escapeVisible).join('\t') || ' ';
  return html`<div class="change-line ${LINES[text[0] ?? ''] ?? ''}">${words}</div>`;
};
