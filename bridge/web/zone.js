// Which time zone the person is in, told to the sprite: by it "tomorrow at 9" has a meaning.
//
// Two browsers in two zones must not take turns: one tells its zone with the first message sent from it, for the person
// is there then; and by itself only where nobody has said one yet, or where its own has changed since it last told.

/** @import { Connection, Store } from './types/page.js' */

const KEY = 'sprite.zone';
/** What a sprite goes by that was never told. */
const UNTOLD = 'UTC';

/**
 * @param {Store} store
 * @param {Pick<Connection, 'ask'>} connection
 */
export function createZone(store, connection) {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let hasSpoken = false;

  async function tell() {
    if (!here) return;
    try {
      await connection.ask('system', { action: 'zone', tz: here });
      localStorage.setItem(KEY, here);
    } catch {
      // A zone that the sprite does not know, or a connection that broke: the next message tells again.
      hasSpoken = false;
    }
  }

  store.listen('state_sync', () => {
    const told = localStorage.getItem(KEY);
    if (store.state.tz !== here && (told === null ? store.state.tz === UNTOLD : told !== here)) void tell();
  });

  return {
    /** A message is about to be sent from here. The zone may be another page's by now, of which nothing is heard. */
    spoke() {
      if (hasSpoken || !store.state.loaded) return;
      hasSpoken = true;
      void tell();
    },
  };
}
