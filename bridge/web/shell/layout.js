// The layout: chat beside canvas or memory, with a divider; one panel at a time on a narrow screen. It opens no panel
// by itself.

import { elementOf } from '../template.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** @import { Announce, Panel, PanelName } from '../types/page.js' */

const NARROW = '(max-width: 719.98px)';
const SPLIT_KEY = 'sprite.split';
const SIDE_KEY = 'sprite.side';
const STEP = 24;
const LEAST = 320;

/**
 * @typedef {object} Parts
 * @property {HTMLElement} root
 * @property {Record<PanelName, HTMLElement>} panels
 * @property {Record<PanelName, HTMLElement[]>} tabs
 * @property {HTMLElement} divider
 * @property {Announce} announce
 */

/** @type {PanelName[]} */
const NAMES = ['chat', 'canvas', 'todo', 'memory'];

/** @param {Parts} parts */
export function createLayout({ root, panels, tabs, divider, announce }) {
  const narrow = matchMedia(NARROW);
  /** @type {Record<PanelName, Panel>} */
  const hooks = { chat: {}, canvas: {}, todo: {}, memory: {} };
  /** @type {Set<PanelName>} */
  const shown = new Set();
  /** @type {PanelName} */
  let side = NAMES.slice(1).find((name) => name === localStorage.getItem(SIDE_KEY)) ?? 'canvas';
  /** @type {PanelName} */
  let single = 'chat';
  let split = Number(localStorage.getItem(SPLIT_KEY)) || 0.44;

  function apply() {
    const visible = narrow.matches ? [single] : ['chat', side];
    root.dataset.narrow = String(narrow.matches);
    for (const name of NAMES) {
      const now = visible.includes(name);
      panels[name].hidden = !now;
      for (const tab of tabs[name]) {
        tab.setAttribute('aria-selected', String(now));
        tab.tabIndex = now ? 0 : -1;
        if (now) delete tab.dataset.unread;
        tab.querySelector('.visually-hidden')?.remove();
      }
      if (now !== shown.has(name)) {
        if (now) shown.add(name);
        else shown.delete(name);
        if (now) hooks[name].shown?.();
        else hooks[name].hidden?.();
      }
    }
    divider.hidden = narrow.matches;
    place();
  }

  function place() {
    const width = root.clientWidth || innerWidth;
    const least = Math.min(LEAST / width, 0.45);
    split = Math.max(least, Math.min(1 - least, split));
    panels.chat.style.setProperty('--split', `${(split * 100).toFixed(2)}%`);
    divider.setAttribute('aria-valuenow', String(Math.round(split * 100)));
    divider.setAttribute('aria-valuetext', `Chat ${Math.round(split * 100)} percent wide`);
  }

  /** @param {number} pixels */
  function moveTo(pixels) {
    split = pixels / root.clientWidth;
    place();
  }

  const keep = () => localStorage.setItem(SPLIT_KEY, String(split));

  divider.addEventListener('pointerdown', (event) => {
    divider.setPointerCapture(event.pointerId);
    root.classList.add('dividing');
  });
  divider.addEventListener(
    'pointermove',
    (event) => divider.hasPointerCapture(event.pointerId) && moveTo(event.clientX - root.getBoundingClientRect().left),
  );
  divider.addEventListener('lostpointercapture', () => {
    root.classList.remove('dividing');
    keep();
  });
  divider.addEventListener('dblclick', () => {
    split = 0.44;
    place();
    keep();
  });
  divider.addEventListener('keydown', (event) => {
    const width = root.clientWidth;
    const target = { ArrowLeft: split * width - STEP, ArrowRight: split * width + STEP, Home: 0, End: width }[
      event.key
    ];
    if (target === undefined) return;
    event.preventDefault();
    moveTo(target);
    keep();
  });

  for (const name of NAMES) {
    for (const tab of tabs[name]) {
      tab.addEventListener('click', () => layout.open(name));
      tab.addEventListener('keydown', (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const all = /** @type {HTMLElement[]} */ ([...(tab.parentElement?.querySelectorAll('[role=tab]') ?? [])]);
        const next = all[(all.indexOf(tab) + step + all.length) % all.length];
        next?.click();
        next?.focus();
      });
    }
  }
  narrow.addEventListener('change', apply);
  addEventListener('resize', place);

  const layout = {
    /**
     * Shows a panel at the person's request.
     * @param {PanelName} name
     * @param {{ focus?: boolean }} [how]
     */
    open(name, { focus = false } = {}) {
      if (name !== 'chat') {
        side = name;
        localStorage.setItem(SIDE_KEY, side);
      }
      single = name;
      apply();
      if (focus) layout.focus(name);
    },
    /** @param {PanelName} name */
    isShown: (name) => shown.has(name),
    /**
     * Registers a panel's callbacks: `{shown, hidden, focus}`.
     * @param {PanelName} name
     * @param {Panel} module
     */
    attach(name, module) {
      hooks[name] = module;
      if (shown.has(name)) module.shown?.();
    },
    /**
     * Puts a dot on the tab of a hidden panel.
     * @param {PanelName} name
     */
    unread(name) {
      if (shown.has(name)) return;
      for (const tab of tabs[name]) {
        if (tab.dataset.unread) continue;
        tab.dataset.unread = 'true';
        tab.append(elementOf(html`<span class="visually-hidden"> (new)</span>`));
      }
    },
    /** @param {PanelName} name */
    focus(name) {
      if (hooks[name].focus) hooks[name].focus();
      else panels[name].focus();
    },
    /**
     * Moves the focus to the next region (F6), or the previous one (Shift-F6).
     * @param {number} step
     */
    cycle(step) {
      const order = NAMES.filter((name) => shown.has(name));
      const here = order.findIndex((name) => panels[name].contains(document.activeElement));
      const next = order[(here + step + order.length) % order.length];
      if (!next) return;
      layout.focus(next);
      announce(panels[next].getAttribute('aria-label') ?? '');
    },
    start: apply,
  };
  return layout;
}
