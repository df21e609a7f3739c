// The person's time zone, sent to the sprite so that "tomorrow at 9" has a meaning.
//
// Two browsers in two zones must not alternate. A browser sends its zone with its first message, because the person is
// there then. It sends it unprompted only if no zone is set, or if its own has changed since it last sent it.

/** @import { Connection, Store } from './types/page.js' */

const KEY = 'sprite.zone';
/** The zone of a sprite that was never given one. */
const UNTOLD = 'UTC';

/** @param {Store} store @param {Pick<Connection, 'ask'>} connection */
export function createZone(store, connection) {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let hasSpoken = false;

  async function tell() {
    if (!here) return;
    try {
      await connection.ask('system', { action: 'zone', tz: here });
      localStorage.setItem(KEY, here);
    } catch {
      // An unknown zone or a broken connection: the next message sends it again.
      hasSpoken = false;
    }
  }

  store.listen('state_sync', () => {
    const told = localStorage.getItem(KEY);
    if (store.state.tz !== here && (told === null ? store.state.tz === UNTOLD : told !== here)) void tell();
  });

  return {
    /** Called before a message is sent. Another page may have changed the zone without notice. */
    spoke() {
      if (hasSpoken || !store.state.loaded) return;
      hasSpoken = true;
      void tell();
    },
  };
}
