// Overview: what the server does now, and in the last five minutes.

import * as api from '../api.js';
import { chart } from '../chart.js';
import { fill, h, link, morph } from '../dom.js';
import { input } from '../dialog.js';
import { bytes, compact, count, duration, moment, printable, rate, share } from '../format.js';
import { elsewhere, last, live, lately, on, quantile } from '../live.js';
import { facts, tiles } from '../table.js';
import { each, mode, policyLink, refresh } from './parts.js';
import { joined, refusalTable } from './refusals.js';

export const lines = [
  { label: 'allowed', colour: 'allowed', area: true },
  { label: 'refused', colour: 'refused', area: true },
  { label: 'queued', colour: 'queued', dash: true },
];

/** policyFormat says a value of a chart of a policy. */
export const policyFormat = (v) => rate(v).replace('/s', '');

// took is how long decisions take, which is not known before there are any.
const took = (seconds, now) => duration(now.latency.measured ? seconds : null);

export function overview(place, { signal }) {
  const numbers = tiles([
    ['allowed', 'Allowed', 'allowed'],
    ['refused', 'Refused', 'refused'],
    ['queued', 'Queued', 'queued'],
    ['locked', 'Locked out'],
    ['keys', 'Keys'],
    ['p99', 'Decision, p99'],
  ]);
  const all = chart({ title: 'All requests, each second', series: lines, format: policyFormat, signal, height: 190 });
  const latency = chart({
    title: 'Decisions take',
    format: duration,
    signal,
    height: 190,
    logarithmic: true,
    series: [
      { label: 'p50', colour: 'allowed' },
      { label: 'p99', colour: 'queued' },
      { label: 'p99.9', colour: 'refused', dash: true },
    ],
  });
  const many = input({
    name: 'many',
    label: 'Show',
    kind: 'choice',
    narrow: true,
    value: '8',
    changed: () => draw(live.overview),
    options: [
      ['8', 'the 8 busiest'],
      ['24', 'the 24 busiest'],
      ['100', 'the 100 busiest'],
    ],
  });
  const grid = h('div.charts');
  const latest = h('div');
  const since = h('div');
  fill(
    place,
    numbers.element,
    h('div.charts.wide', all.element, latency.element),
    h('section', { 'aria-labelledby': 'lately' }, h('h2', { id: 'lately' }, 'Refused just now'), latest),
    h(
      'section',
      { 'aria-labelledby': 'by-policy' },
      h('div.bar', h('h2', { id: 'by-policy' }, 'By policy, each second'), many.row),
      grid,
    ),
    h('section', { 'aria-labelledby': 'since' }, h('h2', { id: 'since' }, 'Since the start'), since),
  );

  const cards = new Map();
  const busiest = new Map(); // how busy each policy was when it was put in its place

  function choose(now) {
    const n = Number(many.value());
    const traffic = (p) => p.allowed + 10 * p.refused;
    const ranked = [...now.policies]
      .sort((a, b) => traffic(b) - traffic(a))
      .slice(0, n)
      .map((p) => p.name);
    const wanted = new Set(ranked);
    const missing = ranked.filter((name) => !cards.has(name));
    const extra = [...cards.keys()].filter((name) => !wanted.has(name));
    if (!missing.length && !extra.length) return;
    for (const name of extra) {
      const card = cards.get(name);
      card.close();
      card.element.remove();
      cards.delete(name);
      busiest.delete(name);
    }
    for (const name of missing) {
      const policy = now.policies.find((p) => p.name === name);
      const one = chart({
        title: name,
        heading: h('span.name', policyLink(name), ' ', policy.mode === 'enforce' ? null : mode(policy)),
        series: lines,
        format: policyFormat,
        signal,
        height: 120,
      });
      cards.set(name, one);
      grid.append(one.element);
    }
  }

  function draw(now) {
    const { history } = live;
    const { total } = history;
    const sum = (name) => now.policies.reduce((s, p) => s + (p[name] ?? 0), 0);
    const recent = lately();
    // What other servers know is not counted.
    const known = now.policies.filter((p) => !elsewhere(p));
    const part = known.length < now.policies.length ? `, of ${count(known.length)} of ${count(now.policies.length)} policies` : '';
    numbers.set({
      allowed: [rate(last(total.allowed)), `${compact(now.requests - now.refused - now.canceled)} in all`],
      refused: [rate(last(total.refused)), `${share(now.refused, now.requests)} in all`],
      queued: known.length ? [count(sum('queued')), `permits waited for${part}`] : ['–', 'not known here'],
      locked: [count(sum('locked')), 'keys'],
      keys: known.length
        ? [count(sum('keys')), (sum('overridden') ? `${count(sum('overridden'))} overridden` : 'tracked') + part]
        : ['–', 'not known here'],
      p99: [took(quantile(recent, 0.99) ?? now.latency.p99, now), recent.length ? 'in the last minute' : 'since the start'],
    });
    all.update(history.time, total.allowed, total.refused, total.queued);
    latency.update(history.time, history.latency.p50, history.latency.p99, history.latency.p999);
    choose(now);
    for (const [name, card] of cards) {
      const one = history.policies.get(name);
      if (one) card.update(history.time, one.allowed, one.refused, one.queued);
    }
    morph(
      since,
      facts([
        ['Requests', count(now.requests)],
        ['Refused', count(now.refused)],
        ['Denied by a rule', count(now.denied)],
        ['Exempt by a rule', count(now.exempt)],
        ['Without any limit', count(now.unlimited)],
        ['Gone while waiting', count(now.canceled)],
        ['Decisions, p50', took(now.latency.p50, now)],
        ['p99', took(now.latency.p99, now)],
        ['p99.9', took(now.latency.p999, now)],
        ['Started', moment(now.started)],
        ['Version', printable(now.version)],
        ['Configuration', link('configuration', {}, `version ${now.config.version}, ${moment(now.config.loaded)}`)],
        ['Heap', bytes(now.process.heap_bytes)],
        ['Goroutines', count(now.process.goroutines)],
        ['Open files', now.process.open_files < 0 ? '–' : count(now.process.open_files)],
        ['CPU', duration(now.process.cpu_seconds)],
      ]),
    );
  }

  // The last refusals, so that a row of them is one click away.
  const refused = refusalTable({ caption: 'The last refusals', page: 6, empty: 'No refusal was noted since the server started.' });
  fill(latest, refused.element);
  let rows = [];
  let heard = []; // since the last load began
  const load = refresh(latest, signal, 0, async () => {
    heard = [];
    const loaded = (await api.get('/v1/admin/refusals', { n: 6 }, signal)).refusals ?? [];
    rows = joined(heard, loaded, 6);
    refused.update(rows);
  });
  // Another process has other refusals, and those that were missed are there again.
  on('state', (state) => state === 'live' && load(), signal);
  on(
    'refusal',
    (one) => {
      heard = joined([one], heard, 6);
      rows = joined([one], rows, 6);
      refused.update(rows);
    },
    signal,
  );
  each(signal, draw);
}
