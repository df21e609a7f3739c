// Describe tool calls: the action, its main argument, and a one-line summary.

/** @import { ToolInput } from '../types/page.js' */

/** @type {Record<string, [words: string, field: string | null]>} */
const CALLS = {
  Bash: ['Ran a command', 'command'],
  Read: ['Read a file', 'file_path'],
  Write: ['Wrote a file', 'file_path'],
  Edit: ['Edited a file', 'file_path'],
  MultiEdit: ['Edited a file', 'file_path'],
  NotebookEdit: ['Edited a notebook', 'notebook_path'],
  Glob: ['Looked for files', 'pattern'],
  Grep: ['Searched in files', 'pattern'],
  LS: ['Listed a folder', 'path'],
  WebFetch: ['Read a web page', 'url'],
  WebSearch: ['Searched the web', 'query'],
  Task: ['Asked a helper', 'description'],
  Agent: ['Asked a helper', 'description'],
  TodoWrite: ['Kept its list of steps', null],
  search_memory: ['Searched memory', 'query'],
  create_card: ['Drew a card', 'title'],
  update_card: ['Changed a card', 'title'],
  close_card: ['Closed a card', null],
};
/** @type {Record<string, string>} */
const DOING = {
  Bash: 'running a command',
  Read: 'reading a file',
  Write: 'writing a file',
  Edit: 'editing a file',
  MultiEdit: 'editing a file',
  Glob: 'looking for files',
  Grep: 'searching in files',
  WebFetch: 'reading a web page',
  WebSearch: 'searching the web',
  Task: 'asking a helper',
  Agent: 'asking a helper',
  search_memory: 'searching memory',
  create_card: 'drawing a card',
  update_card: 'changing a card',
  close_card: 'closing a card',
};
/** @type {Record<string, string>} */
const WANTS = {
  Bash: 'run a command',
  Write: 'write a file',
  Edit: 'edit a file',
  MultiEdit: 'edit a file',
  NotebookEdit: 'edit a notebook',
  WebFetch: 'read a web page',
  WebSearch: 'search the web',
  Read: 'read a file',
};

/**
 * Returns a tool's own name without its server: `mcp__sprite__create_card` is `create_card`.
 * @param {string} name
 * @returns {string}
 */
export const shortName = (name) => name.split('__').at(-1) ?? name;

/**
 * Returns the action of a call and its most telling argument.
 * @param {string} name
 * @param {ToolInput} input
 * @param {string | null} [title]  what it was for, where the input is not kept
 */
export function describeCall(name, input, title = null) {
  const short = shortName(name);
  const known = CALLS[short];
  const field = known ? known[1] : Object.keys(input).find((key) => typeof input[key] === 'string');
  const detail = title ?? (field && typeof input[field] === 'string' ? input[field] : '');
  const [line = ''] = detail.split('\n', 1);
  return { words: known ? known[0] : `Used ${short.replaceAll('_', ' ')}`, detail: line.slice(0, 300) };
}

/**
 * Returns the input field that describes a call's effect; undefined if none is known.
 * @param {string} name
 */
export const tellingField = (name) => CALLS[shortName(name)]?.[1];

/** @param {string} name */
export const doing = (name) => DOING[shortName(name)] ?? `using ${shortName(name).replaceAll('_', ' ')}`;
/** @param {string} name */
export const wants = (name) => WANTS[shortName(name)] ?? `use ${shortName(name).replaceAll('_', ' ')}`;

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
