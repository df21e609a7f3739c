// Whether this browser gets notifications while no page is open, according to browser and bridge. Knows no DOM.
//
// A person turns them on for one browser and one login. Afterwards the subscription is kept up to date: the push
// service may change its address, and the bridge its key.

import { Problem } from '../problem.js';

/** @typedef {'unsupported' | 'denied' | 'off' | 'on'} State */
/** @typedef {{ words: boolean }} Choices */

const KEY = 'sprite.notifications';
const READY_MS = 15_000;

/** Whether this browser supports notifications on this page. */
export const isSupported = () =>
  'serviceWorker' in navigator && 'PushManager' in globalThis && 'Notification' in globalThis;

/** @returns {Promise<State>} */
export async function state() {
  if (!isSupported()) return 'unsupported';
  if (Notification.permission === 'denied') return 'denied';
  return isWanted() && Notification.permission === 'granted' && (await present()) ? 'on' : 'off';
}

/** Requests the browser's permission, so it must be called by a click. Rejects with a Problem. */
export async function turnOn() {
  if ((await Notification.requestPermission()) !== 'granted')
    throw new Problem('denied', 'The browser was not allowed to show notifications.');
  await subscribed();
  localStorage.setItem(KEY, 'on');
}

/** Stops notifications in this browser, even if the bridge is unreachable. */
export async function turnOff() {
  localStorage.removeItem(KEY);
  const subscription = isSupported() ? await present() : null;
  if (!subscription) return;
  await subscription.unsubscribe();
  // The bridge also notices by itself that the address is gone.
  await askBridge('DELETE', '/push/subscriptions', { endpoint: subscription.endpoint }).catch(() => null);
}

/** Asks the bridge for a test notification to this browser. */
export async function test() {
  const subscription = await subscribed();
  await askBridge('POST', '/push/test', { endpoint: subscription.endpoint });
}

/** Keeps the person's choice: renews a lost subscription, and removes one that a former user left. */
export async function keepUp() {
  if (!isSupported()) return;
  try {
    if (isWanted() && Notification.permission === 'granted') await subscribed();
    else if (!isWanted()) await turnOff();
  } catch {
    // The next visit retries, and the dialog shows the error.
  }
}

/** @returns {Promise<Choices>} */
export const choices = async () => (await askBridge('GET', '/notify/settings')).json();

/** @param {Choices} chosen */
export const choose = (chosen) => askBridge('PUT', '/notify/settings', chosen);

// --- inside ---

const isWanted = () => localStorage.getItem(KEY) === 'on';

async function present() {
  const registration = await navigator.serviceWorker.getRegistration();
  return (await registration?.pushManager.getSubscription()) ?? null;
}

/** Returns this browser's subscription, created if needed and known to the bridge. */
async function subscribed() {
  const registration = await ready();
  const { key } = await (await askBridge('GET', '/push/key')).json();
  let subscription = await registration.pushManager.getSubscription();
  if (subscription && text(subscription.options.applicationServerKey) !== key) {
    await subscription.unsubscribe();
    subscription = null;
  }
  try {
    subscription ??= await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  } catch (error) {
    const why = error instanceof Error ? ` (${error.message})` : '';
    throw new Problem('push', `This browser could not reach its push service${why}.`);
  }
  await askBridge('POST', '/push/subscriptions', subscription);
  return subscription;
}

/** @returns {Promise<ServiceWorkerRegistration>} */
function ready() {
  return new Promise((resolve, reject) => {
    const words = 'This page is not ready for notifications. Reload the page, and try again.';
    setTimeout(() => reject(new Problem('timeout', words)), READY_MS);
    void navigator.serviceWorker.ready.then(resolve);
  });
}

/**
 * Encodes a key as the bridge does: base64url.
 * @param {ArrayBuffer | null} bytes
 */
const text = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes ?? new ArrayBuffer(0))))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');

/**
 * Sends a request to the bridge; a refusal becomes a Problem with its message.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 */
export async function askBridge(method, path, body) {
  const headers = { Accept: 'application/json', 'Content-Type': 'application/json' };
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, { method, headers, cache: 'no-store', body: body ? JSON.stringify(body) : null });
  } catch {
    throw new Problem('offline', 'The bridge does not answer. Try again when it is back.');
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new Problem(said?.error?.code ?? 'refused', said?.error?.message ?? 'The bridge refused the request.');
}
