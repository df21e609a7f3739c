// The service worker: keeps the page's own files, so that the page opens without a network, and shows notifications.
//
// Knows nothing of what is said. It keeps the files that are listed here and no answer of anybody's: everything else
// goes to the network as if there were no worker.

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));

/** The version of the page's files, and their names: both are filled in by the bridge that serves this. */
const VERSION = '';
/** @type {string[]} */
const FILES = [];

const PREFIX = 'sprite-shell-';
const CACHE = PREFIX + VERSION;
const FOLDER = `/-/${VERSION}/`;
const KEPT = new Set(FILES.map((name) => FOLDER + name));
/** A network that says nothing for so long is taken for none; the page itself then says how the connection is. */
const NETWORK_MS = 5000;
const NOTHING_TOLD = { key: 'sprite', kind: 'ended', title: 'Sprite has something for you', body: '', at: 0, url: '/' };

/**
 * What the bridge sends: see bridge/notify/push.py. `at` is in seconds, `url` a place on the page.
 * @typedef {{ key: string, kind: string, title: string, body: string, at: number, url: string }} Notice
 */
/** @typedef {Notice & { request_id?: string, allow?: boolean }} Told */
/** @typedef {{ action: string, title: string }} Action */
/** @typedef {NotificationOptions & { renotify?: boolean, timestamp?: number, actions?: Action[] }} Look */

// --- the page's files ---

async function install() {
  const cache = await caches.open(CACHE);
  const page = await fetch('/', { cache: 'no-cache' });
  // Of another version, or the words that one has to log in: the next visit tries again.
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
 * A file of this version never changes.
 * @param {Request} request
 */
async function kept(request) {
  const cache = await caches.open(CACHE);
  return (await cache.match(request.url)) ?? fetch(request);
}

/**
 * The page as the bridge has it now, which may be newer, or say that one has to log in; without the bridge, ours.
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
    // Above that, a proxy says that the bridge behind it is not there.
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
 * Shows what was sent, unless a page is being looked at, which says it itself.
 * @param {Told} told
 */
async function show(told) {
  if (told.kind !== 'test' && (await pages()).some((page) => page.visibilityState === 'visible')) return;
  const isQuestion = told.request_id !== undefined;
  /** @type {Action[]} */
  const actions = isQuestion ? [{ action: 'deny', title: 'Don’t allow' }] : [];
  if (told.kind === 'paused') actions.push({ action: 'go-on', title: 'Go on' });
  // Only what the bridge says is to be seen whole here.
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
 * A click on a notification, or on one of its buttons.
 * @param {Notification} notification
 * @param {string} action
 */
async function clicked(notification, action) {
  /** @type {Told} */
  const told = notification.data ?? NOTHING_TOLD;
  notification.close();
  if (told.request_id && (action === 'allow' || action === 'deny'))
    return answer(told, '/push/permission', { request_id: told.request_id, decision: action });
  if (told.kind === 'paused' && action === 'go-on') return answer(told, '/push/go-on', {});
  return open(told.url);
}

/**
 * Gives the person's word; says so where it did not count.
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
    // No network, or an answer of somebody in between.
  }
  const look = {
    body: words,
    // Not the tag of the one that was just closed: a browser may close what comes under the same right after.
    tag: `${told.key}:answer`,
    icon: `${FOLDER}icons/icon-192.png`,
    data: { ...NOTHING_TOLD, url: told.url },
  };
  await worker.registration.showNotification('Your answer did not count', look);
}

/**
 * Brings the page to the front at a place of its own, or opens it there.
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
 * The browser has a new address for us, or wants one to be made.
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

/**
 * @param {string} method
 * @param {unknown} body
 * @returns {RequestInit}
 */
const json = (method, body) => ({
  method,
  headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
  body: JSON.stringify(body),
});

/**
 * @param {PushMessageData | null} data
 * @returns {Told}
 */
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
