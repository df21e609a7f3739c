// Format numbers and times, with the browser's digits and English words.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const isTwelve = new Intl.DateTimeFormat(undefined, { hour: 'numeric' }).resolvedOptions().hour12;
const time = new Intl.DateTimeFormat(undefined, { hour: isTwelve ? 'numeric' : '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const dayOfYear = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });

/** @param {number} value */
export const number = (value) => whole.format(value);

/** @param {number} count @param {string} noun @param {string} [many] */
export const plural = (count, noun, many = `${noun}s`) => `${number(count)} ${count === 1 ? noun : many}`;

/**
 * Formats bytes in units of 1024.
 * @param {number} count
 */
export function bytes(count) {
  if (count < 1024) return plural(count, 'byte');
  const units = ['KB', 'MB', 'GB'];
  let value = count / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : whole.format(value)} ${units[unit] ?? ''}`;
}

/**
 * Formats US dollars: cents, and amounts below a cent with two significant digits.
 * @param {number} usd
 */
export function money(usd) {
  if (usd === 0 || usd >= 0.01) return `$${usd.toFixed(2)}`;
  return usd < 0.0001 ? 'under $0.0001' : `$${usd.toFixed(4)}`;
}

/**
 * Formats milliseconds as `0.8 s`, `12 s`, `2 min 5 s`.
 * @param {number} ms
 */
export function duration(ms) {
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${Math.round(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * Formats seconds as a running clock: `0:12`, `1:02:03`.
 * @param {number} seconds
 */
export function clock(seconds) {
  const total = Math.max(0, Math.floor(seconds));
  /** @param {number} value */
  const two = (value) => String(value).padStart(2, '0');
  const hours = Math.floor(total / 3600);
  const minutes = Math.floor(total / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(total % 60)}` : `${minutes}:${two(total % 60)}`;
}

/**
 * Formats Unix seconds as `14:03`, `yesterday 14:03`, `3 Nov 14:03`, `3 Nov 2025`.
 * @param {number} at
 */
export function when(at) {
  const date = new Date(at * 1000);
  const now = new Date();
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  if (at * 1000 >= midnight) return time.format(date);
  if (at * 1000 >= midnight - 86_400_000) return `yesterday ${time.format(date)}`;
  return date.getFullYear() === now.getFullYear() ? `${day.format(date)} ${time.format(date)}` : dayOfYear.format(date);
}

const weekday = new Intl.DateTimeFormat('en', { weekday: 'short' });
/** @type {Record<number, string>} */
const NEAR_DAYS = { '-1': 'yesterday', 0: 'today', 1: 'tomorrow' };

/**
 * Formats past or future Unix seconds as `today 14:03`, `tomorrow 09:00`, `Tue 09:00` within a week, `3 Nov 14:03`.
 * @param {number} at
 * @param {number} [now]
 */
export function moment(at, now = Date.now() / 1000) {
  const date = new Date(at * 1000);
  const today = new Date(now * 1000);
  const days = Math.round((midnightOf(date) - midnightOf(today)) / 86_400_000);
  const named = NEAR_DAYS[days] ?? (Math.abs(days) < 7 ? weekday.format(date) : null);
  const isThisYear = date.getFullYear() === today.getFullYear();
  return `${named ?? (isThisYear ? day : dayOfYear).format(date)} ${time.format(date)}`;
}

/**
 * Formats `09:00` in the browser's locale.
 * @param {string} wall
 */
export function clockTime(wall) {
  const [hour = 0, minute = 0] = wall.split(':').map(Number);
  return time.format(new Date(2000, 0, 1, hour, minute));
}

/** @param {Date} date */
const midnightOf = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();

/**
 * Formats Unix seconds for a `datetime` attribute.
 * @param {number} at
 */
export const iso = (at) => new Date(at * 1000).toISOString();

/**
 * Formats Unix seconds as a distance: `just now`, `5 min ago`, `3 h ago`, `2 days ago`, else the day.
 * @param {number} at
 */
export function ago(at) {
  const seconds = Date.now() / 1000 - at;
  if (seconds < 60) return 'just now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 7 * 86_400) return `${plural(Math.floor(seconds / 86_400), 'day')} ago`;
  return when(at);
}
