// Policies: all of them in a table, and one of them with everything that is known.

import * as api from '../api.js';
import { chart } from '../chart.js';
import { fill, h, link, morph } from '../dom.js';
import { input } from '../dialog.js';
import { compact, count, printable, quoted, rate, share } from '../format.js';
import { elsewhere, last, live } from '../live.js';
import { facts, table, tiles } from '../table.js';
import { differenceParts } from './differences.js';
import { lines, policyFormat } from './overview.js';
import { each, limitsText, mode, policyLink, refresh, sourceLink } from './parts.js';

export function policies(place, context) {
  if (context.params.name !== undefined) detail(place, context);
  else list(place, context);
}

const now = (name, line) => last(live.history.policies.get(name)?.[line]);

function list(place, { signal }) {
  const only = input({ name: 'only', label: 'Filter by name', kind: 'search', narrow: true });
  only.element.addEventListener('input', () => live.overview && draw(live.overview));
  const rows = table({
    caption: 'Policies',
    id: (p) => p.name,
    by: 'Refused/s',
    down: true,
    empty: 'No policy has such a name.',
    columns: [
      {
        title: 'Policy',
        sort: (p) => p.name,
        cell: (p) => h('a.row', { href: `#/policies?${new URLSearchParams({ name: p.name })}` }, printable(p.name)),
      },
      { title: 'Mode', sort: (p) => p.mode, cell: mode },
      { title: 'Limits', cell: (p) => limitsText(p.limits) },
      {
        title: 'Allowed/s',
        number: true,
        sort: (p) => now(p.name, 'allowed') ?? 0,
        cell: (p) => rate(now(p.name, 'allowed')),
      },
      { title: 'Refused/s', number: true, sort: (p) => now(p.name, 'refused') ?? 0, cell: (p) => rate(now(p.name, 'refused')) },
      { title: 'Allowed', number: true, sort: (p) => p.allowed, cell: (p) => count(p.allowed) },
      { title: 'Refused', number: true, sort: (p) => p.refused, cell: (p) => count(p.refused) },
      { title: 'Keys', number: true, sort: (p) => p.keys, cell: (p) => tracked(p) },
      { title: 'Queued', number: true, sort: (p) => p.queued, cell: (p) => (elsewhere(p) ? '–' : count(p.queued)) },
      { title: 'Locked out', number: true, sort: (p) => p.locked, cell: (p) => count(p.locked) },
    ],
  });
  fill(place, h('div.bar', only.row), rows.element);
  const draw = (o) => rows.update(o.policies.filter((p) => p.name.includes(only.value())));
  each(signal, draw);
}

// tracked is how many keys are in the fullest table of a policy, and how full that is if little room is left.
function tracked(p) {
  if (elsewhere(p)) return '–';
  const nearlyFull = p.max_keys && p.keys >= 0.9 * p.max_keys;
  return nearlyFull ? `${count(p.keys)} (${share(p.keys, p.max_keys)} full)` : count(p.keys);
}

// most says how many keys there may be. Each limit has a table of its own; the numbers are those of the fullest one.
function most(p) {
  if (!p.max_keys) return 'tracked';
  const full = `of at most ${count(p.max_keys)} (${share(p.keys, p.max_keys)})`;
  return (p.limits ?? []).length > 1 ? `${full}, in the fullest table of its limits` : full;
}

function detail(place, { params, signal, title }) {
  const { name } = params;
  title(`Policy ${printable(name)}`);
  const numbers = tiles([
    ['allowed', 'Allowed', 'allowed'],
    ['refused', 'Refused', 'refused'],
    ['queued', 'Queued', 'queued'],
    ['locked', 'Locked out'],
    ['keys', 'Keys'],
  ]);
  const one = chart({ title: 'Each second', series: lines, format: policyFormat, signal, height: 190 });
  const holds = h('div');
  const counts = h('div');
  const difference = h('div');
  const gone = h('p.none', { hidden: true }, 'There is no such policy.');
  const report = h('pre.text', { tabindex: '0' });
  const details = h('details.report', h('summary', 'Report as text'), report);
  details.addEventListener('toggle', () => {
    if (details.open) {
      refresh(details, signal, 0, async () => {
        fill(report, printableLines(await api.text('/v1/admin/report', { policy: name }, signal)));
      });
    }
  });
  fill(
    place,
    h('p.back', link('policies', {}, 'All policies')),
    gone,
    numbers.element,
    h(
      'p.buttons',
      h('a.button', { href: `#/keys?${new URLSearchParams({ policy: name })}` }, 'Top keys'),
      h('a.button', { href: `#/lockouts?${new URLSearchParams({ policy: name })}` }, 'Lockouts'),
      h('a.button', { href: `#/refusals?${new URLSearchParams({ policy: name })}` }, 'Refusals'),
    ),
    one.element,
    h(
      'div.columns',
      h('section', { 'aria-labelledby': 'holds' }, h('h2', { id: 'holds' }, 'Limits'), holds),
      h('section', { 'aria-labelledby': 'counts' }, h('h2', { id: 'counts' }, 'Since the start'), counts),
    ),
    difference,
    details,
  );

  each(signal, (o) => {
    const p = o.policies.find((q) => q.name === name);
    gone.hidden = Boolean(p);
    if (!p) return;
    const history = live.history.policies.get(name);
    numbers.set({
      allowed: [rate(last(history?.allowed)), `${compact(p.allowed)} in all`],
      refused: [rate(last(history?.refused)), `${share(p.refused, p.allowed + p.refused)} in all`],
      queued: elsewhere(p) ? ['–', 'not known here'] : [count(p.queued), 'permits waited for'],
      locked: [count(p.locked), 'keys'],
      keys: elsewhere(p) ? ['–', 'not known here'] : [count(p.keys), most(p)],
    });
    if (history) one.update(live.history.time, history.allowed, history.refused, history.queued);
    morph(
      holds,
      facts([
        ['Mode', mode(p)],
        ...(p.limits ?? []).map((l) => [l.name ? `Limit ${printable(l.name)}` : 'Limit', l.holds]),
        ...(p.candidate ?? []).map((l) => [`Candidate ${printable(l.name)}`, l.holds]),
        ['Key', p.key ? h('code', printable(p.key)) : 'one state for all requests'],
        p.lockout && ['Lockout', p.lockout],
        p.parent && ['Under', policyLink(p.parent)],
        ['Consistency', p.consistency],
        p.durability && ['Durability', p.durability],
        ['If it cannot be told', p.fail],
        p.source && ['Source', sourceLink(p.source)],
      ]),
    );
    morph(
      counts,
      facts([
        ['Allowed', count(p.allowed)],
        ['Refused', count(p.refused)],
        ['Refused as locked out', count(p.locked_out)],
        ['Could not be told', count(p.failed)],
        ['Overridden keys', count(p.overridden)],
        ['Allowed untracked', count(p.untracked)],
        ['Refused as full', count(p.full)],
        p.unavailable && ['Store without answer', count(p.unavailable)],
        p.expired && ['Expired', count(p.expired)],
        p.forgiven && ['Permits forgiven', count(p.forgiven)],
      ]),
    );
    morph(
      difference,
      p.difference
        ? h(
            'section',
            { 'aria-labelledby': 'difference' },
            h('h2', { id: 'difference' }, p.candidate ? 'What the candidate would change' : 'What it would change'),
            differenceParts(p),
          )
        : h('span'),
    );
  });
}

const printableLines = (text) =>
  text
    .split('\n')
    .map((line) => (line === '' ? '' : quoted(line)))
    .join('\n');
