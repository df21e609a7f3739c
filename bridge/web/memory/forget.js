// Forget data step by step: choose it, review every place, and see what remains.

import { plural } from '../format.js';
import { codeOf, wordsOf } from '../problem.js';
import { html } from '../vendor/lit-html/lit-html.js';
import { touched } from './labels.js';

/** @import { ForgetTarget, Forgotten, MemoryClient, Page } from '../types/page.js' */
/** @import { Place } from '../types/messages.js' */

/** More turns than this need a second confirmation. */
const MANY = 10;
const LISTED = 30;
/** A shorter search shows no progress. */
const QUICK_MS = 500;

/**
 * Asks for a text, then forgets it like `forget`; returns true if it is forgotten.
 * @param {Page} page
 * @param {MemoryClient} client
 */
export async function forgetWords(page, client) {
  const text = await page.prompt({
    title: 'What should be forgotten?',
    label: 'Words to forget everywhere (at least 3 characters)',
    confirm: 'Find these words',
    maxlength: 2000,
  });
  return text !== null && forget(page, client, { text }, `“${text}”`);
}

/**
 * Shows the preview of a forget, carries it out if the person confirms, and shows what remains; returns true on
 * success.
 * @param {Page} page
 * @param {MemoryClient} client
 * @param {ForgetTarget} target
 * @param {string} what
 */
export async function forget(page, client, target, what) {
  const preview = await look(page, client, target, what);
  if (preview === null || !(await agreed(page, preview, what))) return false;
  page.announce('Forgetting');
  const done = page.toast({ kind: 'busy', text: 'Forgetting… A turn under way is finished first.' });
  try {
    const gone = await client.forget(target);
    done();
    await say(page, target, gone);
    return true;
  } catch (problem) {
    done();
    page.toast({ kind: 'error', text: `Not forgotten: ${wordsOf(problem)} You can try again at any time.` });
    return false;
  }
}

/** @param {Page} page @param {MemoryClient} client @param {ForgetTarget} target @param {string} what */
async function look(page, client, target, what) {
  const turns = page.store.state.memory?.turns;
  const words = `Searching ${turns === undefined ? 'all turns' : plural(turns, 'turn')}…`;
  let done = () => {};
  const timer = setTimeout(() => {
    done = page.toast({ kind: 'busy', text: words });
  }, QUICK_MS);
  try {
    return await client.preview(target);
  } catch (problem) {
    const nowhere = codeOf(problem) === 'not_found';
    page.toast(
      nowhere ? { kind: 'info', text: `${what} is nowhere in memory.` } : { kind: 'error', text: wordsOf(problem) },
    );
    return null;
  } finally {
    clearTimeout(timer);
    done();
  }
}

/** @param {Page} page @param {Forgotten} preview @param {string} what */
async function agreed(page, preview, what) {
  const many = preview.turns.length > MANY;
  const title = 'Forget this for good?';
  const body = previewOf(preview, what);
  if (!(await page.confirm({ title, body, confirm: many ? 'Go on' : 'Forget', danger: true }))) return false;
  if (!many) return true;
  return page.confirm({
    title: `Really forget in ${plural(preview.turns.length, 'turn')}?`,
    body: 'That is a large part of a memory, and it cannot be brought back.',
    confirm: `Forget in ${plural(preview.turns.length, 'turn')}`,
    danger: true,
  });
}

/** @param {Forgotten} preview @param {string} what */
function previewOf(preview, what) {
  const still = preview.still ?? [];
  const turns = preview.turns.slice(0, LISTED);
  return html`<div class="forget-preview">
    <p>${what} would be removed from:</p>
    <ul class="forget-places">
      ${touched(preview).map((place) => html`<li><strong>${place.what}</strong> ${place.where}</li>`)}
    </ul>
    <details>
      <summary>Every place</summary>
      ${
        turns.length
          ? html`<p class="small-text">
              ${turns.length === 1 ? 'Turn' : 'Turns'}
              ${turns.join(', ')}${preview.turns.length > LISTED ? `, and ${preview.turns.length - LISTED} more` : ''}
            </p>`
          : null
      }
      ${places(preview.gone ?? [])} ${preview.more ? html`<p>And ${preview.more} more.</p>` : null}
    </details>
    ${still.length ? html`<p class="memory-banner warn">It stays here:</p>${places(still)}` : null}
    <p>The current session ends. This cannot be undone: no version and no backup of memory keeps it.</p>
  </div>`;
}

/** @param {Place[]} listed */
const places = (listed) =>
  listed.length
    ? html`<ul class="forget-places small-text">
        ${listed.map(({ where, text }) => html`<li><strong>${where}</strong> ${text}</li>`)}
      </ul>`
    : null;

/** @param {Page} page @param {ForgetTarget} target @param {Forgotten} gone */
async function say(page, target, gone) {
  const touchedPlaces = touched(gone).map((place) => place.what);
  const still = gone.still ?? [];
  const isWhole = target.turn !== undefined || target.session !== undefined;
  const body = html`<div class="forget-preview">
    ${touchedPlaces.length ? html`<p>Taken out of ${touchedPlaces.join(', ')}.</p>` : null}
    ${
      still.length
        ? html`<p class="memory-banner warn">All stores were searched. The text is still here:</p>
            ${places(still)}`
        : html`<p>No store contains it any more.</p>`
    }
    <h3>What remains</h3>
    <ul class="forget-places">
      <li>
        In the log, the turns keep their number and time${isWhole ? ', with nothing in them' : ', without those words'}.
      </li>
      <li>A line in memory’s history stays: when something was forgotten and how much, but not what.</li>
      <li>Your next message begins a new session, because the agent’s last conversation held the words.</li>
      <li>Files in documents and artifacts are yours and were not touched.</li>
    </ul>
  </div>`;
  await page.dialog({ title: 'Forgotten', body, actions: [{ label: 'Close', value: null, primary: true }] });
}
