// Keys: those of a policy under the most pressure, and everything about one of them.

import * as actions from '../actions.js';
import * as api from '../api.js';
import { meter } from '../chart.js';
import { fill, h, hash, link, say } from '../dom.js';
import { input } from '../dialog.js';
import { count, duration, moment, printable, quoted, reason } from '../format.js';
import { live } from '../live.js';
import { sentence, unlimited } from '../state.js';
import { facts, table } from '../table.js';
import { limitsText, onceHeard, policyLink, policyOptions, refresh } from './parts.js';
import { refusalTable } from './refusals.js';

export function keys(place, context) {
  const { policy, key, exact } = context.params;
  if (key === undefined && !exact) top(place, context);
  else if (policy === undefined) everywhere(place, context);
  else detail(place, context, key ?? '');
}

const label = (k) => (k.named ? quoted(k.key) : `without a name, ${printable(k.id)}`);

const used = (limit) => limit.limit - limit.remaining;

const left = (limit) =>
  limit.holds === unlimited || !limit.tracked
    ? '–'
    : h('span.used', meter(used(limit), limit.limit), ` ${count(limit.remaining)} of ${count(limit.limit)} remaining`);

/** keyColumns are those of a table of keys, of which each limit but the first is left out. */
const keyColumns = [
  {
    title: 'Key',
    sort: label,
    cell: (k) =>
      k.named
        ? h('a.row', { href: hash('keys', { policy: k.policy, key: k.key, exact: '1' }) }, h('code', quoted(k.key)))
        : h('span.dim', label(k)),
  },
  { title: 'Limit', cell: (k) => (k.limits[0] ? printable(k.limits[0].name || '–') : '–') },
  { title: 'Allows', cell: (k) => (k.override?.unlimited ? 'no limit' : printable(k.limits[0]?.holds ?? '–')) },
  {
    title: 'Used',
    sort: (k) => (k.limits[0]?.limit ? used(k.limits[0]) / k.limits[0].limit : 0),
    number: true,
    cell: (k) => (k.limits[0] ? left(k.limits[0]) : '–'),
  },
  { title: 'Waiting', number: true, sort: (k) => k.limits[0]?.waiters ?? 0, cell: (k) => count(k.limits[0]?.waiters ?? 0) },
  { title: 'Refused', number: true, sort: (k) => k.limits[0]?.refused ?? 0, cell: (k) => count(k.limits[0]?.refused ?? 0) },
  { title: 'State', cell: (k) => state(k) },
];

function state(k) {
  const tags = [];
  if (k.locked_for) tags.push(h('span.tag.bad', `locked out ${duration(k.locked_for)}`));
  if (k.override) tags.push(h('span.tag.shadow', 'overridden'));
  if (!tags.length) return k.limits[0] && !k.limits[0].allowed ? h('span.bad', next(k.limits[0])) : '';
  return h('span', tags);
}

/** next is why the next request is refused. It need not have come: so a limit that is used up is not said to be exceeded. */
const next = (limit) => (limit.reason === 'limited' ? 'used up' : reason(limit.reason));

function top(place, { params, signal }) {
  const policy = input({
    name: 'policy',
    label: 'Policy',
    kind: 'choice',
    options: policyOptions([]),
    value: params.policy,
    narrow: true,
    changed: () => go(),
  });
  const many = input({
    name: 'n',
    label: 'Show',
    kind: 'choice',
    narrow: true,
    value: params.n ?? '100',
    changed: () => go(),
    options: [
      ['20', '20 keys'],
      ['100', '100 keys'],
      ['1000', '1,000 keys'],
      ['10000', '10,000 keys'],
    ],
  });
  const exact = input({ name: 'key', label: 'Key, exactly', kind: 'search', narrow: true, longest: 4096 });
  const form = h('form.bar', policy.row, many.row, exact.row, h('button', { type: 'submit' }, 'Show the key'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    location.hash = hash('keys', { policy: policy.value(), key: exact.value(), exact: '1' });
  });
  const about = h('p.about');
  const rows = table({
    caption: 'The keys under the most pressure',
    columns: keyColumns,
    id: (k) => (k.named ? `=${k.key}` : `#${k.id}`),
    empty: 'No key is listed.',
  });
  const overridden = table({
    caption: 'Overrides in force',
    id: (o) => `${o.policy}\n${o.key}`,
    empty: 'No key is overridden.',
    columns: [
      { title: 'Policy', cell: (o) => policyLink(o.policy) },
      {
        title: 'Key',
        cell: (o) => h('a', { href: hash('keys', { policy: o.policy, key: o.key, exact: '1' }) }, h('code', quoted(o.key))),
      },
      { title: 'Allows', cell: overrideText },
      { title: 'For', cell: (o) => duration(o.for) },
      { title: 'By', cell: (o) => printable(o.by ?? '') },
      { title: 'Reason', wide: true, cell: (o) => printable(o.reason ?? '') },
    ],
  });
  const others = h(
    'section',
    { 'aria-labelledby': 'overrides' },
    h('h2', { id: 'overrides' }, 'Overrides'),
    overridden.element,
  );
  fill(place, form, about, h('div', rows.element), others);

  function go() {
    location.hash = hash('keys', { policy: policy.value(), n: many.value() });
  }

  onceHeard(signal).then((o) => {
    if (signal.aborted) return;
    policy.options(policyOptions([]));
    // Without a choice it is the policy that has refused the most.
    const refused = (p) => (p.mode === 'enforce' ? p.refused : 0);
    const busiest = [...o.policies].sort((a, b) => refused(b) - refused(a) || b.keys - a.keys)[0];
    const name = params.policy ?? busiest?.name;
    if (name === undefined) return;
    policy.set(name);
    const n = Number(many.value());
    refresh(place, signal, n > 1000 ? 10 : 2, async () => {
      const all = (await api.get('/v1/admin/keys', { policy: name, n }, signal)) ?? [];
      rows.update(all);
      const p = live.overview.policies.find((q) => q.name === name);
      say(about, p ? `${kept(p)} Limits: ${limitsText(p.limits)}.` : '');
    });
    refresh(others, signal, 5, async () => {
      overridden.update((await api.get('/v1/admin/overrides', {}, signal)) ?? []);
    });
  });
}

// kept says which keys of a policy are listed. Of limits that are kept elsewhere a process does not know all keys.
function kept(p) {
  const elsewhere = p.durability && p.durability !== 'memory' ? p.durability : p.consistency;
  if (elsewhere !== 'local')
    return `Not kept by this process alone (${printable(elsewhere)}): those that it has refused are listed.`;
  if (!p.keys) return 'No key is tracked.';
  const most = p.max_keys ? ` of at most ${count(p.max_keys)}` : '';
  // Each limit has a table of its own, in which a key has a place.
  const where = p.limits.length > 1 ? ` in the fullest table of its ${p.limits.length} limits,` : '';
  return `Tracked: ${count(p.keys)} ${p.keys === 1 ? 'key' : 'keys'}${where}${most}.`;
}

const overrideText = (o) =>
  o.unlimited
    ? 'no limit'
    : Object.entries(o.limits ?? {})
        .map(([name, holds]) => (name ? `${printable(name)}: ${holds}` : holds))
        .join('; ');

// A word without a policy: what all policies know of it, and which of them cannot say.
function everywhere(place, { params, signal, title }) {
  title(`Key ${quoted(params.key)}`);
  const verdict = h('p.large', { role: 'status' }, 'Searching.');
  const about = h('div.about');
  const rows = table({
    caption: 'What policies know of it',
    id: (k) => `${k.policy}\n${k.key}`,
    empty: 'No policy is known to track it.',
    columns: [
      {
        title: 'Policy',
        sort: (k) => k.policy,
        cell: (k) => h('a.row', { href: hash('keys', { policy: k.policy, key: k.key, exact: '1' }) }, printable(k.policy)),
      },
      { title: 'Key', sort: (k) => k.key, cell: (k) => h('span', h('code', quoted(k.key)), leads[k.how] ? ` ${leads[k.how]}` : '') },
      { title: 'Now', sort: (k) => Number(refuses(k)), cell: (k) => now(k) },
      ...keyColumns.slice(1, 3),
      { title: 'Used', number: true, cell: (k) => (k.limits[0]?.tracked ? left(k.limits[0]) : '–') },
      ...keyColumns.slice(4, 6),
    ],
  });
  const unsearched = table({
    caption: 'Policies that cannot be searched for it',
    hideCaption: false,
    id: (u) => u.policy,
    empty: '',
    columns: [
      { title: 'Not searched', sort: (u) => u.policy, cell: (u) => policyLink(u.policy) },
      { title: 'Why', wide: true, cell: (u) => printable(u.why) },
    ],
  });
  const cannot = h('section', { hidden: true }, unsearched.element);
  const refused = refusalTable({
    caption: 'The last refusals that name it',
    page: 10,
    empty: 'None of the last refusals that are kept names it.',
  });
  const body = h(
    'div',
    h('div.card', verdict, about),
    rows.element,
    cannot,
    h('section', { 'aria-labelledby': 'refused' }, h('h2', { id: 'refused' }, 'The last refusals that name it'), refused.element),
  );
  fill(place, h('p.back', link('keys', {}, 'Top keys')), body);
  refresh(body, signal, 5, async () => {
    const s = await api.get('/v1/admin/search', { word: params.key, n: 50 }, signal);
    const keys = s.keys.map(pressed);
    const last = s.refusals.refusals ?? [];
    const [text, good] = searchSentence(s, keys, last);
    say(verdict, text);
    verdict.className = good ? 'large' : 'large bad';
    fill(about, searchNotes(s, keys));
    rows.update(keys.filter(known));
    unsearched.update(s.unsearched);
    cannot.hidden = !s.unsearched.length;
    refused.update(last);
  });
}

// leads says how a word leads to a key, where it is not the word that is the key.
const leads = { all: 'shared by all requests', part: 'has it as a part', refused: 'of a refusal that names it' };

const refuses = (k) => k.mode === 'enforce' && (k.locked_for > 0 || k.limits.some((l) => !l.allowed));

function now(k) {
  if (k.error) return h('span.bad', `not known: ${printable(k.error)}`);
  const why = k.locked_for > 0 ? `locked out for ${duration(k.locked_for)}` : k.limits.some((l) => !l.allowed) && 'refused';
  if (!why) return 'allowed';
  return k.mode === 'enforce' ? h('span.bad', why) : h('span', `${why} in ${printable(k.mode)}, which refuses nothing`);
}

// searchSentence is what a search comes to, and whether nothing is known to refuse the word.
function searchSentence(s, keys, last) {
  const refusing = keys.filter(refuses);
  const cannot = s.unsearched.length ? ` ${count(s.unsearched.length)} of ${count(s.policies)} policies cannot be searched for it.` : '';
  if (refusing.length)
    return [`It is refused now by ${[...new Set(refusing.map((k) => printable(k.policy)))].slice(0, 5).join(', ')}.${cannot}`, false];
  if (last.length) return [`It was refused last at ${moment(last[0].time)}.${cannot}`, false];
  if (keys.some(known)) return [`No policy that was searched refuses it now.${cannot}`, true];
  return [`No policy is known to track it.${cannot}`, true];
}

function searchNotes(s, keys) {
  const idle = keys.filter((k) => !known(k)).map((k) => `${printable(k.policy)} (key ${quoted(k.key)})`);
  const shown = idle.slice(0, 20).join(', ') + (idle.length > 20 ? ` and ${count(idle.length - 20)} more` : '');
  return [
    s.more > 0 && h('p', `More keys that were found: ${count(s.more)}.`),
    idle.length > 0 && h('p', `Nothing is kept of it by ${shown}.`),
    s.refusals.missed > 0 && h('p', `Refusals not noted, as there were too many at a time: ${count(s.refusals.missed)}.`),
    s.others && h('p', 'What other servers keep for themselves is not known here: ask each of them.'),
  ].filter(Boolean);
}

const known = (k) =>
  Boolean(k.error) ||
  k.locked_for > 0 ||
  Boolean(k.override) ||
  k.limits.some((l) => l.tracked || l.refused > 0 || l.waiters > 0);

// pressed is a key with the limit first that has the least left.
function pressed(k) {
  const left = (l) => (l.limit ? l.remaining / l.limit : 1);
  return { ...k, limits: [...k.limits].sort((a, b) => left(a) - left(b)) };
}

function detail(place, { params, signal, title }, key) {
  const { policy } = params;
  title(`Key ${quoted(key)}`);
  let now = null;
  const verdict = h('p.large', { role: 'status' });
  const about = h('div');
  const limits = table({
    caption: 'What remains of each limit of the key',
    id: (l) => l.name,
    empty: 'This policy has no limit.',
    columns: [
      { title: 'Limit', cell: (l) => printable(l.name || '–') },
      { title: 'Allows', cell: (l) => printable(l.holds) },
      {
        title: 'Used',
        number: true,
        cell: left,
      },
      { title: 'Next', cell: (l) => (!l.allowed ? h('span.bad', next(l)) : l.tracked ? h('span.good', 'would be allowed') : '–') },
      { title: 'Retry after', number: true, cell: (l) => duration(l.retry_after) },
      { title: 'Reset after', number: true, cell: (l) => duration(l.reset_after) },
      { title: 'Waiting', number: true, cell: (l) => (l.waiters ? `${count(l.waiters)} for ${count(l.queued)}` : '0') },
      { title: 'Refused', number: true, cell: (l) => count(l.refused) },
    ],
  });
  const did = (done) =>
    done.then((answer) => {
      if (answer) load();
    });
  const buttons = {
    unlock: h('button', { type: 'button', onclick: () => did(actions.unlock(policy, key)) }, 'Unlock'),
    override: h('button', { type: 'button', onclick: () => did(actions.override(policy, key, now)) }, 'Override'),
    restore: h('button', { type: 'button', onclick: () => did(actions.restore(policy, key)) }, 'Restore'),
    reset: h('button.danger', { type: 'button', onclick: () => did(actions.reset(policy, key, now)) }, 'Reset'),
  };
  const refused = refusalTable({
    caption: 'Refusals of this key',
    page: 10,
    empty: 'None of the last refusals was of this key.',
  });
  const last = h('section', { 'aria-labelledby': 'refused' }, h('h2', { id: 'refused' }, 'Its last refusals'), refused.element);
  const body = h('div', h('div.card', verdict, about, h('p.buttons', Object.values(buttons))), limits.element, last);
  fill(place, h('p.back', link('keys', { policy }, 'Top keys of ', printable(policy))), body);
  for (const button of Object.values(buttons)) button.disabled = true;

  const load = refresh(body, signal, 1, async () => {
    now = await api.get('/v1/admin/key', { policy, key }, signal);
    const of = live.overview?.policies.find((p) => p.name === policy);
    say(verdict, sentence(now, of));
    const bad = now.locked_for || now.limits.some((l) => !l.allowed);
    verdict.className = bad ? 'large bad' : known(now) ? 'large good' : 'large';
    const before = document.activeElement;
    fill(
      about,
      facts([
        ['Policy', policyLink(policy)],
        ['Key', h('code', quoted(key))],
        now.locked_for > 0 && ['Locked out', `${duration(now.locked_for)} still`],
        now.recent_refusals > 0 && ['Refusals towards a lockout', count(now.recent_refusals)],
        now.override && ['Override', overrideText(now.override)],
        now.override && ['For', `${duration(now.override.for)} still, since ${moment(now.override.since)}`],
        now.override && ['By', printable(now.override.by || '–')],
        now.override && ['Reason', printable(now.override.reason || '–')],
      ]),
    );
    if (before && !before.isConnected) about.querySelector('a')?.focus();
    limits.update(now.limits);
    buttons.unlock.disabled = !now.locked_for;
    buttons.restore.disabled = !now.override;
    buttons.override.disabled = false;
    buttons.reset.disabled = false;
  });
  refresh(last, signal, 5, async () => {
    refused.update((await api.get('/v1/admin/refusals', { policy, key, n: 50 }, signal)).refusals ?? []);
  });
}
