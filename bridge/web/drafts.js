// Unsaved drafts, by their target. They last as long as the tab: a forget could not reach them on disk.

const KEPT = 'sprite.edit.';

/** @typedef {{ text: string } & Record<string, unknown>} Draft */

export const drafts = {
  /**
   * @template {Draft} D
   * @param {string} key
   * @returns {D | null}
   */
  get(key) {
    try {
      const draft = JSON.parse(sessionStorage.getItem(KEPT + key) ?? 'null');
      return typeof draft?.text === 'string' ? draft : null;
    } catch {
      return null;
    }
  },
  /** @param {string} key @param {Draft} draft */
  keep(key, draft) {
    try {
      sessionStorage.setItem(KEPT + key, JSON.stringify(draft));
    } catch {
      // A full or forbidden storage loses only the copy for a reload, not the field's content.
    }
  },
  /** @param {string} key */
  drop(key) {
    try {
      sessionStorage.removeItem(KEPT + key);
    } catch {
      // Then there was no draft.
    }
  },
};

/** Drops every draft, so that a save cannot bring back forgotten text. */
export function dropDrafts() {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(KEPT)) sessionStorage.removeItem(key);
}
