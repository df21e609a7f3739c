// The page's side of the service worker: registers it, and opens the targets of notifications.

/** @import { Page } from '../types/page.js' */

const ADDRESS = '/sw.js';
const PLACE = /^#(?<kind>question|mission)=(?<id>.+)$/;
const IDLE_MS = 2000;

/**
 * Registers the worker when the page is idle, and handles clicked notifications.
 * @param {Page} page
 */
export function startServiceWorker(page) {
  follow(page);
  const { serviceWorker } = navigator;
  // Browsers offer it only on secure origins: https, and this machine.
  if (!serviceWorker) return;
  serviceWorker.addEventListener('message', (event) => {
    if (typeof event.data?.go === 'string') go(page, event.data.go);
  });
  serviceWorker.startMessages();
  const register = () => {
    serviceWorker
      .register(trusted(), { scope: '/', updateViaCache: 'none' })
      .catch((error) => page.toast({ text: `The page could not be kept for use without a network: ${error.message}` }));
    void import('./notifications.js').then(({ keepUp }) => keepUp());
  };
  if ('requestIdleCallback' in window) requestIdleCallback(register, { timeout: IDLE_MS });
  else setTimeout(register, IDLE_MS);
  document.addEventListener('visibilitychange', () => void clear());
  void clear();
}

/** Returns the worker's address for the page's Trusted Types policy, which allows only this script. */
function trusted() {
  /** @type {{ createPolicy(name: string, rules: object): { createScriptURL(url: string): string } } | undefined} */
  const factory = Reflect.get(globalThis, 'trustedTypes');
  /** @param {string} url */
  const createScriptURL = (url) => {
    if (url !== ADDRESS) throw new TypeError(`${url} is no service worker of this page`);
    return url;
  };
  return factory ? factory.createPolicy('service-worker', { createScriptURL }).createScriptURL(ADDRESS) : ADDRESS;
}

/** Closes notifications while the person looks at the page. */
async function clear() {
  if (document.visibilityState !== 'visible') return;
  const registration = await navigator.serviceWorker.getRegistration();
  for (const notification of (await registration?.getNotifications()) ?? []) notification.close();
}

/**
 * Goes to the place in the address once the conversation is loaded, and resets the address.
 * @param {Page} page
 */
function follow(page) {
  const { hash } = location;
  if (!PLACE.test(hash)) return;
  history.replaceState(null, '', location.pathname + location.search);
  if (page.store.state.loaded) return go(page, hash);
  const stop = page.store.subscribe(['loaded'], () => {
    if (!page.store.state.loaded) return;
    stop();
    go(page, hash);
  });
}

/** @param {Page} page @param {string} hash */
function go(page, hash) {
  const { kind, id } = PLACE.exec(hash)?.groups ?? {};
  if (kind === 'question') page.openQuestion();
  else if (kind === 'mission' && id) void page.openMission(decoded(id));
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
