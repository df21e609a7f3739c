// Describe tool calls: the action, its main argument, and a one-line summary.

/** @import { ToolInput } from '../types/page.js' */

/**
 * The known tools: what each did, is doing, or wants to do, and the input field that describes the effect.
 * @type {Record<string, { did: string, doing: string, wants: string, field?: string }>}
 */
const TOOLS = {
  Bash: { did: 'Ran a command', doing: 'running a command', wants: 'run a command', field: 'command' },
  Read: { did: 'Read a file', doing: 'reading a file', wants: 'read a file', field: 'file_path' },
  Write: { did: 'Wrote a file', doing: 'writing a file', wants: 'write a file', field: 'file_path' },
  Edit: { did: 'Edited a file', doing: 'editing a file', wants: 'edit a file', field: 'file_path' },
  MultiEdit: { did: 'Edited a file', doing: 'editing a file', wants: 'edit a file', field: 'file_path' },
  NotebookEdit: {
    did: 'Edited a notebook',
    doing: 'editing a notebook',
    wants: 'edit a notebook',
    field: 'notebook_path',
  },
  Glob: { did: 'Looked for files', doing: 'looking for files', wants: 'look for files', field: 'pattern' },
  Grep: { did: 'Searched in files', doing: 'searching in files', wants: 'search in files', field: 'pattern' },
  LS: { did: 'Listed a folder', doing: 'listing a folder', wants: 'list a folder', field: 'path' },
  WebFetch: { did: 'Read a web page', doing: 'reading a web page', wants: 'read a web page', field: 'url' },
  WebSearch: { did: 'Searched the web', doing: 'searching the web', wants: 'search the web', field: 'query' },
  network: { did: 'Reached a host', doing: 'reaching a host', wants: 'reach a host', field: 'host' },
  Task: { did: 'Asked a helper', doing: 'asking a helper', wants: 'ask a helper', field: 'description' },
  Agent: { did: 'Asked a helper', doing: 'asking a helper', wants: 'ask a helper', field: 'description' },
  TodoWrite: {
    did: 'Updated its list of steps',
    doing: 'updating its list of steps',
    wants: 'update its list of steps',
  },
  search_memory: { did: 'Searched memory', doing: 'searching memory', wants: 'search memory', field: 'query' },
  create_card: { did: 'Drew a card', doing: 'drawing a card', wants: 'draw a card', field: 'title' },
  update_card: { did: 'Changed a card', doing: 'changing a card', wants: 'change a card', field: 'title' },
  close_card: { did: 'Closed a card', doing: 'closing a card', wants: 'close a card' },
  list_actions: { did: 'Read the to-do list', doing: 'reading the to-do list', wants: 'read the to-do list' },
  schedule: { did: 'Added a to-do', doing: 'adding a to-do', wants: 'add a to-do', field: 'content' },
  complete_action: { did: 'Completed a to-do', doing: 'completing a to-do', wants: 'complete a to-do' },
};

/** The agent's folder before a path in it, here and on a VM. */
const WORKSPACE = /^\/(?:\S*\/workspaces\/[^/\s]+|workspace)\/(?=\S+$)/;

/**
 * Returns a tool's own name without its server: `mcp__sprite__create_card` is `create_card`.
 * @param {string} name
 * @returns {string}
 */
export const shortName = (name) => name.split('__').at(-1) ?? name;

/**
 * Returns the action of a call in a state, and its most telling argument.
 * @param {string} name
 * @param {ToolInput} input
 * @param {string | null} title  what it was for, where the input is not kept
 * @param {string} state
 */
export function describeCall(name, input, title, state) {
  const known = TOOLS[shortName(name)];
  const field = known ? known.field : Object.keys(input).find((key) => typeof input[key] === 'string');
  const detail = title ?? (field && typeof input[field] === 'string' ? input[field] : '');
  const [line = ''] = detail.replace(WORKSPACE, '').split('\n', 1);
  const did = known?.did ?? `Used ${plainName(name)}`;
  const isWish = state === 'asks' || state === 'refused';
  const words = isWish ? `Wants to ${wants(name)}` : state === 'running' ? capital(doing(name)) : did;
  return { words, detail: line.slice(0, 300) };
}

/** @param {string} words */
export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** @param {string} name */
const plainName = (name) => shortName(name).replaceAll('_', ' ');

/**
 * Returns the input field that describes a call's effect; undefined if none is known.
 * @param {string} name
 */
export const tellingField = (name) => TOOLS[shortName(name)]?.field;

/** @param {string} name */
export const doing = (name) => TOOLS[shortName(name)]?.doing ?? `using ${plainName(name)}`;
/** @param {string} name */
export const wants = (name) => TOOLS[shortName(name)]?.wants ?? `use ${plainName(name)}`;

/**
 * Returns a call's input as readable text: a command as it is, other input as its fields.
 * @param {string} name
 * @param {ToolInput} input
 */
export function inputText(name, input) {
  if (shortName(name) === 'Bash' && typeof input.command === 'string') return input.command;
  const entries = Object.entries(input);
  if (entries.every(([, value]) => typeof value !== 'object' || value === null))
    return entries.map(([key, value]) => `${key}: ${value}`).join('\n');
  return JSON.stringify(input, null, 2);
}
