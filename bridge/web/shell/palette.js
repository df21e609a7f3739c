// Ctrl-K: run commands and search by typing. A combobox in a native dialog; arrow keys move in one list.

import { elementOf } from '../template.js';
import { html, render } from '../vendor/lit-html/lit-html.js';
import { caps } from './commands.js';

/** @import { Command, Commands, Row } from '../types/page.js' */

const MOST = 40;

/** @typedef {Row & { group: string }} Grouped */

/** @param {Commands} commands */
export function createPalette(commands) {
  /** @type {Grouped[]} */
  let rows = [];
  let chosen = 0;
  let asked = 0;

  /** @type {HTMLDialogElement} */
  const element = elementOf(
    html`<dialog class="palette" aria-label="Command palette">
      <input
        class="input palette-input"
        type="text"
        role="combobox"
        placeholder="Type a command, or what to find"
        autocomplete="off"
        spellcheck="false"
        aria-label="Command"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-autocomplete="list"
      />
      <div class="palette-list scroll" id="palette-list" role="listbox" aria-label="Commands" tabindex="-1"></div>
    </dialog>`,
  );
  const input = /** @type {HTMLInputElement} */ (element.querySelector('input'));
  const list = /** @type {HTMLElement} */ (element.querySelector('.palette-list'));
  document.body.append(element);

  function draw() {
    chosen = Math.min(chosen, Math.max(0, rows.length - 1));
    const groups = grouped(rows);
    // A group may come in parts (commands, then search results); arrow keys follow the visible order.
    rows = groups.flatMap(([, members]) => members);
    let index = 0;
    render(
      rows.length === 0
        ? html`<p class="palette-none muted">Nothing fits. Try a shorter word.</p>`
        : groups.map(
            ([group, members], number) =>
              html` <div role="group" aria-labelledby=${`palette-group-${number}`}>
                <div class="palette-group" id=${`palette-group-${number}`} role="presentation">${group}</div>
                ${members.map((row) => option(row, index++))}
              </div>`,
          ),
      list,
    );
    if (rows.length) input.setAttribute('aria-activedescendant', `palette-${chosen}`);
    else input.removeAttribute('aria-activedescendant');
    list.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' });
  }

  /** @param {string} cap */
  const keyCap = (cap) => html`<kbd>${cap}</kbd>`;

  /** @param {Row} row @param {number} index */
  const option = (row, index) =>
    html` <div
      class="palette-row"
      role="option"
      id=${`palette-${index}`}
      aria-selected=${index === chosen}
      @click=${() => run(row)}
    >
      <span class="grow cut">${row.title}</span>
      ${row.hint ? html`<span class="muted small-text cut">${row.hint}</span>` : ''}
      ${row.keys ? html`<span class="keys">${caps(firstOf(row.keys)).map(keyCap)}</span>` : ''}
    </div>`;

  async function fill() {
    asked += 1;
    const mine = asked;
    const query = input.value.trim();
    const known = commands.all().filter((command) => fits(`${command.title} ${command.group}`, query));
    rows = ordered(known).slice(0, MOST);
    chosen = 0;
    draw();
    for (const { group, provide } of commands.providers) {
      const found = await Promise.resolve(provide(query)).catch(() => []);
      if (mine !== asked || !element.open) return;
      rows = [...rows, ...found.map((row) => ({ group, ...row }))].slice(0, 2 * MOST);
      draw();
    }
  }

  /** @param {Row} row */
  function run(row) {
    element.close();
    row.run();
  }

  input.addEventListener('input', () => void fill());
  element.addEventListener('click', (event) => event.target === element && element.close());
  input.addEventListener('keydown', (event) => {
    const row = rows[chosen];
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (step && rows.length) {
      event.preventDefault();
      chosen =
        Math.abs(step) === 1
          ? (chosen + step + rows.length) % rows.length
          : Math.max(0, Math.min(rows.length - 1, chosen + step));
      draw();
    } else if (event.key === 'Enter' && row && !event.isComposing) {
      event.preventDefault();
      run(row);
    }
  });

  return {
    /** @param {string} [query] */
    open(query = '') {
      if (element.open) return;
      input.value = query;
      element.showModal();
      input.focus();
      void fill();
    },
  };
}

/** @param {string | string[]} keys */
const firstOf = (keys) => [keys].flat()[0] ?? '';

/**
 * Whether every word of the query occurs in the text.
 * @param {string} text
 * @param {string} query
 */
function fits(text, query) {
  const where = text.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => where.includes(word));
}

/**
 * Sorts commands by group, in the order in which the groups first appeared.
 * @param {Command[]} commands
 */
function ordered(commands) {
  const order = [...new Set(commands.map((command) => command.group))];
  return commands.toSorted((one, other) => order.indexOf(one.group) - order.indexOf(other.group));
}

/** @param {Grouped[]} rows @returns {[string, Grouped[]][]} */
function grouped(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
  return [...groups];
}
