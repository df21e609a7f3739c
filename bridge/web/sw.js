// The service worker: caches the page's own files, so that the page opens without a network, and shows notifications.
//
// It sees no messages. It caches only the files listed here and no other answers: other requests go to the network as
// if there were no worker.

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));

/** The version and names of the page's files; the bridge that serves this file fills in both. */
const VERSION = '';
/** @type {string[]} */
const FILES = [];

const PREFIX = 'sprite-shell-';
const CACHE = PREFIX + VERSION;
const FOLDER = `/-/${VERSION}/`;
const KEPT = new Set(FILES.map((name) => FOLDER + name));
/** A network without an answer for this long counts as missing; the page then shows the state of the connection. */
const NETWORK_MS = 5000;
const NOTHING_TOLD = { key: 'sprite', kind: 'ended', title: 'Sprite has something for you', body: '', at: 0, url: '/' };

/**
 * The payload from the bridge: see bridge/notify/push.py. `at` is in seconds, `url` a place on the page.
 * @typedef {{ key: string, kind: string, title: string, body: string, at: number, url: string }} Notice
 */
/** @typedef {Notice & { request_id?: string, allow?: boolean, raises?: boolean }} Told */
/** @typedef {{ action: string, title: string }} Action */
/** @typedef {NotificationOptions & { renotify?: boolean, timestamp?: number, actions?: Action[] }} Look */

// --- the page's files ---

async function install() {
  const cache = await caches.open(CACHE);
  const page = await fetch('/', { cache: 'no-cache' });
  // Another version, or the login page: the next visit retries.
  if (!page.ok || !(await page.clone().text()).includes(FOLDER)) throw new Error('the page is not of this version');
  await cache.addAll([...KEPT]);
  await cache.put('/', page);
  await worker.skipWaiting();
}

async function activate() {
  for (const name of await caches.keys()) if (name.startsWith(PREFIX) && name !== CACHE) await caches.delete(name);
  await worker.clients.claim();
}

/**
 * Returns a file of this version, which never changes.
 * @param {Request} request
 */
async function kept(request) {
  const cache = await caches.open(CACHE);
  return (await cache.match(request.url)) ?? fetch(request);
}

/**
 * Returns the page from the bridge, which may be newer or ask for a login; without the bridge, the cached one.
 * @param {Request} request
 */
async function opened(request) {
  const cache = await caches.open(CACHE);
  const own = await cache.match('/');
  /** @type {Promise<null>} */
  const late = new Promise((resolve) => setTimeout(() => resolve(null), NETWORK_MS));
  const asked = fetch(request);
  if (!own) return asked;
  try {
    const answer = await Promise.race([asked, late]);
    // 5xx: a proxy reports that the bridge is unreachable.
    if (answer && answer.status < 500) return answer;
  } catch {
    // No network.
  }
  return own;
}

worker.addEventListener('install', (event) => event.waitUntil(install()));
worker.addEventListener('activate', (event) => event.waitUntil(activate()));
worker.addEventListener('fetch', (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== 'GET' || url.origin !== location.origin) return;
  if (request.mode === 'navigate') {
    if (url.pathname === '/') event.respondWith(opened(request));
  } else if (KEPT.has(url.pathname)) event.respondWith(kept(request));
});

// --- notifications ---

const pages = () => worker.clients.matchAll({ type: 'window', includeUncontrolled: true });

/**
 * Shows a notification, unless a visible page already shows the event.
 * @param {Told} told
 */
async function show(told) {
  if (told.kind !== 'test' && (await pages()).some((page) => page.visibilityState === 'visible')) return;
  const isQuestion = told.request_id !== undefined;
  /** @type {Action[]} */
  const actions = isQuestion ? [{ action: 'deny', title: 'Don’t allow' }] : [];
  if (told.kind === 'paused') actions.push({ action: 'go-on', title: 'Go on' });
  if (told.raises) actions.push({ action: 'go-on', title: 'Raise today’s limit and go on' });
  // Only if the bridge says that the notification shows everything.
  if (isQuestion && told.allow) actions.unshift({ action: 'allow', title: 'Allow once' });
  /** @type {Look} */
  const look = {
    body: told.body,
    tag: told.key,
    renotify: true,
    icon: `${FOLDER}icons/icon-192.png`,
    badge: `${FOLDER}icons/badge-96.png`,
    requireInteraction: isQuestion || told.kind === 'paused',
    actions,
    data: told,
  };
  if (told.at) look.timestamp = told.at * 1000;
  await worker.registration.showNotification(told.title, look);
}

/**
 * Handles a click on a notification or one of its buttons.
 * @param {Notification} notification
 * @param {string} action
 */
async function clicked(notification, action) {
  /** @type {Told} */
  const told = notification.data ?? NOTHING_TOLD;
  notification.close();
  if (told.request_id && (action === 'allow' || action === 'deny'))
    return answer(told, '/push/permission', { request_id: told.request_id, decision: action });
  if (action === 'go-on') return answer(told, '/push/go-on', { raise_limit: told.raises === true });
  return open(told.url);
}

/**
 * Sends the person's answer; reports if it was not accepted.
 * @param {Told} told
 * @param {string} place
 * @param {unknown} body
 */
async function answer(told, place, body) {
  let words = 'There is no connection. Open Sprite to answer.';
  try {
    const response = await fetch(place, json('POST', body));
    if (response.ok) return;
    words = response.status === 401 ? 'You are signed out in this browser.' : (await response.json()).error.message;
  } catch {
    // No network, or an answer from a proxy.
  }
  const look = {
    body: words,
    // Not the tag of the notification that was just closed: a browser may close another one with the same tag.
    tag: `${told.key}:answer`,
    icon: `${FOLDER}icons/icon-192.png`,
    data: { ...NOTHING_TOLD, url: told.url },
  };
  await worker.registration.showNotification('Your answer did not count', look);
}

/**
 * Focuses the page at a place, or opens it there.
 * @param {string} place
 */
async function open(place) {
  const url = new URL(place, location.origin);
  const target = url.origin === location.origin ? url : new URL('/', location.origin);
  const page = (await pages()).find((each) => new URL(each.url).pathname === '/');
  if (!page) return worker.clients.openWindow(target.href);
  page.postMessage({ go: target.hash });
  return page.focus();
}

/**
 * Sends a new push subscription to the bridge, creating one if needed.
 * @param {PushSubscription | null} before
 * @param {PushSubscription | null} after
 */
async function renew(before, after) {
  let made = after;
  if (!made) {
    const key = before?.options.applicationServerKey ?? (await (await fetch('/push/key')).json()).key;
    made = await worker.registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  }
  const { ok } = await fetch('/push/subscriptions', json('POST', made));
  if (ok && before && before.endpoint !== made.endpoint)
    await fetch('/push/subscriptions', json('DELETE', { endpoint: before.endpoint }));
}

/** @param {string} method @param {unknown} body @returns {RequestInit} */
const json = (method, body) => ({
  method,
  headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
  body: JSON.stringify(body),
});

/** @param {PushMessageData | null} data @returns {Told} */
function told(data) {
  try {
    return { ...NOTHING_TOLD, ...data?.json() };
  } catch {
    return NOTHING_TOLD;
  }
}

worker.addEventListener('push', (event) => event.waitUntil(show(told(event.data))));
worker.addEventListener('notificationclick', (event) => event.waitUntil(clicked(event.notification, event.action)));
worker.addEventListener('pushsubscriptionchange', (event) =>
  event.waitUntil(renew(event.oldSubscription, event.newSubscription)),
);
