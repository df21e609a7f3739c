// Describe due times and repeats in plain words. Pure; times are Unix seconds.

import { clockTime, moment } from '../format.js';

/** @import { ActionRow } from '../types/page.js' */

/** @type {Record<string, string>} */
const DAYS = {
  MO: 'Monday',
  TU: 'Tuesday',
  WE: 'Wednesday',
  TH: 'Thursday',
  FR: 'Friday',
  SA: 'Saturday',
  SU: 'Sunday',
};
const WEEK = Object.keys(DAYS);
const MONTHS = 'January February March April May June July August September October November December'.split(' ');
/** @type {Record<string, string>} */
const UNITS = { MINUTELY: 'minute', HOURLY: 'hour', DAILY: 'day', WEEKLY: 'week', MONTHLY: 'month', YEARLY: 'year' };
/** @type {Record<string, string>} */
const ORDINALS = { 1: 'first', 2: 'second', 3: 'third', 4: 'fourth', 5: 'fifth', '-1': 'last', '-2': 'last but one' };
/** Rule parts that can be described; a rule with another part is shown as it is. */
const SAID = new Set('FREQ INTERVAL BYDAY BYMONTHDAY BYMONTH BYHOUR BYMINUTE COUNT UNTIL WKST'.split(' '));

/** This browser's time zone, as an IANA name. */
export const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

/**
 * Returns the wall clock of a zone at a moment: `2026-12-01` and `09:00`.
 * @param {number} at
 * @param {string} zone
 */
export function wallClock(at, zone) {
  /** @type {Intl.DateTimeFormatOptions} */
  const two = { month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
  const format = new Intl.DateTimeFormat('en-US', { timeZone: known(zone), year: 'numeric', ...two });
  const parts = Object.fromEntries(format.formatToParts(at * 1000).map(({ type, value }) => [type, value]));
  return { day: `${parts.year}-${parts.month}-${parts.day}`, time: `${parts.hour}:${parts.minute}` };
}

/**
 * Returns `tomorrow 09:00` or `overdue since Tue 09:00`, with the time in the action's own zone if that differs.
 * @param {{ due: number, tz?: string | null }} action
 * @param {number} [now]
 */
export function dueWords({ due, tz }, now = Date.now() / 1000) {
  const words = due < now ? `overdue since ${moment(due, now)}` : moment(due, now);
  if (!tz) return words;
  const [here, there] = [wallClock(due, HERE), wallClock(due, tz)];
  if (here.day === there.day && here.time === there.time) return words;
  const day = here.day === there.day ? '' : `${there.day} `;
  return `${words} (${day}${clockTime(there.time)} in ${tz.replaceAll('_', ' ')})`;
}

/**
 * Returns a repeat as `every weekday at 08:00`; null if there is none.
 * @param {Pick<ActionRow, 'rrule' | 'due' | 'tz'>} action
 */
export function repeatWords({ rrule, due, tz }) {
  if (!rrule) return null;
  const rule = partsOf(rrule);
  const unit = UNITS[rule.FREQ ?? ''];
  if (unit === undefined || Object.keys(rule).some((name) => !SAID.has(name))) return `repeats by ${rrule}`;
  const within = rule.FREQ === 'HOURLY' || rule.FREQ === 'MINUTELY';
  const times = timesOf(rule, within ? null : due, tz ?? HERE);
  const words = [every(Number(rule.INTERVAL ?? 1), unit, rule), times && `at ${times}`, rule.COUNT && timesIn(rule)];
  if (rule.UNTIL) words.push(`until ${rule.UNTIL.replace(/^(\d{4})(\d\d)(\d\d).*$/u, '$1-$2-$3')}`);
  return words.filter(Boolean).join(' ');
}

/**
 * Returns a repeat without its hour and minute if they equal the time of `due`, so that changing that time changes
 * every repeat. Otherwise returns it unchanged.
 * @param {Pick<ActionRow, 'rrule' | 'due' | 'tz'> | null} action
 */
export function untimed(action) {
  const { rrule, due, tz } = action ?? {};
  if (!rrule || typeof due !== 'number') return rrule ?? '';
  const { FREQ = '', BYHOUR, BYMINUTE, BYSECOND = '0' } = partsOf(rrule);
  const [hour, minute] = wallClock(due, tz ?? HERE)
    .time.split(':')
    .map(Number);
  const isOnce = Number(BYHOUR) === hour && Number(BYMINUTE ?? minute) === minute && Number(BYSECOND) === 0;
  if (!isOnce || FREQ === 'HOURLY' || FREQ === 'MINUTELY' || FREQ === 'SECONDLY') return rrule;
  const parts = rrule.split(';').filter((part) => !/^\s*BY(?:HOUR|MINUTE|SECOND)\s*=/iu.test(part));
  return parts.join(';');
}

/**
 * Sorts actions by due time, then priority, then the newest first.
 * @param {ActionRow[]} actions
 */
export const inOrder = (actions) =>
  actions.toSorted(
    (a, b) => (a.due ?? Infinity) - (b.due ?? Infinity) || b.priority - a.priority || b.created_at - a.created_at,
  );

/** @param {string} rrule @returns {Record<string, string>} */
const partsOf = (rrule) =>
  Object.fromEntries(
    rrule
      .toUpperCase()
      .split(';')
      .map((part) => part.split('=', 2).map((text) => text.trim()))
      .filter(([name]) => name),
  );

/** @param {number} interval @param {string} unit @param {Record<string, string>} rule */
function every(interval, unit, rule) {
  const days = (rule.BYDAY ?? '').split(',').filter(Boolean);
  const plain = days.filter((day) => day in DAYS).toSorted((a, b) => WEEK.indexOf(a) - WEEK.indexOf(b));
  const isPlain = days.length === plain.length;
  const months = list(
    (rule.BYMONTH ?? '')
      .split(',')
      .filter(Boolean)
      .map((month) => MONTHS[Number(month) - 1] ?? month),
  );
  const inMonths = months && ` in ${months}`;
  const base = interval === 1 ? `every ${unit}` : `every ${interval} ${unit}s`;
  if (rule.BYMONTHDAY) return `${base} on day ${list(rule.BYMONTHDAY.split(',').map(monthDay))}${inMonths}`;
  if (days.length === 0) return base + inMonths;
  const isWeekly = unit === 'week' || unit === 'day';
  if (isPlain && isWeekly && interval === 1) return byDays(plain) + inMonths;
  const named = isPlain ? plain.map((day) => DAYS[day] ?? day) : days.map(dayOfMonth);
  return `${base} on ${list(named)}${inMonths}`;
}

/** @param {string[]} days */
function byDays(days) {
  const key = days.join();
  if (days.length === 7) return 'every day';
  if (key === 'MO,TU,WE,TH,FR') return 'every weekday';
  if (key === 'SA,SU') return 'every Saturday and Sunday';
  return `every ${list(days.map((day) => DAYS[day] ?? day))}`;
}

/** @param {string} text */
function dayOfMonth(text) {
  const day = DAYS[text.slice(-2)] ?? text;
  const ordinal = ORDINALS[String(Number(text.slice(0, -2) || 0))];
  return ordinal ? `the ${ordinal} ${day}` : day;
}

/** @param {string} text */
const monthDay = (text) => (Number(text) < 0 ? `${text} from the end`.replace('-1 from the end', 'last') : text);

/** @param {Record<string, string>} rule */
const timesIn = ({ COUNT }) => (COUNT === '1' ? 'once' : `${COUNT} times`);

/** @param {Record<string, string>} rule @param {number | null | undefined} due @param {string} zone */
function timesOf({ BYHOUR, BYMINUTE }, due, zone) {
  if (!BYHOUR) return typeof due === 'number' ? clockTime(wallClock(due, zone).time) : '';
  const minutes = (BYMINUTE ?? '0').split(',');
  return list(BYHOUR.split(',').flatMap((hour) => minutes.map((minute) => clockTime(`${hour}:${minute}`))));
}

/** @param {string[]} words */
const list = (words) => (words.length < 2 ? (words[0] ?? '') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`);

/** @param {string} zone */
function known(zone) {
  try {
    return new Intl.DateTimeFormat('en-US', { timeZone: zone }).resolvedOptions().timeZone;
  } catch {
    // This browser does not know the zone.
    return 'UTC';
  }
}
