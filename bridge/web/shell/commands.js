// Commands of the page, by name and keys: the source of the palette and the shortcuts sheet.

import { isTyping } from '../dom.js';

/** @import { Command, Provide } from '../types/page.js' */

/** A sequence such as `g m` must be finished within this time. */
const SEQUENCE_MS = 1200;
const APPLE = /Mac|iPhone|iPad/.test(navigator.platform);

export function createCommands() {
  /** @type {Map<string, Command>} */
  const commands = new Map();
  /** @type {Set<{ group: string, provide: Provide }>} */
  const providers = new Set();
  let started = '';
  let startedAt = 0;

  /** @param {KeyboardEvent} event */
  function press(event) {
    if (event.defaultPrevented || event.isComposing) return;
    const key = name(event);
    const typing = isTyping(event.target);
    const modal = document.querySelector('dialog[open]') !== null;
    const sequence = Date.now() - startedAt < SEQUENCE_MS && started ? `${started} ${key}` : key;
    started = '';
    for (const command of commands.values()) {
      if (!command.keys || (command.when && !command.when())) continue;
      for (const keys of [command.keys].flat()) {
        const bare = !keys.includes('+') && keys.length < 4 && !/^F\d/.test(keys);
        if ((typing && bare) || modal) continue;
        if (keys === sequence || keys === key) {
          event.preventDefault();
          command.run();
          return;
        }
        if (keys.startsWith(`${key} `)) {
          started = key;
          startedAt = Date.now();
        }
      }
    }
  }

  document.addEventListener('keydown', press);

  return {
    /**
     * Registers `{id, title, group, keys, hint, when, run}`; returns a function that removes it.
     * @param {Command} command
     */
    add(command) {
      commands.set(command.id, command);
      return () => commands.delete(command.id);
    },
    /**
     * Registers rows for a query: `fn(query) -> [{title, hint, run}]` or a promise of it.
     * @param {string} group
     * @param {Provide} provide
     */
    provide(group, provide) {
      const provider = { group, provide };
      providers.add(provider);
      return () => providers.delete(provider);
    },
    all: () => [...commands.values()].filter((command) => !command.when || command.when()),
    listed: () => [...commands.values()],
    providers,
  };
}

/** @param {KeyboardEvent} event */
function name(event) {
  const modified = (APPLE ? event.metaKey : event.ctrlKey) ? 'Mod+' : event.altKey ? 'Alt+' : '';
  const shift = event.shiftKey && event.key.length > 1 ? 'Shift+' : '';
  return modified + shift + (event.key.length === 1 ? event.key.toLowerCase() : event.key);
}

/**
 * Returns keys as printed on this machine's keyboard: `Mod+K` as two caps.
 * @param {string} keys
 */
export const caps = (keys) =>
  keys
    .split(/[ +]/)
    .map((key) => (key === 'Mod' ? (APPLE ? '⌘' : 'Ctrl') : key.length === 1 ? key.toUpperCase() : key));
