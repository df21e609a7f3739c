// Sprite as an app of its own, where the browser offers that.

/**
 * What a browser says that would install the page (https://wicg.github.io/manifest-incubations/).
 * @typedef {Event & { prompt(): Promise<unknown> }} InstallEvent
 */

/** Keeps the browser's offer, which it makes early and once. */
export function createInstall() {
  /** @type {InstallEvent | null} */
  let offer = null;
  addEventListener('beforeinstallprompt', (event) => {
    event.preventDefault();
    offer = /** @type {InstallEvent} */ (event);
  });
  addEventListener('appinstalled', () => {
    offer = null;
  });
  return {
    isOffered: () => offer !== null,
    /** Has the browser ask the person; an offer is good for one question. */
    async ask() {
      const mine = offer;
      offer = null;
      await mine?.prompt();
    },
  };
}
