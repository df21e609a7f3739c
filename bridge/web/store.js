// One plain observable state, updated by messages from the server. Knows no DOM and no socket.
//
// Code that draws subscribes to topics and reads `store.state`; it is notified at most once a frame. Code that needs a
// single message (a highlight, "this was just learned") listens to its type.

import { Conversation, ENDED } from './chat/conversation.js';

/** @import { Card, Heard, HeardType, Link, MessageOf, NextDue, Stack, State, Topic } from './types/page.js' */

/** Defaults until the sprite sends its own limits. */
const LIMITS = { frame_bytes: 1048576, mission_chars: 200_000, upload_chunk_bytes: 524_288, upload_bytes: 104_857_600 };
/** Update interval of a hidden page. */
const HIDDEN_MS = 250;

export function createStore() {
  const conversation = new Conversation();
  /** @type {State} */
  const state = {
    link: { state: 'connecting', detail: '', since: Date.now() },
    limits: LIMITS,
    loaded: false,
    session: { session_id: null, started_at: null, turns: 0, running_mission_id: null, queued: 0, background: [] },
    status: null,
    model: null,
    nextDue: null,
    tz: 'UTC',
    stacks: [],
    cards: new Map(),
    memory: null,
    chat: conversation.entries,
    permissions: [],
  };
  /** @type {Set<{ wanted: Topic[], tell: (topics: Set<Topic>) => void }>} */
  const subscribers = new Set();
  /** @type {Map<HeardType, Set<(payload: never, message: never) => void>>} */
  const listeners = new Map();
  /** @type {Set<Topic>} */
  const changed = new Set();
  let scheduled = false;

  /** @param {...Topic} topics */
  function touch(...topics) {
    for (const topic of topics) changed.add(topic);
    if (scheduled) return;
    scheduled = true;
    if (document.visibilityState === 'visible') requestAnimationFrame(tell);
    else setTimeout(tell, HIDDEN_MS);
  }

  function tell() {
    scheduled = false;
    const topics = new Set(changed);
    changed.clear();
    for (const { wanted, tell } of [...subscribers]) if (wanted.some((topic) => topics.has(topic))) tell(topics);
  }

  // A frame requested while the page was visible does not come once it is hidden.
  document.addEventListener('visibilitychange', () => {
    if (scheduled) tell();
  });

  /** @param {{ next_due?: NextDue | null, tz?: string }} said */
  function planned({ next_due: next = null, tz = 'UTC' }) {
    state.nextDue = next;
    state.tz = tz;
    touch('nextDue');
  }

  /** @type {{ [T in HeardType]?: (payload: Heard[T], message: MessageOf<T>) => void }} */
  const handlers = {
    auth_ok(payload) {
      state.limits = { ...LIMITS, ...payload.limits };
      touch('link');
    },
    link(payload) {
      const { state: name, detail, offer, as_of: keptAt } = payload;
      store.setLink(name, detail ?? '', { offer, keptAt });
    },
    state_sync(payload) {
      state.stacks = payload.stacks;
      state.cards = new Map(payload.cards.map((card) => [card.card_id, card]));
      state.session = payload.session;
      state.memory = payload.memory;
      state.model = payload.model ?? null;
      planned(payload);
      state.loaded = true;
      conversation.sync(payload);
      state.permissions = conversation.openPermissions();
      touch('stacks', 'cards', 'session', 'memory', 'chat', 'permissions', 'loaded');
    },
    agent_event(payload, message) {
      conversation.event(payload, message.timestamp);
      if (payload.event === 'started') {
        const session_id = payload.session_id ?? state.session.session_id;
        const turns = session_id === state.session.session_id ? state.session.turns : 0;
        state.session = { ...state.session, running_mission_id: payload.mission_id, session_id, turns };
      } else if (ENDED.has(payload.event) && payload.mission_id === state.session.running_mission_id) {
        // A mission may have waited for the end of a background turn.
        const next = conversation.running?.missionId ?? null;
        const isOwn = conversation.find(payload.mission_id ?? '')?.origin === 'agent';
        const turns = state.session.turns + (isOwn ? 0 : 1);
        state.session = { ...state.session, running_mission_id: next, turns, slow: [] };
      }
      touch('chat');
      // Most events are text deltas, hundreds of them a reply.
      if (payload.event === 'text_delta' || payload.event === 'thinking') return;
      state.permissions = conversation.openPermissions();
      touch('session', 'permissions');
    },
    error({ code, message: words }, { timestamp: since }) {
      if (code !== 'model_away' || !conversation.running) return;
      conversation.running.trouble = { words, since };
      touch('chat');
    },
    session_update(payload) {
      state.session = payload.session;
      state.model = payload.session.model ?? state.model;
      if (!payload.session.background?.length) conversation.backgroundEnded();
      state.permissions = conversation.openPermissions();
      touch('session', 'chat', 'permissions');
    },
    chat_said(payload) {
      conversation.said(payload);
      touch('chat');
    },
    permission_request(payload) {
      conversation.permission(payload);
      state.permissions = conversation.openPermissions();
      touch('chat', 'permissions');
    },
    permission_resolved(payload) {
      conversation.resolved(payload.request_id, payload.decision ?? null);
      state.permissions = conversation.openPermissions();
      touch('chat', 'permissions');
    },
    stack_update(payload) {
      const known = state.stacks.some((stack) => stack.stack_id === payload.stack_id);
      store.setStacks(
        known
          ? state.stacks.map((stack) => (stack.stack_id === payload.stack_id ? payload : stack))
          : [...state.stacks, payload],
      );
    },
    canvas_update(payload) {
      const { command, ...card } = payload;
      const before = state.cards.get(card.card_id);
      store.setCard({
        ...card,
        position: card.position ?? before?.position ?? null,
        size: card.size ?? before?.size ?? null,
        archived: command === 'close_card',
      });
    },
    memory_update(payload, message) {
      if (state.memory) {
        state.memory = { ...state.memory, drift: payload.drift };
        touch('memory');
      }
      for (const row of payload.answered ?? []) {
        conversation.answered(row, payload.learnings);
        touch('chat');
      }
      // The edited text is shown in the place of the former one.
      if (payload.learnings.length && !payload.answered?.length) {
        const { files, curation_id: id, learnings } = payload;
        conversation.learned({ ids: [id], at: message.timestamp / 1000, learnings, files });
        touch('chat');
      }
    },
    status(payload) {
      state.status = payload;
      state.session = payload.session;
      state.memory = payload.memory;
      state.model = payload.model ?? state.model;
      planned(payload);
      touch('status', 'session', 'memory');
    },
    schedule_update({ next_due: next }) {
      state.nextDue = next;
      touch('nextDue');
    },
  };

  const store = {
    state,
    conversation,
    touch,

    /**
     * Calls `fn` after a change of one of the topics, at most once a frame; returns a function that stops it.
     * @param {Topic | Topic[]} topics
     * @param {(topics: Set<Topic>) => void} fn
     */
    subscribe(topics, fn) {
      const entry = { wanted: [topics].flat(), tell: fn };
      subscribers.add(entry);
      return () => subscribers.delete(entry);
    },

    /**
     * Calls `fn(payload, message)` for each message of a type, right after it was applied; returns a function that
     * stops it.
     * @template {HeardType} T
     * @param {T} type
     * @param {(payload: Heard[T], message: MessageOf<T>) => void} fn
     */
    listen(type, fn) {
      const heard = listeners.get(type) ?? new Set();
      listeners.set(type, heard.add(fn));
      return () => heard.delete(fn);
    },

    /**
     * Applies a message of the server. An unknown type changes nothing: an older page may meet a newer sprite.
     * @template {HeardType} T
     * @param {MessageOf<T>} message
     */
    apply(message) {
      handlers[message.type]?.(message.payload, message);
      // Each listener takes the payload of its type, which the type of the table cannot express.
      const heard = /** @type {Iterable<(payload: Heard[T], message: MessageOf<T>) => void>} */ (
        listeners.get(message.type) ?? []
      );
      for (const fn of heard) fn(message.payload, message);
    },

    /** @param {Link['state']} name @param {string} [detail] @param {Pick<Link, 'offer' | 'keptAt'>} [offer] */
    setLink(name, detail = '', offer = {}) {
      const since = state.link.state === name ? state.link.since : Date.now();
      state.link = { state: name, detail, since, ...offer };
      touch('link');
    },

    /** @param {Card} card */
    setCard(card) {
      state.cards.set(card.card_id, card);
      touch('cards');
    },

    /** @param {Stack[]} stacks */
    setStacks(stacks) {
      state.stacks = stacks;
      touch('stacks');
    },
  };
  return store;
}
