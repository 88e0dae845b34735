// What the state of a key says, in words.

import { duration, printable } from './format.js';

/** unlimited is what a limit is called that lets pass whatever is asked for. */
export const unlimited = 'unlimited';

// The limit that refuses the next request for longest: never is longer than anything.
const worst = (k) =>
  k.limits
    .filter((l) => !l.allowed)
    .sort((a, b) => Number(b.retry_after < 0) - Number(a.retry_after < 0) || b.retry_after - a.retry_after)[0];

/** refusedFor is for how many seconds the limits of a key refuse its next request. */
export function refusedFor(k) {
  const limit = worst(k);
  if (!limit) return 0;
  return limit.retry_after < 0 ? Infinity : limit.retry_after;
}

/** sentence says whether the next request of a key passes. */
export function sentence(k) {
  if (k.locked_for) return `Shut out for ${duration(k.locked_for)}.`;
  const bad = worst(k);
  if (bad) {
    const by = k.limits.length > 1 ? ` by limit ${printable(bad.name)}` : '';
    const wait = bad.retry_after < 0 ? 'no wait helps' : `retry after ${duration(bad.retry_after)}`;
    return `The next request is refused${by}: ${wait}.`;
  }
  if (k.override?.unlimited) return 'It passes, whatever it asks for.';
  return k.limits.some((l) => l.tracked) ? 'The next request is granted.' : 'Nothing is kept of it: its whole limit is left.';
}
