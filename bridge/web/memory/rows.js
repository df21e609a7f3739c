// A list that grows at both ends: live rows at its top, older pages at its foot, each row once. Pure.

export class Rows {
  /** `page` is how many rows a full page has: a shorter one is the last. */
  constructor(page) {
    this._page = page;
    this.clear();
  }

  clear() {
    this._byId = new Map();
    /** The lowest id that paging has reached, null before the first page. */
    this.cursor = null;
    this.more = true;
  }

  get size() {
    return this._byId.size;
  }

  /** Rows by falling id. */
  get list() {
    return [...this._byId.values()].sort((a, b) => b.id - a.id);
  }

  get(id) {
    return this._byId.get(id);
  }

  /** Takes the newest page; returns the ids that were not known. Older rows go where the page does not reach them. */
  renew(rows) {
    const highest = Math.max(0, ...this._byId.keys());
    const lowest = Math.min(...rows.map((row) => row.id));
    if (rows.length === this._page && lowest > highest + 1) this.clear();
    const fresh = rows.filter((row) => !this._byId.has(row.id)).map((row) => row.id);
    this.put(rows);
    if (this.cursor === null) this._reached(rows);
    return fresh;
  }

  /** Takes the page below the cursor. */
  append(rows) {
    this.put(rows);
    this._reached(rows);
  }

  /** Takes single rows, wherever they belong. */
  put(rows) {
    for (const row of rows) this._byId.set(row.id, row);
  }

  _reached(rows) {
    this.more = rows.length === this._page;
    if (rows.length > 0) this.cursor = Math.min(this.cursor ?? Infinity, ...rows.map((row) => row.id));
  }
}
