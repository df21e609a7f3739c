// The chat as a list of exchanges: what a person said and everything that followed, in one place. A fold, without DOM.
//
// An entry is an exchange `{kind: 'exchange', key, missionId, text, at, status, parts, error, cost, ms, version}` or a
// notice `{kind: 'notice', key, notice, at, ...}`. A part is `{kind: 'text', text, done}`, `{kind: 'tool', ...}` or
// `{kind: 'permission', ...}`.
// `version` grows with each change, so that who draws compares one number.

export const ENDED = new Set(['complete', 'interrupted', 'error']);
const WAITING = new Set(['queued', 'sent']);
const ENDS = new Set(['complete', 'interrupted', 'error']);

export class Conversation {
  entries = [];
  #byMission = new Map();
  #keys = 0;

  find(missionId) {
    return this.#byMission.get(missionId);
  }

  get running() {
    return this.entries.findLast((entry) => entry.status === 'running');
  }

  /** The first line of chat that is shown, by which older ones are asked for; null where there is none. */
  get oldestRow() {
    return this.entries.find((entry) => entry.rowId)?.rowId ?? null;
  }

  /** Starts again from the server's state; tool calls that this page has seen stay with what was said. */
  sync({ chat, session, queued = [], running = null, permissions = [] }) {
    const before = new Map(this.#byMission);
    const notices = this.entries.filter((entry) => entry.kind === 'notice');
    this.entries.length = 0;
    this.#byMission.clear();
    for (const row of chat) this.#row(row, before);
    for (const entry of this.entries) {
      if (queued.includes(entry.missionId)) entry.status = 'queued';
      else if (entry.status === 'sent' && entry.missionId !== session.running_mission_id) entry.status = 'interrupted';
    }
    if (running) this.#resume(running, before.get(running.mission_id));
    for (const request of permissions) this.permission(request);
    for (const notice of notices) this.#insertByTime(notice);
  }

  /** Lines that are older than all that are shown, oldest first. */
  prepend(rows) {
    const shown = this.entries.splice(0);
    for (const row of rows) this.#row(row, new Map());
    for (const entry of this.entries) if (WAITING.has(entry.status)) entry.status = 'interrupted';
    this.entries.push(...shown);
  }

  /** A person's message was taken, on this page or another. */
  said({ mission_id: missionId, text, at }) {
    const known = this.#byMission.get(missionId);
    if (known) {
      known.text ??= text;
      known.version += 1;
      return known;
    }
    const runs = this.running !== undefined;
    return this.#add({ missionId, text, at, status: runs ? 'queued' : 'sent' });
  }

  remove(missionId) {
    const entry = this.#byMission.get(missionId);
    if (!entry) return;
    this.#byMission.delete(missionId);
    this.entries.splice(this.entries.indexOf(entry), 1);
  }

  event(event, timestamp) {
    const known = event.mission_id ? this.#byMission.get(event.mission_id) : this.#byItself();
    if (event.event === 'interrupted' && (!known || WAITING.has(known.status))) {
      // It was taken back before its turn came.
      this.remove(event.mission_id);
      return;
    }
    if (!known && ENDS.has(event.event)) return;
    const entry =
      known ??
      this.#add({ missionId: event.mission_id ?? null, at: timestamp / 1000, status: 'running', startedAt: timestamp });
    this.#apply(entry, event, timestamp);
    entry.version += 1;
  }

  permission(request) {
    if (this.#question(request.request_id)) return;
    const entry =
      this.#byMission.get(request.mission_id) ??
      this.running ??
      this.entries.findLast((each) => each.kind === 'exchange');
    if (!entry) return;
    entry.parts.push({ kind: 'permission', key: this.#key(), decision: undefined, ...request });
    entry.version += 1;
  }

  /** A question is answered: `allow`, `deny`, `always`, or null where nobody did. */
  resolved(requestId, decision) {
    const found = this.#question(requestId);
    if (!found || found.part.decision !== undefined) return;
    found.part.decision = decision;
    found.entry.version += 1;
  }

  openPermissions() {
    return this.entries.flatMap((entry) =>
      (entry.parts ?? []).filter((part) => part.kind === 'permission' && part.decision === undefined),
    );
  }

  /** A line between the exchanges; an id makes it appear once. */
  notice(notice, { id = null, at = Date.now() / 1000, ...data } = {}) {
    if (id !== null && this.entries.some((entry) => entry.kind === 'notice' && entry.id === id)) return;
    this.entries.push({ kind: 'notice', key: this.#key(), notice, id, at, version: 0, ...data });
  }

  // --- inside ---

  #key() {
    this.#keys += 1;
    return this.#keys;
  }

  #add(given) {
    const entry = {
      kind: 'exchange',
      key: this.#key(),
      text: null,
      parts: [],
      error: null,
      cost: null,
      ms: null,
      startedAt: null,
      compacting: false,
      rowId: null,
      version: 0,
      ...given,
    };
    this.entries.push(entry);
    if (entry.missionId) this.#byMission.set(entry.missionId, entry);
    return entry;
  }

  #byItself() {
    return this.entries.findLast(
      (entry) => entry.kind === 'exchange' && !entry.missionId && entry.status === 'running',
    );
  }

  #question(requestId) {
    for (const entry of this.entries) {
      const part = entry.parts?.find(
        (candidate) => candidate.kind === 'permission' && candidate.request_id === requestId,
      );
      if (part) return { entry, part };
    }
    return null;
  }

  #row(row, before) {
    const known = row.mission_id ? before.get(row.mission_id) : null;
    const entry =
      (row.mission_id && this.#byMission.get(row.mission_id)) ||
      this.#add({
        missionId: row.mission_id,
        at: row.at,
        rowId: row.id,
        status: 'sent',
        ...(known && { key: known.key, version: known.version + 1 }),
      });
    if (row.role === 'user') entry.text = row.text;
    else if (row.role === 'error') {
      entry.status = 'error';
      entry.error = known?.error ?? { code: '', message: row.text, retryable: true };
    } else {
      entry.status = 'complete';
      // What was watched has the tool calls too; the server's row has only what was said.
      if (known && ENDED.has(known.status) && known.parts.some((part) => part.kind === 'tool')) {
        Object.assign(entry, { parts: known.parts, cost: known.cost, ms: known.ms, status: known.status });
      } else entry.parts.push({ kind: 'text', key: this.#key(), text: row.text, done: true });
    }
  }

  #resume({ mission_id: missionId, events, partial }, known) {
    const entry = this.#byMission.get(missionId) ?? this.#add({ missionId, at: Date.now() / 1000 });
    Object.assign(entry, { status: 'running', startedAt: known?.startedAt ?? Date.now(), parts: [] });
    const toolTimes = new Map((known?.parts ?? []).map((part) => [part.toolUseId, part]));
    for (const event of events) this.#apply(entry, event, entry.startedAt);
    for (const part of entry.parts) {
      const seen = toolTimes.get(part.toolUseId);
      if (part.kind === 'tool' && seen) part.startedAt = seen.startedAt;
      else if (part.kind === 'tool' && !part.endedAt) part.startedAt = Date.now();
    }
    if (partial) entry.parts.push({ kind: 'text', key: this.#key(), text: partial, done: false });
    entry.version += 1;
  }

  #insertByTime(notice) {
    const index = this.entries.findIndex((entry) => entry.at > notice.at);
    if (index < 0) this.entries.push(notice);
    else this.entries.splice(index, 0, notice);
  }

  #apply(entry, event, timestamp) {
    const last = entry.parts.at(-1);
    const open = last?.kind === 'text' && !last.done ? last : null;
    if (open && event.event !== 'text_delta') open.done = true;
    switch (event.event) {
      case 'started':
        Object.assign(entry, { status: 'running', startedAt: timestamp });
        this.#moveBeforeWaiting(entry);
        break;
      case 'text_delta':
        if (open) open.text += event.text;
        else entry.parts.push({ kind: 'text', key: this.#key(), text: event.text, done: false });
        break;
      case 'text':
        // The block as a whole: what was streamed of it may have a hole where the connection was lost.
        if (open) open.text = event.text;
        else entry.parts.push({ kind: 'text', key: this.#key(), text: event.text, done: true });
        break;
      case 'tool_use':
        entry.parts.push({
          kind: 'tool',
          key: this.#key(),
          toolUseId: event.tool_use_id,
          name: event.name,
          input: event.input ?? {},
          startedAt: timestamp,
          endedAt: null,
          summary: null,
          isError: false,
          stopped: false,
        });
        break;
      case 'tool_result': {
        const tool = entry.parts.find((part) => part.toolUseId === event.tool_use_id);
        if (tool)
          Object.assign(tool, { endedAt: timestamp, summary: event.summary ?? '', isError: Boolean(event.is_error) });
        break;
      }
      case 'compacting':
      case 'compacted':
        entry.compacting = event.event === 'compacting';
        break;
      case 'complete':
        if (event.text && !entry.parts.some((part) => part.kind === 'text'))
          entry.parts.push({ kind: 'text', key: this.#key(), text: event.text, done: true });
        this.#end(entry, 'complete', timestamp);
        Object.assign(entry, { cost: event.cost_usd ?? null, ms: event.duration_ms ?? null });
        break;
      case 'interrupted':
        this.#end(entry, 'interrupted', timestamp);
        break;
      case 'error':
        this.#end(entry, 'error', timestamp);
        entry.error = { code: event.code, message: event.message, retryable: event.retryable !== false };
        break;
    }
  }

  #end(entry, status, timestamp) {
    Object.assign(entry, { status, compacting: false });
    for (const part of entry.parts) {
      if (part.kind === 'tool' && !part.endedAt) Object.assign(part, { endedAt: timestamp, stopped: true });
      if (part.kind === 'permission' && part.decision === undefined) part.decision = null;
    }
  }

  /** It has its turn now: what still waits comes after it. */
  #moveBeforeWaiting(entry) {
    const index = this.entries.indexOf(entry);
    const target = this.entries.findIndex((other) => other.kind === 'exchange' && WAITING.has(other.status));
    if (target < 0 || target >= index) return;
    this.entries.splice(index, 1);
    this.entries.splice(target, 0, entry);
  }
}
