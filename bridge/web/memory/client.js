// The memory requests, one function each. Each rejects with a Problem whose message is for people.

/** @import { ActionDraft, AskOptions, ForgetTarget, Page, Sent } from '../types/page.js' */

/** Rows of one page of a list. */
export const PAGE = 50;
const HITS = 20;
/** A flush waits for one model call; the sprite bounds it at 120 s. */
const FLUSH_MS = 150_000;
/** A forget waits for the current turn to end, and searches all turns like its preview. */
const FORGET_MS = 180_000;

/** @param {Pick<Page, 'connection'>} page */
export function createClient({ connection }) {
  /**
   * @template {Sent['memory']} const R
   * @param {R} request
   * @param {AskOptions} [options]
   */
  const ask = (request, options) => connection.ask('memory', request, options);

  return {
    files: async () => (await ask({ op: 'files' })).files,
    /**
     * Fetches a file, or one of its versions.
     * @param {string} name
     * @param {number} [version]
     */
    file: (name, version) => ask(version === undefined ? { op: 'file', name } : { op: 'file', name, version }),
    /**
     * Fetches every version, newest first.
     * @param {string} name
     */
    history: async (name) => (await ask({ op: 'history', name })).history.reverse(),
    /**
     * Saves over `version`, the one that was opened. Code `conflict`: the file has changed since.
     * @param {string} name
     * @param {string} content
     * @param {number} version
     */
    edit: (name, content, version) => ask({ op: 'edit', name, content, version }),
    /**
     * Sends a person's decision on a file that changed on disk; `seen` is the curation of the change that they saw.
     * Code `conflict`: the file has changed again.
     * @param {'accept' | 'reject'} word
     * @param {string} name
     * @param {number} seen
     */
    decide: (word, name, seen) => ask({ op: word, name, curation_id: seen }),
    /** @param {number | null} [before] */
    learnings: async (before = null) =>
      (await ask({ op: 'learnings', newest: true, limit: PAGE, ...below(before) })).learnings,
    /**
     * Fetches the learnings that a line of a memory file rests on.
     * @param {string} line
     */
    behind: async (line) => (await ask({ op: 'learnings', line })).learnings,
    /** @param {number} id */
    learning: async (id) => {
      const [found] = (await ask({ op: 'learnings', after: id - 1, limit: 1 })).learnings;
      return found?.id === id ? found : null;
    },
    /**
     * Fetches one curation, or null.
     * @param {number} id
     */
    curation: async (id) => {
      const [found] = (await ask({ op: 'curations', before: id + 1, limit: 1 })).curations;
      return found?.id === id ? found : null;
    },
    /** @param {number | null} [before] */
    curations: async (before = null) => (await ask({ op: 'curations', limit: PAGE, ...below(before) })).curations,
    /** @param {number | null} [before] */
    turns: async (before = null) => (await ask({ op: 'observations', limit: PAGE, ...below(before) })).observations,
    /** @param {number} id */
    turn: async (id) => (await ask({ op: 'turn', id })).turn,
    actions: async () => (await ask({ op: 'actions' })).actions,
    /**
     * Adds an action; returns all actions.
     * @param {ActionDraft} draft
     */
    addAction: async ({ content = '', ...draft }) => (await ask({ op: 'add_action', content, ...draft })).actions,
    /**
     * Changes an action; returns all actions.
     * @param {number} id
     * @param {ActionDraft} draft  what is to change
     * @param {number} [version]  as for `resolve`
     */
    updateAction: async (id, draft, version) => (await ask({ op: 'update_action', id, ...draft, version })).actions,
    /**
     * @param {number} id
     * @param {string} status
     * @param {number} [version]  the one that was seen: another one by now is a conflict
     */
    resolve: async (id, status, version) => (await ask({ op: 'resolve_action', id, status, version })).actions,
    /**
     * Retries a quarantined turn.
     * @param {number} id
     */
    retry: async (id) => (await ask({ op: 'retry', turn_id: id })).quarantined,
    /** Fetches the newest files of the person's folders, and the number of others. */
    userFiles: () => ask({ op: 'user_files' }),
    /**
     * Deletes a file permanently. Code `not_found`: it is already gone.
     * @param {string} path
     */
    deleteUserFile: (path) => ask({ op: 'delete_user_file', path }),
    health: async () => (await ask({ op: 'health' })).health,
    /**
     * Searches memory; hits are in the agent's order.
     * @param {string} query
     * @param {AbortSignal} [signal]
     */
    search: (query, signal) => ask({ op: 'search', query, limit: HITS }, { signal }),
    /**
     * Fetches a preview of a forget.
     * @param {ForgetTarget} target
     */
    preview: async (target) =>
      (await ask({ op: 'forget', ...target, preview: true }, { timeout: FORGET_MS })).forgotten,
    /** @param {ForgetTarget} target */
    forget: async (target) => (await ask({ op: 'forget', ...target, yes: true }, { timeout: FORGET_MS })).forgotten,
    flush: () => connection.ask('system', { action: 'flush' }, { timeout: FLUSH_MS }),
  };
}

/** @param {number | null} before */
const below = (before) => (before === null ? {} : { before });
