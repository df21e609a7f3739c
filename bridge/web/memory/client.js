// What memory is asked, each question by name. Every one rejects with a Problem whose message is for people.

/** Rows of one page of a list. */
export const PAGE = 50;
const HITS = 20;
/** A person who asks for a flush waits for one call to a model; the sprite bounds it at 120 s. */
const FLUSH_MS = 150_000;
/** A forget waits for the turn under way to end. */
const FORGET_MS = 180_000;

export function createClient({ connection }) {
  const ask = (op, fields = {}, options = {}) => connection.ask('memory', { op, ...fields }, options);
  const below = (before) => (before === null ? {} : { before });

  return {
    files: async () => (await ask('files')).files,
    /** `{name, content, version}`, as it is or as it was in a version. */
    file: (name, version) => ask('file', version === undefined ? { name } : { name, version }),
    /** Every version, newest first. */
    history: async (name) => (await ask('history', { name })).history.reverse(),
    /** Saves over `version`, the one that was opened. Code `conflict`: the file has changed since. */
    edit: (name, content, version) => ask('edit', { name, content, version }),
    learnings: async (before = null) =>
      (await ask('learnings', { newest: true, limit: PAGE, ...below(before) })).learnings,
    learning: async (id) => {
      const [found] = (await ask('learnings', { after: id - 1, limit: 1 })).learnings;
      return found?.id === id ? found : null;
    },
    /** What one curation changed, or null. */
    curation: async (id) => {
      const [found] = (await ask('curations', { before: id + 1, limit: 1 })).curations;
      return found?.id === id ? found : null;
    },
    curations: async (before = null) => (await ask('curations', { limit: PAGE, ...below(before) })).curations,
    turns: async (before = null) => (await ask('observations', { limit: PAGE, ...below(before) })).observations,
    turn: async (id) => (await ask('turn', { id })).turn,
    actions: async () => (await ask('actions')).actions,
    resolve: async (id, status) => (await ask('resolve_action', { id, status })).actions,
    health: async () => (await ask('health')).health,
    /** `{hits, indexed_through, waiting}`, in the order the agent gets them. */
    search: (query, signal) => ask('search', { query, limit: HITS }, { signal }),
    /** What a forget would touch; `target` is one of {text}, {turn}, {session}, {learning}. */
    preview: async (target) => (await ask('forget', { ...target, preview: true })).forgotten,
    forget: async (target) => (await ask('forget', { ...target, yes: true }, { timeout: FORGET_MS })).forgotten,
    flush: () => connection.ask('system', { action: 'flush' }, { timeout: FLUSH_MS }),
  };
}
