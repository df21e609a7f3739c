// Install Sprite as an app, if the browser offers it.

/**
 * The event with which a browser offers to install the page (https://wicg.github.io/manifest-incubations/).
 * @typedef {Event & { prompt(): Promise<unknown> }} InstallEvent
 */

/** Keeps the browser's offer, which comes early and only once. */
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
    /** Shows the browser's install prompt; an offer is valid for one prompt. */
    async ask() {
      const mine = offer;
      offer = null;
      await mine?.prompt();
    },
  };
}
