// Labels for memory's terms. Pure.

import { plural } from '../format.js';

/** @import { Forgotten } from '../types/page.js' */

/**
 * Types of learnings, in the order in which a person looks for them.
 * @type {Record<string, string>}
 */
export const TYPES = {
  FACT: 'Fact',
  PREFERENCE: 'Preference',
  CORRECTION: 'Correction',
  PATTERN: 'Pattern',
  ACTION: 'To do',
  TOOL_INSTALL: 'Tool',
  DIGEST: 'Session',
};

/** @type {Record<string, string>} */
export const ORIGINS = {
  user: 'you said it',
  assistant: 'the agent said it',
  tool: 'a tool showed it',
  web: 'a web page said it',
  program: 'a program said it',
  memory: 'only memory says it',
  none: 'no evidence found',
};

/**
 * Labels for the maker of an action's change.
 * @type {Record<string, string>}
 */
export const MAKERS = {
  person: 'by you',
  agent: 'by Sprite',
  curator: 'noted from a conversation',
  schedule: 'by Sprite, at work on a schedule',
  sprite: 'by the schedule',
};

/** @type {Record<string, string>} */
export const FILES = {
  'soul.md': 'Who the agent is',
  'os.md': 'How the agent works on its computer',
  'tools.md': 'Tools it has learned to use',
  'user.md': 'You: facts, preferences, corrections',
  'files.md': 'Your files and what is in them',
  'context.md': 'What you are working on',
};

/**
 * Labels for a turn without a message: in a list, and in the turn itself.
 * @param {string[]} tools
 */
export const byItself = (tools) =>
  tools.includes('mcp__sprite__look_at_files')
    ? { title: 'Looked at your files', words: 'Sprite saw that your files had changed.' }
    : {
        title: 'Went on by itself',
        words: 'The agent continued by itself, because something that it waited for was done.',
      };

/**
 * Programs in which other turns took place.
 * @type {Record<string, string>}
 */
const PROGRAMS = {
  'claude-code': 'Claude Code',
  codex: 'Codex',
  'gemini-cli': 'Gemini CLI',
  'claude.ai': 'claude.ai',
  openclaw: 'OpenClaw',
};

/**
 * Describes the program and project of a turn: ` · in Claude Code · project /home/ada/web`; and the program that asked
 * instead of the person: ` · asked by planner, not by you`.
 * @param {{ source?: string | null, project?: string | null, asked_by?: string | null }} row
 */
export const where = ({ source, project, asked_by: program }) =>
  [
    source ? ` · in ${PROGRAMS[source] ?? source}` : '',
    project ? ` · project ${project}` : '',
    program ? ` · asked by ${program}, not by you` : '',
  ].join('');

/** @type {Record<string, string | null>} */
export const OUTCOMES = {
  complete: null,
  interrupted: 'interrupted',
  error: 'ended with an error',
  max_turns: 'stopped at the limit of steps',
  crashed: 'cut off by a crash',
};

/**
 * Labels for the sprite's own observations, stored in a turn among its calls.
 * @type {Record<string, string>}
 */
export const SEEN = {
  mcp__sprite__look_at_files: 'What had changed among your files',
  mcp__sprite__person_did: 'What you did since the previous turn',
};

/**
 * Returns `turn 7` or `turns 3 to 9`.
 * @param {number | null} first
 * @param {number | null} last
 */
export const turnRange = (first, last) => (first === last ? `turn ${first}` : `turns ${first} to ${last}`);

/**
 * Counts lines like the writer's own limit.
 * @param {string} content
 */
export function lineCount(content) {
  return content.trim() === '' ? 0 : content.replace(/\n+$/u, '').split('\n').length;
}

/**
 * Lists the data that a forget touches.
 * @param {Forgotten} forgotten
 */
export function touched({ turns, learnings, curations, lines, cards }) {
  /** @type {[count: number, what: string, where: string][]} */
  const places = [
    [turns.length, plural(turns.length, 'turn'), 'in the log of your conversations, the chat and search included'],
    [learnings, plural(learnings, 'learning'), 'drawn from them'],
    [lines, plural(lines, 'line'), 'in memory files and answers of the curator, in all their versions'],
    [curations, plural(curations, 'entry', 'entries'), 'in the history of memory'],
    [cards, plural(cards, 'card'), 'on the canvas'],
  ];
  return places.filter(([count]) => count > 0).map(([, what, where]) => ({ what, where }));
}
