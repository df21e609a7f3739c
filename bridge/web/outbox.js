// Messages that the person has sent and the sprite has not accepted yet: shown, kept over a reload, and resent under
// the same id.
//
// An item is `{id, text, pasted, stackId, state: 'sending'|'failed', problem, at}`. Its id is the mission's, so that a
// resend after a cut never runs twice. Messages of a closed window are shown as not sent and are never sent
// automatically.

import { makeId } from './connection.js';
import { codeOf, wordsOf } from './problem.js';

/** @import { Connection, Limits, OutboxItem, Span, Store } from './types/page.js' */

const PREFIX = 'sprite.outbox.';
const TAB_KEY = 'sprite.tab';
const LOCK_MS = 3000;
const ANSWER_MS = 10 * 60_000;
const LEFT_BEHIND = 'This message was written in a window that was closed before sending it.';

/**
 * @param {Store} store
 * @param {Connection} connection
 * @param {() => void} [onSend]  a person's message is about to go out
 */
export function createOutbox(store, connection, onSend = () => {}) {
  /** @type {OutboxItem[]} */
  const items = [];
  /** @type {Set<string>} */
  const inFlight = new Set();
  let tab = sessionStorage.getItem(TAB_KEY) ?? newTab();

  function newTab() {
    const id = makeId();
    sessionStorage.setItem(TAB_KEY, id);
    return id;
  }

  function keep() {
    const key = PREFIX + tab;
    try {
      if (items.length) localStorage.setItem(key, JSON.stringify(items));
      else localStorage.removeItem(key);
    } catch {
      // A full or forbidden storage loses only the copy for a reload, not the message.
    }
    store.touch('outbox');
  }

  /** @param {string} key @returns {OutboxItem[]} */
  function read(key) {
    try {
      return JSON.parse(localStorage.getItem(key) ?? '[]');
    } catch {
      return [];
    }
  }

  /** @param {string} id */
  function drop(id) {
    const index = items.findIndex((item) => item.id === id);
    if (index < 0) return;
    items.splice(index, 1);
    keep();
  }

  /** @param {OutboxItem} item */
  async function transmit(item) {
    if (inFlight.has(item.id) || !connection.ready) return;
    inFlight.add(item.id);
    onSend();
    try {
      const { text, pasted, images = [] } = item;
      const payload = {
        text,
        ...(item.stackId && { stack_id: item.stackId }),
        ...(pasted.length && { pasted }),
        ...(images.length && { images: images.map((path) => ({ path })) }),
      };
      const ack = await connection.ask('mission', payload, { id: item.id, timeout: ANSWER_MS });
      if (ack.status !== 'duplicate') {
        const entry = store.conversation.said({ mission_id: item.id, text, pasted, at: Date.now() / 1000 });
        if (entry.status === 'sent' && ack.status === 'queued') entry.status = 'queued';
        store.touch('chat');
      }
      drop(item.id);
    } catch (problem) {
      // After a lost connection it stays pending: it is sent again, under the same id, when the link is back.
      if (codeOf(problem) !== 'offline') fail(item, wordsOf(problem));
    } finally {
      inFlight.delete(item.id);
    }
  }

  /** @param {OutboxItem} item @param {string} words */
  function fail(item, words) {
    Object.assign(item, { state: 'failed', problem: words });
    keep();
  }

  function flush() {
    for (const item of items) if (item.state === 'sending') void transmit(item);
  }

  /** A window keeps its lock while it lives; a duplicated tab finds the lock taken and gets a new name. */
  async function claim() {
    if (!navigator.locks) return;
    const held = await hold(tab);
    if (!held) {
      tab = newTab();
      items.length = 0;
      await hold(tab);
    }
    const { held: locks } = await navigator.locks.query();
    const alive = new Set(locks?.map((lock) => lock.name));
    for (const key of Object.keys(localStorage)) {
      if (!key.startsWith(PREFIX) || key === PREFIX + tab || alive.has(key)) continue;
      for (const item of read(key))
        if (!items.some((known) => known.id === item.id))
          items.push({ ...item, state: 'failed', problem: LEFT_BEHIND });
      localStorage.removeItem(key);
    }
    keep();
  }

  /** @param {string} name @returns {Promise<boolean>} */
  function hold(name) {
    const abort = new AbortController();
    const clock = setTimeout(() => abort.abort(), LOCK_MS);
    return new Promise((resolve) => {
      navigator.locks
        .request(PREFIX + name, { signal: abort.signal }, () => {
          clearTimeout(clock);
          resolve(true);
          return new Promise(() => {});
        })
        .catch(() => resolve(false));
    });
  }

  items.push(...read(PREFIX + tab));
  void claim();
  const taken = () => {
    for (const item of [...items]) if (store.conversation.find(item.id)) drop(item.id);
  };
  store.listen('chat_said', taken);
  store.listen('state_sync', taken);
  store.listen('auth_ok', flush);

  return {
    items,
    /**
     * Sends a text; returns an error message if it cannot be sent at all.
     * @param {string} text
     * @param {string | null} [stackId]
     * @param {Span[]} [pasted]  what of it was pasted
     * @param {string[]} [images]  paths of pictures
     */
    submit(text, stackId = null, pasted = [], images = []) {
      const problem = refusal(text, store.state.limits);
      if (problem) return problem;
      /** @type {OutboxItem} */
      const item = {
        id: makeId(),
        text,
        pasted,
        images,
        stackId,
        state: 'sending',
        problem: null,
        at: Date.now() / 1000,
      };
      items.push(item);
      keep();
      void transmit(item);
      return null;
    },
    /** @param {string} id */
    retry(id) {
      const item = items.find((each) => each.id === id);
      if (!item) return;
      Object.assign(item, { state: 'sending', problem: null });
      keep();
      void transmit(item);
    },
    remove: drop,
    /**
     * Withdraws a waiting message; rejects with a Problem if its turn has begun.
     * @param {string} missionId
     */
    async takeBack(missionId) {
      await connection.ask('interrupt', { mission_id: missionId });
      store.conversation.remove(missionId);
      store.touch('chat');
    },
  };
}

const encoder = new TextEncoder();

/** @param {string} text @param {Limits} limits */
function refusal(text, limits) {
  if (text.length > limits.mission_chars) {
    const [has, fit] = [text.length, limits.mission_chars].map((count) => count.toLocaleString());
    const words = `This message has ${has} characters; ${fit} fit. Shorten it, or send it as a file.`;
    return `${words} Nothing was lost: it is still in the field.`;
  }
  // The envelope and escapes need space beside the text.
  if (encoder.encode(JSON.stringify(text)).length > limits.frame_bytes - 2048)
    return 'This message is too large to be sent. Shorten it, or send it as a file.';
  return null;
}
