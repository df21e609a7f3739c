// The WebSocket to the bridge: it reconnects by itself, resumes where it was, and reports its state.
//
// This module handles frames, sequence numbers and answers by `reply_to`; the store interprets messages.

import { codeOf, Problem } from './problem.js';

/** @import { Answer, AskOptions, Heard, Message, Sent, Store } from './types/page.js' */

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 4000;
const ANSWER_MS = 30_000;
/** A connection silent for this long is probed when the person returns to the page. */
const QUIET_MS = 20_000;
const PROBE_MS = 5000;
/**
 * The bridge sends at least every 10 s. Longer silence means a dead connection, also while it is being opened.
 */
const SILENT_MS = 25_000;
const OPENING_MS = 15_000;
const WATCH_MS = 5000;
const UNOPENED = 'The bridge answers, but the connection could not be opened.';
/** Close reasons with which the bridge ends a login. */
const SIGNED_OUT = new Set(['revoked', 'logged out']);

/** @typedef {{ resolve: (payload: never) => void, reject: (problem: Problem) => void, done: () => void }} Asked */

/** @param {Store} store */
export function createConnection(store) {
  const url = address();
  /** @type {WebSocket | null} */
  let socket = null;
  /** @type {string | null} */
  let epoch = null;
  let lastSeq = 0;
  let newestSeq = 0;
  let attempts = 0;
  let timer = 0;
  let heardAt = 0;
  let over = false;
  let everOpen = false;
  /** @type {Map<string, Asked>} */
  const asked = new Map();

  function open() {
    clearTimeout(timer);
    if (over || socket) return;
    const mine = new WebSocket(url);
    socket = mine;
    heardAt = Date.now();
    mine.onopen = () => {
      heardAt = Date.now();
      everOpen = true;
      mine.send(frame('resume', epoch ? { epoch, last_seq: lastSeq } : {}, crypto.randomUUID?.() ?? makeId()));
    };
    mine.onmessage = (event) => {
      heardAt = Date.now();
      take(event.data);
    };
    mine.onclose = (event) => {
      if (socket === mine) lost(event.reason);
    };
  }

  /** @param {string} data */
  function take(data) {
    /** @type {Message} */
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    if (message.seq !== undefined && message.seq !== null) {
      if (message.seq <= lastSeq) return;
      lastSeq = message.seq;
    }
    if (message.type === 'auth_ok') welcome(message.payload);
    // The state includes all events up to the welcome, so no replay follows.
    if (message.type === 'state_sync') lastSeq = Math.max(lastSeq, newestSeq);
    const waiting = asked.get(message.reply_to ?? '');
    store.apply(message);
    if (waiting) answer(message, waiting);
  }

  /** @param {Heard['auth_ok']} welcome */
  function welcome({ epoch: current, last_seq: newest }) {
    attempts = 0;
    if (current !== epoch || lastSeq > newest) lastSeq = 0;
    newestSeq = newest;
    epoch = current;
    if (store.state.link.state !== 'ready') store.setLink('ready');
  }

  /** @param {Message} message @param {Asked} asked */
  function answer(message, { resolve, reject, done }) {
    done();
    const { type, payload } = message;
    if (type === 'error') reject(new Problem(payload.code, payload.message, payload.block));
    // The caller chooses the type of its answer; see Answer.
    else resolve(/** @type {never} */ (payload));
  }

  /** @param {string} reason */
  function lost(reason) {
    socket = null;
    for (const { reject, done } of [...asked.values()]) {
      done();
      reject(new Problem('offline', 'The connection was lost before the answer came.'));
    }
    if (SIGNED_OUT.has(reason)) return end('signed-out');
    void diagnose();
  }

  /** @param {'signed-out'} state */
  function end(state) {
    over = true;
    store.setLink(state);
  }

  async function diagnose() {
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempts) * (0.6 + Math.random() * 0.8);
    attempts += 1;
    // A first lost connection is usually back at once; a message would only flash.
    if (attempts > 1 || !everOpen) {
      try {
        const response = await fetch('/', {
          cache: 'no-store',
          redirect: 'manual',
          signal: AbortSignal.timeout(PROBE_MS),
        });
        if (response.status === 401 || response.status === 403) return end('signed-out');
        store.setLink('offline', await (response.ok ? refused() : refusal(response)));
      } catch {
        store.setLink(
          'offline',
          navigator.onLine ? 'The bridge does not answer. It may be restarting.' : 'This device is offline.',
        );
      }
    } else {
      store.setLink('offline', '');
    }
    timer = setTimeout(open, wait);
  }

  async function probe() {
    if (!socket) {
      attempts = 0;
      open();
      return;
    }
    if (socket.readyState !== WebSocket.OPEN || Date.now() - heardAt < QUIET_MS) return;
    // A question would wake a sleeping sprite, and a link that is not ready reports its own state.
    const { state, detail, offer } = store.state.link;
    if (state !== 'ready' || (detail && !offer)) return;
    const mine = socket;
    try {
      await connection.ask('system', { action: 'status' }, { timeout: PROBE_MS });
    } catch (problem) {
      if (codeOf(problem) === 'timeout' && socket === mine) giveUp();
    }
  }

  /** Gives up a connection that is silent for too long. */
  function watch() {
    if (!socket) return;
    const patience = socket.readyState === WebSocket.OPEN ? SILENT_MS : OPENING_MS;
    if (Date.now() - heardAt > patience) giveUp();
  }

  function giveUp() {
    drop();
    lost('');
  }

  function drop() {
    if (!socket) return;
    socket.onclose = null;
    socket.close();
    socket = null;
  }

  setInterval(watch, WATCH_MS);
  addEventListener('online', () => void probe());
  document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && void probe());

  const connection = {
    start: open,
    /** Retries now instead of after the pause. */
    retry() {
      attempts = 0;
      over = false;
      // If the bridge has given up on the sprite, a new connection makes it retry.
      if (store.state.link.state === 'unavailable') drop();
      if (!socket) open();
    },
    /** Whether a message sent now reaches the bridge. */
    get ready() {
      return socket?.readyState === WebSocket.OPEN;
    },
    /**
     * Sends a message and waits for the payload of its answer. Rejects with a Problem.
     * @template {keyof Sent} T
     * @template {Sent[T]} const P
     * @param {T} type
     * @param {P} payload
     * @param {AskOptions} [options]
     * @returns {Promise<Answer<T, P>>}
     */
    ask(type, payload, { timeout = ANSWER_MS, signal, id = makeId() } = {}) {
      return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(new Problem('aborted', 'Cancelled.'));
        const open = socket;
        if (!open || open.readyState !== WebSocket.OPEN)
          return reject(new Problem('offline', 'There is no connection at the moment. Try again when it is back.'));
        /** @param {string} code @param {string} words */
        const stop = (code, words) => {
          done();
          reject(new Problem(code, words));
        };
        const onAbort = () => stop('aborted', 'Cancelled.');
        const clock = setTimeout(() => stop('timeout', 'No answer came in time. Try again.'), timeout);
        const done = () => {
          clearTimeout(clock);
          signal?.removeEventListener('abort', onAbort);
          asked.delete(id);
        };
        signal?.addEventListener('abort', onAbort);
        asked.set(id, { resolve, reject, done });
        open.send(frame(type, payload, id));
      });
    },
  };
  return connection;
}

/** Asks the bridge why it refuses the socket, which the socket itself does not report. */
async function refused() {
  const response = await fetch('/ws/why', {
    headers: { Accept: 'application/json' },
    cache: 'no-store',
    signal: AbortSignal.timeout(PROBE_MS),
  });
  // An earlier version does not know the address.
  if (response.status === 404) return UNOPENED;
  if (!response.ok) return refusal(response);
  return String((await response.json()).message || UNOPENED);
}

/**
 * Returns why the login is refused, with the bridge's own message if there is one.
 * @param {Response} response
 */
async function refusal(response) {
  const isProxys = response.status >= 500;
  try {
    if (!response.ok) return String((await response.json()).error.message);
  } catch {
    // An error page of a proxy in front of the bridge.
  }
  return isProxys ? 'The bridge does not answer.' : UNOPENED;
}

/** @param {string} type @param {object} payload @param {string} id */
const frame = (type, payload, id) => JSON.stringify({ type, id, timestamp: Date.now(), payload });

/** Returns a UUID, also on pages without TLS, where `randomUUID` is missing. */
export function makeId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** @returns {string} */
function address() {
  return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/ws`;
}
