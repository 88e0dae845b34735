// Differences: what candidates, and policies that refuse nothing, would have changed.

import { fill, h } from '../dom.js';
import { count, quoted, share } from '../format.js';
import { facts } from '../table.js';
import { each, keyLink, limitsText, mode, policyLink } from './parts.js';

/** differenceParts is the difference of a policy, with the keys that it concerns most. */
export function differenceParts(p) {
  const d = p.difference;
  return [
    facts([
      p.candidate?.length ? ['In force', limitsText(p.limits)] : ['Measured', limitsText(p.limits)],
      p.candidate?.length && ['Candidate', limitsText(p.candidate)],
      ['Asked of both', count(d.requests)],
      [
        'Newly refused',
        h(d.newly_refused ? 'b.bad' : 'b', `${count(d.newly_refused)} (${share(d.newly_refused, d.requests)})`),
      ],
      [
        'Newly allowed',
        h(d.newly_allowed ? 'b.good' : 'b', `${count(d.newly_allowed)} (${share(d.newly_allowed, d.requests)})`),
      ],
    ]),
    h(
      'div.columns',
      keyCounts('Newly refused the most', p.name, d.refused_keys),
      keyCounts('Newly allowed the most', p.name, d.allowed_keys),
    ),
  ];
}

function keyCounts(title, policy, keys) {
  if (!keys?.length) return null;
  const most = keys[0].count;
  return h(
    'div',
    h('h3', title),
    h(
      'ol.counts',
      keys.map((one) =>
        h(
          'li',
          keyLink(policy, one.key),
          h('meter', { min: 0, max: most, value: one.count, 'aria-label': `${quoted(one.key)}: ${count(one.count)}` }),
          h('b', count(one.count)),
        ),
      ),
    ),
  );
}

export function differences(place, { signal }) {
  const all = h('div');
  fill(
    place,
    h(
      'p.lead',
      'What would have come out differently: requests are asked of a policy and of its candidate, ' +
        'and a policy in shadow, or one that tags, refuses nothing, but counts what it would have refused.',
    ),
    all,
  );
  const shown = new Map();
  each(signal, (o) => {
    const some = o.policies.filter((p) => p.difference);
    if (!some.length) {
      shown.clear();
      fill(all, h('p.none', 'No policy has a candidate, and none is in shadow or tags.'));
      return;
    }
    if (shown.size !== some.length || some.some((p) => !shown.has(p.name))) {
      shown.clear();
      fill(
        all,
        some.map((p) => {
          const heading = h(
            'h2',
            policyLink(p.name),
            ' ',
            mode(p),
            p.candidate?.length ? h('span.tag.shadow', 'candidate') : null,
          );
          const parts = h('div');
          shown.set(p.name, { parts, said: '' });
          return h('section.card', heading, parts);
        }),
      );
    }
    for (const p of some) {
      const one = shown.get(p.name);
      const said = JSON.stringify([p.difference, p.limits, p.candidate]);
      if (said === one.said) continue; // so that nobody loses the place
      one.said = said;
      fill(one.parts, differenceParts(p));
    }
  });
}
