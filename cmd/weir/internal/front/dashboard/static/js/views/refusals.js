// Refusals: those of the last minutes, and of each the rule, the key and the numbers.

import * as api from '../api.js';
import { override } from '../actions.js';
import { fill, h, hash, link, say } from '../dom.js';
import { input } from '../dialog.js';
import { count, duration, moment, printable, quoted, reason, zero } from '../format.js';
import { on } from '../live.js';
import { facts, table } from '../table.js';
import { keyLink, onceHeard, policyLink, policyOptions, refresh, sourceLink } from './parts.js';

const most = 500;

/** what is the request in short. */
function what(refusal) {
  const text = [refusal.method, `${refusal.host ?? ''}${refusal.path ?? ''}`].filter(Boolean).join(' ');
  return printable(text || refusal.protocol || 'a check');
}

const binding = (refusal) => refusal.limits?.[refusal.binding] ?? refusal.limits?.find((l) => !l.allowed) ?? null;

const limitName = (limit) => printable(limit.limit ? `${limit.policy}/${limit.limit}` : limit.policy);

/** refusalTable is a table of refusals, each row of which leads to its numbers. */
export function refusalTable({ caption, page = 50, empty = 'None of the refusals that are kept is of these.' }) {
  return table({
    caption,
    empty,
    page,
    id: (r) => r.id,
    columns: [
      {
        title: 'Time',
        cell: (r) => h('a.row', { href: hash('refusals', { id: r.id }), title: printable(r.id) }, moment(r.time)),
      },
      { title: 'Request', cell: (r) => h('code.short', { title: what(r) }, what(r)) },
      { title: 'Client', cell: (r) => printable(r.client ?? '') },
      { title: 'Limit', cell: (r) => (binding(r) ? limitName(binding(r)) : r.denied_by ? `rule ${printable(r.denied_by)}` : '') },
      {
        title: 'Key',
        cell: (r) => (binding(r) ? h('code.short', { title: quoted(binding(r).key) }, quoted(binding(r).key)) : ''),
      },
      { title: 'Reason', cell: (r) => reason(r.reason) },
      { title: 'Retry after', number: true, cell: (r) => duration(r.retry_after) },
    ],
  });
}

/** joined are the refusals that were heard of and those that were loaded, each once, at most n. What is heard of is later. */
export const joined = (heard, loaded, n) => {
  const known = new Set(heard.map((r) => r.id));
  return [...heard, ...loaded.filter((r) => !known.has(r.id))].slice(0, n);
};

export function refusals(place, context) {
  if (context.params.id) detail(place, context);
  else list(place, context);
}

function list(place, { params, signal }) {
  const policy = input({
    name: 'policy',
    label: 'Policy',
    kind: 'choice',
    options: policyOptions([['', 'all']]),
    value: params.policy ?? '',
    narrow: true,
    changed: () => go(),
  });
  const key = input({
    name: 'key',
    label: 'Key, exactly',
    kind: 'search',
    value: params.key ?? '',
    narrow: true,
    longest: 4096,
    changed: () => go(),
  });
  const paused = h('button', { type: 'button', 'aria-pressed': 'false', onclick: () => pause() }, 'Pause');
  const about = h('p.about');
  const rows = refusalTable({ caption: 'Refusals, the last first' });
  const form = h('form.bar', policy.row, key.row, paused);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    go();
  });
  fill(
    place,
    h(
      'p.lead',
      'The last requests that were refused. A client is told the ID in the header field ',
      h('code', 'Weir-Refusal'),
      ': type it into the search above.',
    ),
    form,
    about,
    h('div', rows.element),
  );
  onceHeard(signal).then(() => {
    policy.options(policyOptions([['', 'all']]));
    policy.set(params.policy ?? '');
  });

  let all = [];
  let heard = []; // since the last load began
  let answer = null;
  let still = null; // the IDs of those there were when the list was paused

  function go() {
    location.hash = hash('refusals', { policy: policy.value(), key: key.value() });
  }

  function pause() {
    const on = paused.getAttribute('aria-pressed') !== 'true';
    paused.setAttribute('aria-pressed', String(on));
    say(paused, on ? 'Resume' : 'Pause');
    still = on ? new Set(all.map((r) => r.id)) : null;
    draw();
  }

  const mine = (r) =>
    (!params.policy || r.limits.some((l) => l.policy === params.policy)) &&
    (!params.key || r.limits.some((l) => l.key === params.key));

  function draw() {
    if (!still) rows.update(all);
    if (!answer) return;
    const parts = [`${count(answer.kept)} noted since the start`];
    if (!zero(answer.oldest)) parts.push(`the oldest that is kept is of ${moment(answer.oldest)}`);
    if (answer.missed) parts.push(`${count(answer.missed)} not noted, as there were too many at a time`);
    if (still) parts.push(`paused: ${count(all.filter((r) => !still.has(r.id)).length)} more`);
    say(about, `${parts.join(', ')}.`);
  }

  refresh(place, signal, 5, async () => {
    heard = [];
    answer = await api.get('/v1/admin/refusals', { policy: params.policy, key: params.key, n: most }, signal);
    all = joined(heard, answer.refusals ?? [], most);
    draw();
  });
  let waiting = false;
  on(
    'refusal',
    (one) => {
      if (!mine(one)) return;
      heard = joined([one], heard, most);
      if (all.some((r) => r.id === one.id)) return;
      all = joined([one], all, most);
      if (answer) answer.kept += 1;
      if (waiting) return;
      waiting = true;
      setTimeout(() => {
        waiting = false;
        if (!signal.aborted) draw();
      }, 250);
    },
    signal,
  );
}

function detail(place, { params, signal, title }) {
  title(`Refusal ${printable(params.id)}`);
  const body = h('div');
  fill(place, h('p.back', link('refusals', {}, 'All refusals')), body);
  refresh(place, signal, 0, async () => {
    const one = await api.get('/v1/admin/refusal', { id: params.id }, signal);
    fill(body, numbers(one));
  });
}

function numbers(one) {
  const limit = binding(one);
  const query = { protocol: one.protocol, method: one.method, host: one.host, path: one.path, client: one.client };
  return [
    one.denied_by &&
      h(
        'section.card.verdict',
        { 'aria-labelledby': 'denied' },
        h('h2', { id: 'denied' }, 'Denied by rule ', printable(one.denied_by)),
        h('p.large', 'Nothing was charged. It can never pass.'),
        facts([['Source', one.source ? sourceLink(one.source) : '–']]),
        h('p.buttons', h('a.button.primary', { href: hash('explain', { ...query, run: '1' }) }, 'Explain now')),
      ),
    limit &&
      h(
        'section.card.verdict',
        { 'aria-labelledby': 'bound' },
        h('h2', { id: 'bound' }, 'Refused by ', limitName(limit), ': ', reason(limit.reason)),
        h(
          'p.large',
          h('b', count(limit.remaining)),
          ` of ${count(limit.max)} permits remained, and it cost ${count(limit.cost)}.`,
          limit.retry_after < 0 ? ' It can never be allowed.' : ` It can be allowed after ${duration(limit.retry_after)}.`,
        ),
        facts([
          ['Rule', limit.rule ? h('span', printable(limit.rule)) : 'none: the policy was asked by name'],
          ['Source', limit.source ? sourceLink(limit.source) : '–'],
          ['Policy', policyLink(limit.policy)],
          ['Limit', h('span', printable(limit.limit || '–'), ' (', printable(limit.holds), ')')],
          ['Key', keyLink(limit.policy, limit.key)],
          ['Remaining', `${count(limit.remaining)} of ${count(limit.max)}`],
          ['Cost', count(limit.cost)],
          ['Retry after', duration(limit.retry_after)],
          ['Reset after', duration(limit.reset_after)],
        ]),
        h(
          'p.buttons',
          h('a.button.primary', { href: hash('explain', { ...query, run: '1' }) }, 'Explain now'),
          h('a.button', { href: hash('keys', { policy: limit.policy, key: limit.key }) }, 'The key now'),
          h('button', { type: 'button', onclick: () => overrideKey(limit) }, 'Override this key'),
          h('a.button', { href: hash('refusals', { policy: limit.policy, key: limit.key }) }, 'Its other refusals'),
        ),
      ),
    h(
      'section',
      { 'aria-labelledby': 'request' },
      h('h2', { id: 'request' }, 'The request'),
      facts([
        ['ID', h('code', printable(one.id))],
        ['Time', h('time', { datetime: one.time }, moment(one.time))],
        ['Protocol', printable(one.protocol || '–')],
        ['Method', printable(one.method || '–')],
        ['Host', printable(one.host || '–')],
        ['Path', h('code', printable(one.path || '–'))],
        ['Client', printable(one.client || '–')],
        ['Configuration', link('configuration', {}, `version ${one.version}`)],
      ]),
    ),
    h('section', { 'aria-labelledby': 'limits' }, h('h2', { id: 'limits' }, 'All limits that apply to it'), limitTable(one)),
  ];
}

function limitTable(one) {
  const rows = table({
    caption: 'The limits, with the numbers of that moment',
    id: (l) => l.place,
    columns: [
      {
        title: 'Limit',
        cell: (l) =>
          h(
            'span',
            policyLink(l.policy),
            l.limit ? ` / ${printable(l.limit)}` : '',
            l.place === one.binding ? h('span.tag.plain', 'decides') : null,
          ),
      },
      { title: 'Allows', cell: (l) => printable(l.holds) },
      { title: 'Rule', cell: (l) => h('span', printable(l.rule ?? ''), ' ', sourceLink(l.source)) },
      { title: 'Key', cell: (l) => keyLink(l.policy, l.key) },
      {
        title: 'Decision',
        cell: (l) => (l.unasked ? 'not asked' : h(l.allowed ? 'span.good' : 'span.bad', reason(l.reason))),
      },
      { title: 'Cost', number: true, cell: (l) => count(l.cost) },
      { title: 'Remaining', number: true, cell: (l) => (l.unasked ? '–' : `${count(l.remaining)} of ${count(l.max)}`) },
      { title: 'Retry after', number: true, cell: (l) => duration(l.retry_after) },
    ],
  });
  rows.update((one.limits ?? []).map((l, place) => ({ ...l, place })));
  return rows.element;
}

async function overrideKey(limit) {
  const now = await api.get('/v1/admin/key', { policy: limit.policy, key: limit.key });
  const done = await override(limit.policy, limit.key, now);
  if (done) location.hash = hash('keys', { policy: limit.policy, key: limit.key });
}
