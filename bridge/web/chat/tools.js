// Describe tool calls: the action, its main argument, and a one-line summary.

/** @import { ToolInput } from '../types/page.js' */

/**
 * The known tools: the verb for what each did, is doing or wants to do, its object, and the input field that describes
 * the effect.
 * @type {Map<string, [did: string, doing: string, wants: string, object: string, field?: string]>}
 */
const TOOLS = new Map(
  Object.entries({
    Bash: ['ran', 'running', 'run', 'a command', 'command'],
    Read: ['read', 'reading', 'read', 'a file', 'file_path'],
    Write: ['wrote', 'writing', 'write', 'a file', 'file_path'],
    Edit: ['edited', 'editing', 'edit', 'a file', 'file_path'],
    MultiEdit: ['edited', 'editing', 'edit', 'a file', 'file_path'],
    NotebookEdit: ['edited', 'editing', 'edit', 'a notebook', 'notebook_path'],
    Glob: ['looked for', 'looking for', 'look for', 'files', 'pattern'],
    Grep: ['searched', 'searching', 'search', 'in files', 'pattern'],
    LS: ['listed', 'listing', 'list', 'a folder', 'path'],
    WebFetch: ['read', 'reading', 'read', 'a web page', 'url'],
    WebSearch: ['searched', 'searching', 'search', 'the web', 'query'],
    network: ['reached', 'reaching', 'reach', 'a host', 'host'],
    Task: ['asked', 'asking', 'ask', 'a helper', 'description'],
    Agent: ['asked', 'asking', 'ask', 'a helper', 'description'],
    TodoWrite: ['updated', 'updating', 'update', 'its list of steps'],
    search_memory: ['searched', 'searching', 'search', 'memory', 'query'],
    read_memory: ['read', 'reading', 'read', 'memory'],
    read_canvas: ['looked', 'looking', 'look', 'at the canvas'],
    read_untrusted: ['asked', 'asking', 'ask', 'about text from outside', 'question'],
    create_card: ['drew', 'drawing', 'draw', 'a card', 'title'],
    update_card: ['changed', 'changing', 'change', 'a card', 'title'],
    close_card: ['closed', 'closing', 'close', 'a card'],
    list_actions: ['read', 'reading', 'read', 'the to-do list'],
    schedule: ['added', 'adding', 'add', 'a to-do', 'content'],
    add_action: ['added', 'adding', 'add', 'a to-do', 'content'],
    complete_action: ['completed', 'completing', 'complete', 'a to-do'],
    find_tools: ['looked for', 'looking for', 'look for', 'a tool of a connection', 'query'],
    use_tool: ['used', 'using', 'use', 'a connection', 'tool'],
  }),
);

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
  const field = TOOLS.has(shortName(name))
    ? tellingField(name)
    : Object.keys(input).find((key) => typeof input[key] === 'string');
  const detail = title ?? (field && typeof input[field] === 'string' ? input[field] : '');
  const [line = ''] = detail.replace(WORKSPACE, '').split('\n', 1);
  const isWish = state === 'asks' || state === 'refused';
  const words = isWish ? `wants to ${wants(name)}` : state === 'running' ? doing(name) : did(name);
  return { words: capital(words), detail: line.slice(0, 300) };
}

/** @param {string} words */
export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/**
 * Returns the words for a tool; those of an unknown one say that it is used.
 * @param {string} name
 */
const wordsFor = (name) => TOOLS.get(shortName(name)) ?? ['used', 'using', 'use', shortName(name).replaceAll('_', ' ')];

/**
 * Returns the input field that describes a call's effect; undefined if none is known.
 * @param {string} name
 */
export const tellingField = (name) => wordsFor(name)[4];

/** @param {0 | 1 | 2} verb */
const phrase = (verb) => (/** @type {string} */ name) => `${wordsFor(name)[verb]} ${wordsFor(name)[3]}`;
export const did = phrase(0);
export const doing = phrase(1);
export const wants = phrase(2);

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
