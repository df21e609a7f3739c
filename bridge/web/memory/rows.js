// A list that grows at both ends: live rows at the top, older pages at the end, each row once. Pure.

/** @template {{ id: number }} R */
export class Rows {
  #page;
  /** @type {Map<number, R>} */
  #byId = new Map();
  /**
   * The lowest id that paging has reached, null before the first page.
   * @type {number | null}
   */
  cursor = null;
  more = true;

  /**
   * `page` is the number of rows in a full page: a shorter one is the last.
   * @param {number} page
   */
  constructor(page) {
    this.#page = page;
  }

  clear() {
    this.#byId.clear();
    this.cursor = null;
    this.more = true;
  }

  get size() {
    return this.#byId.size;
  }

  /** Rows by falling id. */
  get list() {
    return [...this.#byId.values()].sort((a, b) => b.id - a.id);
  }

  /** @param {number} id */
  get(id) {
    return this.#byId.get(id);
  }

  /**
   * Adds the newest page; returns the new ids. If the page leaves a gap, older rows are dropped.
   * @param {R[]} rows
   */
  renew(rows) {
    const highest = Math.max(0, ...this.#byId.keys());
    const lowest = Math.min(...rows.map((row) => row.id));
    if (rows.length === this.#page && lowest > highest + 1) this.clear();
    const fresh = rows.filter((row) => !this.#byId.has(row.id)).map((row) => row.id);
    this.put(rows);
    if (this.cursor === null) this.#reached(rows);
    return fresh;
  }

  /**
   * Adds the page below the cursor.
   * @param {R[]} rows
   */
  append(rows) {
    this.put(rows);
    this.#reached(rows);
  }

  /**
   * Adds single rows in their places.
   * @param {R[]} rows
   */
  put(rows) {
    for (const row of rows) this.#byId.set(row.id, row);
  }

  /** @param {R[]} rows */
  #reached(rows) {
    this.more = rows.length === this.#page;
    if (rows.length > 0) this.cursor = Math.min(this.cursor ?? Infinity, ...rows.map((row) => row.id));
  }
}
