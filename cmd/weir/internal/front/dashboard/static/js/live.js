// What the server says each second, and what it has said in the last minutes.

import * as api from './api.js';

/** kept is how many seconds are remembered. */
export const kept = 300;

/** live is the state of the server as last heard. overview is null before the first word. */
export const live = { overview: null, state: 'connecting', history: empty() };

function empty() {
  return { time: [], total: lines(), latency: { p50: [], p99: [], p999: [] }, policies: new Map() };
}

function lines() {
  return { allowed: [], refused: [], queued: [] };
}

const listeners = { overview: new Set(), refusal: new Set(), audit: new Set(), state: new Set(), stale: new Set() };

/** on calls f with each of what name stands for: "overview", "refusal", "audit", "state" or "stale", until signal is aborted. */
export function on(name, f, signal) {
  listeners[name].add(f);
  signal?.addEventListener('abort', () => listeners[name].delete(f));
}

function tell(name, value) {
  for (const f of [...listeners[name]]) {
    try {
      f(value);
    } catch (error) {
      console.error(error);
    }
  }
}

function setState(state) {
  if (live.state === state) return;
  live.state = state;
  tell('state', state);
  tell('stale', silence());
}

// When the server was heard last, or the page was opened, and how far apart its last two words were.
let heard = Date.now();
let apart = 1000;

/**
 * silence is since when the server has not been heard, in milliseconds, and null as long as what is shown is that of now. Overviews come
 * each second, and less often if they are very large.
 */
export function silence() {
  const now = Date.now();
  const quiet = now - heard > Math.max(5000, 3 * apart);
  return quiet || live.state === 'lost' || live.state === 'locked' ? heard : null;
}

/** start listens to the server, for as long as the page lives. */
export function start() {
  setInterval(() => tell('stale', silence()), 500);
  api.events(
    '/v1/admin/events',
    (name, data) => {
      if (name === 'overview') hear(data);
      else if (listeners[name]) tell(name, data);
    },
    setState,
  );
}

/** hear takes in an overview. */
export function hear(now) {
  const before = live.overview;
  const at = Date.now();
  if (before) apart = Math.min(Math.max(at - heard, 1000), 60_000);
  heard = at;
  if (before && before.started !== now.started) live.history = empty();
  else if (before && new Date(now.now) <= new Date(before.now)) return;
  live.overview = now;
  if (before && before.started === now.started) remember(before, now);
  tell('overview', now);
  tell('stale', silence());
}

function remember(before, now) {
  const { history } = live;
  const seconds = (new Date(now.now) - new Date(before.now)) / 1000;
  const rate = (name, a, b) => Math.max(0, ((b[name] ?? 0) - (a[name] ?? 0)) / seconds);
  push(history.time, new Date(now.now) / 1000);

  const refused = rate('refused', before, now);
  push(history.total.refused, refused);
  push(history.total.allowed, Math.max(0, rate('requests', before, now) - refused - rate('canceled', before, now)));
  push(
    history.total.queued,
    now.policies.reduce((sum, p) => sum + (p.queued ?? 0), 0),
  );

  remembered.push(new Map(now.latency.buckets ?? []));
  if (remembered.length > 60) remembered.shift();
  const recent = lately();
  for (const [name, q] of [
    ['p50', 0.5],
    ['p99', 0.99],
    ['p999', 0.999],
  ])
    push(history.latency[name], quantile(recent, q));

  const earlier = new Map(before.policies.map((p) => [p.name, p]));
  const there = new Set();
  for (const policy of now.policies) {
    there.add(policy.name);
    let one = history.policies.get(policy.name);
    if (!one) {
      one = lines();
      for (const line of Object.values(one)) line.push(...Array(history.time.length - 1).fill(null));
      history.policies.set(policy.name, one);
    }
    const then = earlier.get(policy.name) ?? policy;
    push(one.allowed, rate('allowed', then, policy));
    push(one.refused, rate('refused', then, policy));
    push(one.queued, elsewhere(policy) ? null : (policy.queued ?? 0));
  }
  for (const name of history.policies.keys()) if (!there.has(name)) history.policies.delete(name);
}

/** elsewhere tells that a policy is not kept by the server alone, which does not know all of its keys then, and who waits for them. */
export const elsewhere = (p) => p.consistency !== 'local' || (p.durability ?? 'memory') !== 'memory';

function push(line, value) {
  line.push(value);
  if (line.length > kept) line.shift();
}

/** last is the latest value of a line, null if there is none. */
export const last = (line) => (line?.length ? line[line.length - 1] : null);

// The counts of latencies of the last minute.
const remembered = [];

/** lately are the buckets of decisions of the last minute: up to how many seconds, and how many. */
export function lately() {
  if (remembered.length < 2) return [];
  const [first, end] = [remembered[0], remembered[remembered.length - 1]];
  return [...end]
    .map(([upTo, n]) => [upTo, n - (first.get(upTo) ?? 0)])
    .filter(([, n]) => n > 0)
    .sort((a, b) => a[0] - b[0]);
}

/** quantile is the upper end of the bucket in which so much of the decisions end, null if there are none. */
export function quantile(buckets, q) {
  const all = buckets.reduce((sum, [, n]) => sum + n, 0);
  if (!all) return null;
  let sum = 0;
  for (const [upTo, n] of buckets) {
    sum += n;
    if (sum >= q * all) return upTo;
  }
  return null;
}
