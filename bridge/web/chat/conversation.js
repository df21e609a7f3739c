// The chat as a list of exchanges: a person's message and everything that followed. A fold over events, without DOM.
//
// An entry is an exchange or a notice; the parts of an exchange are the pieces of its answer (types/page.d.ts).

import { when } from '../format.js';

/** @import { AgentEvent, ChatMessage, ChatSaid, CurationRow, LearningRow } from '../types/page.js' */
/** @import { PermissionRequest, Running, StateSync } from '../types/page.js' */
/** @import { Decision, Entry, Exchange, ExchangeStatus, Taught, ToolPart } from '../types/page.js' */

/** @type {ReadonlySet<string>} */
export const ENDED = new Set(['complete', 'interrupted', 'error']);
/** @type {ReadonlySet<ExchangeStatus>} */
const WAITING = new Set(['queued', 'sent']);

/**
 * Whether a person wrote it: then they can withdraw it to change it, or send it again.
 * @param {Pick<Exchange, 'origin' | 'askedBy'>} entry
 */
export const isPersons = (entry) => entry.origin === 'person' && entry.askedBy === null;

export class Conversation {
  /** @type {Entry[]} */
  entries = [];
  /** @type {Map<string, Exchange>} */
  #byMission = new Map();
  #keys = 0;
  /**
   * Learnings of older curations, oldest first, until the conversation reaches back to them.
   * @type {Taught[]}
   */
  #older = [];

  /** @param {string} missionId */
  find(missionId) {
    return this.#byMission.get(missionId);
  }

  /** @returns {Exchange | undefined} */
  get running() {
    return this.#exchanges.findLast((entry) => entry.status === 'running');
  }

  /** The person's last message that still waits for its turn. */
  get lastQueued() {
    return this.#exchanges.findLast((entry) => entry.status === 'queued' && isPersons(entry));
  }

  /**
   * The id of the first shown line, from which older ones are requested; null if there is none.
   * @returns {number | null}
   */
  get oldestRow() {
    return this.#exchanges.find((entry) => entry.rowId)?.rowId ?? null;
  }

  /**
   * Restarts from the server's state; tool calls that this page has seen stay with their exchange.
   * @param {StateSync} state
   */
  sync({ chat, session, queued = [], running = null, permissions = [] }) {
    const before = new Map(this.#byMission);
    this.#older = [];
    this.entries.length = 0;
    this.#byMission.clear();
    for (const row of chat) this.#row(row, before);
    for (const entry of this.#exchanges) {
      if (queued.includes(entry.missionId ?? '')) entry.status = 'queued';
      else if (entry.missionId !== session.running_mission_id) withoutReply(entry);
    }
    if (running) this.#resume(running, before.get(running.mission_id));
    for (const request of permissions) this.permission(request);
  }

  /**
   * Adds lines older than all shown ones, oldest first.
   * @param {ChatMessage[]} rows
   */
  prepend(rows) {
    const shown = this.entries.splice(0);
    for (const row of rows) this.#row(row, new Map());
    for (const entry of this.#exchanges) withoutReply(entry);
    this.entries.push(...shown);
    this.#place();
  }

  /**
   * Returns the lines between sessions: by the key of the exchange below each line, and the last one by null.
   * @param {string | null} now  the session to which the next message belongs
   */
  dividers(now) {
    /** @type {Map<number | null, string>} */
    const lines = new Map();
    const known = new Set();
    let last = null;
    for (const { key, sessionId, at } of this.#exchanges) {
      if (sessionId === null || sessionId === last) continue;
      if (last !== null) lines.set(key, `${known.has(sessionId) ? 'Session continued' : 'New session'}, ${when(at)}`);
      last = sessionId;
      known.add(sessionId);
    }
    const isOpen = this.running !== undefined || this.lastQueued !== undefined;
    if (last !== null && now !== last && !isOpen)
      lines.set(null, now !== null && known.has(now) ? 'Session continued' : 'New session');
    return lines;
  }

  /**
   * Adds an accepted message: of a person on this page or another, a program, or a schedule.
   * @param {Pick<ChatSaid, 'mission_id' | 'text' | 'at' | 'origin' | 'asked_by' | 'pasted'>} said
   */
  said({ mission_id: missionId, text, at, origin = 'person', asked_by: askedBy = null, pasted = [] }) {
    const known = this.#byMission.get(missionId);
    if (known) {
      if (known.text === null) Object.assign(known, { text, pasted });
      known.version += 1;
      return known;
    }
    const runs = this.running !== undefined;
    return this.#add({ missionId, text, pasted, at, origin, askedBy, status: runs ? 'queued' : 'sent' });
  }

  /** @param {string} missionId */
  remove(missionId) {
    const entry = this.#byMission.get(missionId);
    if (!entry) return;
    this.#byMission.delete(missionId);
    this.entries.splice(this.entries.indexOf(entry), 1);
  }

  /** @param {AgentEvent} event @param {number} timestamp */
  event(event, timestamp) {
    const known = event.mission_id ? this.#byMission.get(event.mission_id) : this.#byItself();
    if (event.event === 'interrupted' && (!known || WAITING.has(known.status))) {
      // It was withdrawn before its turn came.
      this.remove(event.mission_id ?? '');
      return;
    }
    if (!known && ENDED.has(event.event)) return;
    const entry =
      known ??
      this.#add({
        missionId: event.mission_id ?? null,
        at: timestamp / 1000,
        status: 'running',
        startedAt: timestamp,
        // Older sprites sent no id for a background turn.
        origin: event.mission_id ? 'person' : 'agent',
      });
    this.#apply(entry, event, timestamp);
    entry.version += 1;
  }

  /** Closes the questions of background work, which has ended. */
  backgroundEnded() {
    for (const entry of this.#exchanges) {
      for (const part of entry.parts) {
        if (part.kind !== 'permission' || !part.background || part.decision !== undefined) continue;
        part.decision = null;
        entry.version += 1;
      }
    }
  }

  /** @param {PermissionRequest} request */
  permission(request) {
    // A redacted request belongs to a question that is already closed.
    if (request.redacted || this.#question(request.request_id)) return;
    const entry = this.#byMission.get(request.mission_id ?? '') ?? this.running ?? this.#exchanges.at(-1);
    if (!entry) return;
    entry.parts.push({ ...request, kind: 'permission', key: this.#key(), decision: undefined });
    entry.version += 1;
  }

  /**
   * Records the answer to a question: `allow`, `deny`, `always`, or null if there was none.
   * @param {string} requestId
   * @param {Decision | null} decision
   */
  resolved(requestId, decision) {
    const found = this.#question(requestId);
    if (!found || found.part.decision !== undefined) return;
    found.part.decision = decision;
    const { tool_use_id: id } = found.part;
    const tool = found.entry.parts.filter((part) => part.kind === 'tool').find((part) => id && part.toolUseId === id);
    if (tool) tool.answer = decision;
    found.entry.version += 1;
  }

  openPermissions() {
    const parts = this.#exchanges.flatMap((entry) => entry.parts);
    return parts.filter((part) => part.kind === 'permission').filter((part) => part.decision === undefined);
  }

  /**
   * Shows what a curation has taught, once. Without a message in between, it joins the notice before it.
   * @param {Taught} taught
   */
  learned(taught) {
    const { ids, at, learnings, files } = taught;
    if (this.entries.some((entry) => entry.kind === 'notice' && ids.some((id) => entry.ids.includes(id)))) return;
    const found = this.entries.findIndex((entry) => entry.at > at);
    const index = found < 0 ? this.entries.length : found;
    const before = this.entries[index - 1];
    if (before?.kind !== 'notice') {
      this.entries.splice(index, 0, {
        kind: 'notice',
        key: this.#key(),
        version: 0,
        ...taught,
        learnings: asked(learnings),
      });
      return;
    }
    before.ids = [...before.ids, ...ids];
    before.learnings = asked([...before.learnings, ...learnings]);
    before.files = [...new Set([...before.files, ...files])];
    before.version += 1;
  }

  /**
   * Shows what was learned before this page was opened, as far back as the conversation is loaded.
   * @param {LearningRow[]} rows
   * @param {CurationRow[]} curations
   */
  taughtBefore(rows, curations) {
    /** @type {Map<number, Taught>} */
    const byId = new Map();
    for (const row of rows.toReversed()) {
      const { curation_id: id } = row;
      const made = curations.find((curation) => curation.id === id);
      if (made?.kind === 'learning') continue;
      const files = (made?.files ?? []).map(({ name }) => name);
      const taught = byId.get(id) ?? { ids: [id], at: made?.at ?? row.created_at, learnings: [], files };
      taught.learnings.push(row);
      byId.set(id, taught);
    }
    this.#older = [...byId.values()].toSorted((a, b) => a.at - b.at);
    this.#place();
  }

  #place() {
    const first = this.entries[0]?.at ?? Infinity;
    for (const taught of this.#older) if (taught.at >= first) this.learned(taught);
    this.#older = this.#older.filter(({ at }) => at < first);
  }

  /**
   * Shows the person's word on a learning in the notices that name it.
   * @param {LearningRow} row
   * @param {LearningRow[]} learnings  the ones that replace answered ones
   */
  answered(row, learnings) {
    const heir = learnings.find(({ id }) => id === row.superseded_by);
    for (const entry of this.entries) {
      if (entry.kind !== 'notice') continue;
      const index = entry.learnings.findIndex(({ id }) => id === row.id);
      if (index === -1) continue;
      entry.learnings = entry.learnings.with(index, heir ?? row);
      // The notice that was open for the question stays open.
      entry.isAnswered = true;
      entry.version += 1;
    }
  }

  // --- inside ---

  get #exchanges() {
    return this.entries.filter((entry) => entry.kind === 'exchange');
  }

  #key() {
    this.#keys += 1;
    return this.#keys;
  }

  /** @param {Partial<Exchange> & Pick<Exchange, 'missionId' | 'at' | 'status'>} given */
  #add(given) {
    const said = { origin: /** @type {const} */ ('person'), askedBy: null, text: null, pasted: [], rowId: null };
    const reply = {
      sessionId: null,
      parts: [],
      error: null,
      cost: null,
      ms: null,
      startedAt: null,
      changes: null,
      found: [],
      undone: false,
    };
    const flags = { compacting: null, thoughts: null, trouble: null, isBegunAgain: false, version: 0 };
    /** @type {Exchange} */
    const entry = { kind: 'exchange', key: this.#key(), ...said, ...reply, ...flags, ...given };
    this.entries.push(entry);
    if (entry.missionId) this.#byMission.set(entry.missionId, entry);
    return entry;
  }

  #byItself() {
    return this.#exchanges.findLast((entry) => !entry.missionId && entry.status === 'running');
  }

  /** @param {string} requestId */
  #question(requestId) {
    for (const entry of this.#exchanges) {
      const questions = entry.parts.filter((part) => part.kind === 'permission');
      const part = questions.find((candidate) => candidate.request_id === requestId);
      if (part) return { entry, part };
    }
    return null;
  }

  /** @param {ChatMessage} row @param {Map<string, Exchange>} before */
  #row(row, before) {
    const known = before.get(row.mission_id ?? '');
    const entry =
      this.#byMission.get(row.mission_id ?? '') ??
      this.#add({
        missionId: row.mission_id,
        origin: row.origin ?? 'person',
        at: row.at,
        rowId: row.id,
        status: row.status ?? 'sent',
        ...(known && { key: known.key, version: known.version + 1 }),
      });
    entry.sessionId = row.session_id ?? null;
    if (row.role === 'user') {
      entry.text = row.text;
      entry.pasted = row.pasted ?? [];
      entry.askedBy = row.asked_by ?? null;
      return;
    }
    entry.changes = row.changes ?? entry.changes;
    entry.status = row.role === 'error' ? 'error' : row.status === 'interrupted' ? 'interrupted' : 'complete';
    Object.assign(entry, {
      cost: row.cost_usd ?? null,
      ms: row.duration_ms ?? null,
      found: row.found ?? [],
      undone: row.undone,
    });
    if (row.role === 'error') entry.error = known?.error ?? { code: '', message: row.text, retryable: true };
    // A turn that was watched has complete tool calls; the server's row has only summaries.
    if (known && ENDED.has(known.status) && known.parts.some((part) => part.kind === 'tool')) {
      Object.assign(entry, { parts: known.parts, status: known.status });
      return;
    }
    const at = row.at * 1000;
    for (const { name, title, is_error: isError = false, tool_use_id: toolUseId = '', answer } of row.tools ?? [])
      entry.parts.push({ ...newCall(this.#key(), name, at), title, endedAt: at, isError, toolUseId, answer });
    if (entry.status === 'interrupted') stopLast(entry);
    if (row.role === 'assistant' && row.text) this.#text(entry, row.text, true, at);
  }

  /** @param {Running} running @param {Exchange | undefined} known */
  #resume({ mission_id: missionId, events, partial }, known) {
    const entry = this.#byMission.get(missionId) ?? this.#add({ missionId, at: Date.now() / 1000, status: 'running' });
    const tools = (known?.parts ?? []).filter((part) => part.kind === 'tool');
    const toolTimes = new Map(tools.map((part) => [part.toolUseId, part]));
    const startedAt = known?.startedAt ?? Date.now();
    Object.assign(entry, { status: 'running', startedAt, parts: [] });
    for (const event of events) this.#apply(entry, event, startedAt);
    for (const part of entry.parts.filter((each) => each.kind === 'tool')) {
      const seen = toolTimes.get(part.toolUseId);
      if (seen) part.startedAt = seen.startedAt;
      else if (!part.endedAt) part.startedAt = Date.now();
    }
    if (partial) this.#text(entry, partial, false, Date.now());
    entry.version += 1;
  }

  /** @param {Exchange} entry @param {AgentEvent} event @param {number} timestamp */
  #apply(entry, event, timestamp) {
    const last = entry.parts.at(-1);
    const open = last?.kind === 'text' && !last.done ? last : null;
    if (open && event.event !== 'text_delta') open.done = true;
    if (event.event !== 'thinking') entry.thoughts = null;
    entry.trouble = null;
    switch (event.event) {
      case 'thinking':
        entry.thoughts = { since: timestamp, ...entry.thoughts, text: (entry.thoughts?.text ?? '') + event.text };
        break;
      case 'started':
        Object.assign(entry, { status: 'running', startedAt: timestamp, origin: event.origin ?? 'person' });
        entry.sessionId = event.session_id ?? entry.sessionId;
        // It was interrupted before it had an effect and starts again: its earlier text is void.
        if ((event.attempt ?? 1) > 1) Object.assign(entry, { parts: [], isBegunAgain: true });
        this.#moveBeforeWaiting(entry);
        break;
      case 'text_delta':
        if (open) Object.assign(open, { text: open.text + event.text, at: timestamp });
        else this.#text(entry, event.text, false, timestamp);
        break;
      case 'text':
        // The complete block: the streamed text may have a hole where the connection was lost.
        if (open) open.text = event.text;
        else this.#text(entry, event.text, true, timestamp);
        break;
      case 'tool_use':
        entry.parts.push({
          ...newCall(this.#key(), event.name, timestamp),
          toolUseId: event.tool_use_id,
          input: event.input ?? {},
        });
        break;
      case 'tool_result': {
        const found = this.#call(entry, event.tool_use_id);
        if (found) {
          const summary = event.summary ?? '';
          Object.assign(found.tool, { endedAt: timestamp, summary, isError: event.is_error, stopped: false });
          found.of.version += 1;
        }
        break;
      }
      case 'tool_output': {
        const found = this.#call(entry, event.tool_use_id);
        if (found && !found.tool.endedAt) found.tool.output = event.text;
        break;
      }
      case 'model_changed':
        entry.parts.push({ kind: 'note', key: this.#key(), text: event.text });
        break;
      case 'compacting':
      case 'compacted':
        entry.compacting = event.event === 'compacting' ? timestamp : null;
        break;
      case 'complete':
        entry.changes = event.changes ?? null;
        if (event.text && !entry.parts.some((part) => part.kind === 'text'))
          this.#text(entry, event.text, true, timestamp);
        this.#end(entry, 'complete', timestamp);
        entry.found = event.memory_found ?? [];
        Object.assign(entry, { cost: event.cost_usd ?? null, ms: event.duration_ms ?? null });
        break;
      case 'interrupted':
        entry.changes = event.changes ?? null;
        this.#end(entry, 'interrupted', timestamp);
        stopLast(entry);
        break;
      case 'error': {
        entry.changes = event.changes ?? null;
        this.#end(entry, 'error', timestamp);
        if (event.code === 'crashed') this.backgroundEnded();
        const { code, message, retryable, action, details } = event;
        entry.error = { code, message, retryable: retryable !== false, action, details };
        break;
      }
    }
  }

  /** @param {Exchange} entry @param {string} text @param {boolean} done @param {number} at */
  #text(entry, text, done, at) {
    entry.parts.push({ kind: 'text', key: this.#key(), text, done, at });
  }

  /**
   * Finds the call with this id: of this exchange or, if its result came after its turn, of an earlier one.
   * @param {Exchange} entry
   * @param {string} id
   */
  #call(entry, id) {
    for (const of of [entry, ...this.#exchanges.toReversed()]) {
      const tool = of.parts.filter((part) => part.kind === 'tool').find((part) => part.toolUseId === id);
      if (tool) return { of, tool };
    }
    return null;
  }

  /**
   * Ends an exchange. A call without a result counts as stopped only if its turn was stopped; otherwise its work
   * continues. Its own questions end with the turn; a background agent still waits for its answer.
   * @param {Exchange} entry
   * @param {ExchangeStatus} status
   * @param {number} timestamp
   */
  #end(entry, status, timestamp) {
    Object.assign(entry, { status, compacting: null, thoughts: null });
    for (const part of entry.parts) {
      if (part.kind === 'tool' && !part.endedAt)
        Object.assign(part, { endedAt: timestamp, stopped: status !== 'complete' });
      if (part.kind === 'permission' && !part.background && part.decision === undefined) part.decision = null;
    }
  }

  /**
   * Moves an exchange whose turn has begun before the waiting ones.
   * @param {Exchange} entry
   */
  #moveBeforeWaiting(entry) {
    const index = this.entries.indexOf(entry);
    const target = this.entries.findIndex((other) => other.kind === 'exchange' && WAITING.has(other.status));
    if (target < 0 || target >= index) return;
    this.entries.splice(index, 1);
    this.entries.splice(target, 0, entry);
  }
}

/**
 * Ends an exchange without an end: it was withdrawn before it began, or the sprite was killed in the middle of it.
 * @param {Exchange} entry
 */
function withoutReply(entry) {
  if (WAITING.has(entry.status)) entry.status = 'interrupted';
  if (entry.status !== 'running') return;
  entry.status = 'error';
  entry.error = { code: 'crashed', message: 'This was interrupted before it ended. Send it again.', retryable: true };
}

/**
 * Marks the call at which a person stopped the turn: the CLI reports it as failed.
 * @param {Exchange} entry
 */
function stopLast(entry) {
  const last = entry.parts.at(-1);
  if (last?.kind === 'tool' && last.isError) Object.assign(last, { stopped: true, isError: false });
}

/**
 * Orders learnings for a notice, which shows only a few: questions come first.
 * @param {LearningRow[]} rows
 */
const asked = (rows) => rows.toSorted((a, b) => Number(Boolean(b.proposed)) - Number(Boolean(a.proposed)));

/** @param {number} key @param {string} name @param {number} startedAt @returns {ToolPart} */
const newCall = (key, name, startedAt) => {
  const outcome = { endedAt: null, summary: null, isError: false, stopped: false };
  return { kind: 'tool', key, toolUseId: '', name, input: {}, title: null, startedAt, ...outcome };
};
