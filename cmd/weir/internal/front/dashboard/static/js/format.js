// Numbers, times and names for people.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const dayFormat = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

/** count is a whole number with separators. */
export const count = (n) => (n === undefined || n === null ? '–' : whole.format(n));

/** compact is a number in few digits. */
export function compact(n) {
  if (n === undefined || n === null || !Number.isFinite(n)) return '–';
  if (n === 0) return '0';
  return Math.abs(n) < 10 ? String(Math.round(n * 10) / 10) : short.format(n).replace('K', 'k');
}

/** rate is so much a second. */
export const rate = (n) => (n === undefined || n === null ? '–' : `${compact(n)}/s`);

/** share is a part in percent. */
export function share(part, all) {
  if (!all) return '–';
  const percent = (100 * part) / all;
  if (percent === 0) return '0 %';
  return percent < 0.1 ? '< 0.1 %' : `${percent < 10 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

/** bytes is an amount of memory. */
export function bytes(n) {
  if (n === undefined || n === null) return '–';
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024 || unit === 'GiB') return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
  return '–';
}

/** duration is a time in seconds, of which -1 is never. */
export function duration(s) {
  if (s === undefined || s === null) return '–';
  if (s < 0) return 'never';
  if (s === 0) return '0 s';
  if (s < 1e-6) return `${Math.ceil(s * 1e9)} ns`;
  if (s < 1e-3) return `${trim(s * 1e6)} µs`;
  if (s < 1) return `${trim(s * 1e3)} ms`;
  if (s < 60) return `${trim(s)} s`;
  let rest = Math.ceil(s);
  const parts = [];
  for (const [unit, size] of [
    ['d', 86400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ]) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n) parts.push(`${n} ${unit}`);
  }
  return parts.slice(0, 2).join(' ');
}

function trim(n) {
  // Rounded up, so that who comes back then is never too early.
  const digits = n < 10 ? 2 : n < 100 ? 1 : 0;
  const scale = 10 ** digits;
  return String(Math.ceil(n * scale - 1e-9) / scale);
}

/** clock is the time of day of milliseconds or of text. */
export const clock = (t) => clockFormat.format(new Date(t));

/** zero tells whether a time of the server is none. */
export const zero = (t) => !t || t.startsWith('0001-');

/** moment is a time of the server: that of today without the day. */
export function moment(t) {
  if (zero(t)) return '–';
  const date = new Date(t);
  const today = new Date();
  const time = clockFormat.format(date);
  return date.toDateString() === today.toDateString() ? time : `${dayFormat.format(date)}, ${time}`;
}

/** printable shows what does not print, or would turn the text around, as an escape, so that no name can look like another. */
export function printable(text) {
  return String(text ?? '').replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** quoted is printable text, and a word for the empty one. */
export const quoted = (text) => (text === '' ? '(empty)' : printable(text));

const reasons = {
  none: 'allowed',
  limited: 'over the limit',
  never: 'costs more than the limit',
  'queue-full': 'the queue is full',
  deadline: 'would wait too long',
  evicted: 'evicted from the queue',
  closed: 'the limit is closed',
  'table-full': 'too many keys',
  'soft-throttle': 'throttled',
  'hard-lockout': 'locked out',
  'tracking-cap': 'too many keys',
  unavailable: 'the store is unavailable',
  denied: 'denied by a rule',
};

/** reason is that of a decision in words. */
export const reason = (name) => reasons[name] ?? printable(name ?? '');
