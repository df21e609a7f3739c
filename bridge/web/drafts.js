// What was typed and not saved yet, by what it is for. It lives as long as the tab: on disk, no forget could reach it.

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
  /**
   * @param {string} key
   * @param {Draft} draft
   */
  keep(key, draft) {
    try {
      sessionStorage.setItem(KEPT + key, JSON.stringify(draft));
    } catch {
      // A full or forbidden storage costs the copy that survives a reload, not what is in the field.
    }
  },
  /** @param {string} key */
  drop(key) {
    try {
      sessionStorage.removeItem(KEPT + key);
    } catch {
      // Then there was nothing.
    }
  },
};

/** Drops every draft: what was forgotten must not come back by a save. */
export function dropDrafts() {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(KEPT)) sessionStorage.removeItem(key);
}
