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

/** sentence is what happens to the next request of a key. policy is that of the overview, if it is known. */
export function sentence(k, policy) {
  if (k.locked_for) return `Locked out for ${duration(k.locked_for)}.`;
  const bad = worst(k);
  if (bad) {
    const by = k.limits.length > 1 ? ` by limit ${printable(bad.name)}` : '';
    // A concurrency limit does not know when the next permit comes back.
    const wait = bad.retry_after && (bad.retry_after < 0 ? ': no wait helps' : `: retry after ${duration(bad.retry_after)}`);
    return `The next request is refused${by}${wait || ''}.`;
  }
  if (k.override?.unlimited) return 'The next request is allowed, whatever it asks for.';
  if (k.limits.some((l) => l.tracked)) return 'The next request is allowed.';
  // The key may be spelled otherwise than the policy does, and a key that is not tracked can be refused where no other has room.
  const full = policy?.max_keys && policy.keys >= policy.max_keys ? ' The table of keys is full: a new one may be refused.' : '';
  if (!policy) return `Nothing is kept of this key.${full}`;
  return policy.key
    ? `Nothing is kept of this key. Keys of this policy are ${printable(policy.key)}.${full}`
    : `Nothing is kept of this key. All requests of this policy share the key (empty).${full}`;
}
