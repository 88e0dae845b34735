// Replicas: the store that is shared, the cluster, and what each front says of itself.

import * as api from '../api.js';
import { fill, h, morph } from '../dom.js';
import { count, duration, moment, printable } from '../format.js';
import { facts } from '../table.js';
import { each, refresh } from './parts.js';

export function replicas(place, { signal }) {
  const store = h('div');
  const cluster = h('div');
  const fronts = h('div');
  const shared = h('div', card('store', 'Store', store), card('cluster', 'Cluster', cluster));
  fill(place, shared, card('fronts', 'Fronts', fronts));
  refresh(shared, signal, 2, async () => {
    const all = await api.get('/v1/admin/replicas', {}, signal);
    morph(
      store,
      all.store
        ? h('div', storeLead(all.store), tree(silent(all.store)))
        : h('p.none', 'There is no store: no limit is shared with other processes.'),
    );
    morph(
      cluster,
      all.cluster ? h('div', clusterLead(all.cluster), tree(silent(all.cluster))) : h('p.none', 'There is no cluster: no limit is durable.'),
    );
  });
  each(signal, (o) =>
    morph(fronts, o.fronts && Object.keys(o.fronts).length ? tree(o.fronts) : h('p.none', 'No front reports a state.')),
  );
}

const card = (id, title, content) => h('section.card', { 'aria-labelledby': id }, h('h2', { id }, title), content);

const good = (text) => h('p.large.good', text);
const bad = (text, error) => h('p.large.bad', `${text}${error ? `: ${printable(error.replace(/^weir: /, ''))}` : '.'}`);

// silent is what is told without its errors, which the lead has.
function silent({ error, ...rest }) {
  if (rest.breaker) rest.breaker = silent(rest.breaker);
  return rest;
}

// What the numbers below come to.
function storeLead(s) {
  const since = s.breaker?.since ? `, since ${moment(s.breaker.since)}` : '';
  if (s.answers) return good(`Available${since}.`);
  return bad(`Unavailable${since}, and the fail of each policy decides`, s.error);
}

function clusterLead(s) {
  if (!s.joined) return bad('It is not joined, and the fail of each policy decides', s.error);
  if (s.owns) return good('This node owns the limits.');
  if (!s.owner) return bad('No owner is known, and the fail of each policy decides');
  if (s.owner_unreached_ns)
    return bad(`No owner can be reached, the last one was ${printable(s.owner)}, and the fail of each policy decides`);
  return good(`The owner of the limits is ${printable(s.owner)}.`);
}

// What is said depends on the store and the fronts: names and values are shown as they are.
function tree(value, depth = 0) {
  if (Array.isArray(value))
    return h(
      'ul.plain',
      value.map((one) => h('li', tree(one, depth + 1))),
    );
  if (value === null || typeof value !== 'object') return h('span', leaf('', value));
  const pairs = Object.entries(value);
  const flat = pairs.filter(([, v]) => v === null || typeof v !== 'object');
  const deep = pairs.filter(([, v]) => v !== null && typeof v === 'object');
  return h(
    'div.tree',
    flat.length ? facts(flat.map(([name, v]) => [words(name), leaf(name, v)])) : null,
    deep.map(([name, v]) => h('div.branch', h(depth ? 'h4' : 'h3', words(name)), tree(v, depth + 1))),
  );
}

const words = (name) => {
  const text = printable(name)
    .replace(/_(ns|bytes)$/, '')
    .replaceAll('_', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
};

// Of these no is bad; of others it is as good as yes.
const yes = new Set(['answers', 'reached', 'joined']);

function leaf(name, value) {
  if (typeof value === 'boolean') {
    if (!yes.has(name)) return value ? 'yes' : 'no';
    return value ? h('span.good', 'yes') : h('span.bad', 'no');
  }
  if (typeof value === 'number') return name.endsWith('_ns') ? duration(value / 1e9) : count(value);
  if (typeof value === 'string' && /^\d{4}-\d\d-\d\dT/.test(value)) return moment(value);
  if (value === '' || value === null) return '–';
  return name === 'error' ? h('span.bad', printable(value)) : printable(value);
}
