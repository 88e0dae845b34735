// Lockouts: the keys that are locked out.

import * as actions from '../actions.js';
import * as api from '../api.js';
import { fill, h, hash, say } from '../dom.js';
import { input } from '../dialog.js';
import { count, duration, printable, quoted } from '../format.js';
import { live } from '../live.js';
import { table } from '../table.js';
import { keyLink, onceHeard, policyLink, policyOptions, refresh } from './parts.js';

const most = 1000;

export function lockouts(place, { params, signal }) {
  const policy = input({
    name: 'policy',
    label: 'Policy',
    kind: 'choice',
    options: policyOptions([['', 'all']]),
    value: params.policy ?? '',
    narrow: true,
    changed: () => {
      location.hash = hash('lockouts', { policy: policy.value() });
    },
  });
  const about = h('p.about');
  const unlock = new Map(); // the buttons, so that they stay the same
  const rows = table({
    caption: 'Keys that are locked out',
    id: (l) => `${l.policy}\n${l.key}`,
    empty: 'No key that is known by name is locked out by this server.',
    columns: [
      { title: 'Key', sort: (l) => l.key, cell: (l) => keyLink(l.policy, l.key) },
      { title: 'Policy', sort: (l) => l.policy, cell: (l) => policyLink(l.policy) },
      { title: 'Still', number: true, sort: (l) => l.for, cell: (l) => duration(l.for) },
      { title: '', label: 'Action', cell: (l) => button(l) },
    ],
  });

  function button(l) {
    const id = `${l.policy}\n${l.key}`;
    if (!unlock.has(id)) {
      unlock.set(
        id,
        h(
          'button',
          {
            type: 'button',
            onclick: async () => {
              if (await actions.unlock(l.policy, l.key)) load();
            },
          },
          'Unlock',
          h('span.unseen', ` ${quoted(l.key)} of ${printable(l.policy)}`),
        ),
      );
    }
    return unlock.get(id);
  }

  const body = h('div', rows.element);
  fill(place, h('form.bar', policy.row), about, body);
  onceHeard(signal).then(() => {
    policy.options(policyOptions([['', 'all']]));
    policy.set(params.policy ?? '');
  });
  const load = refresh(body, signal, 1, async () => {
    const all = (await api.get('/v1/admin/lockouts', { policy: params.policy ?? '', n: most }, signal)) ?? [];
    const there = new Set(all.map((l) => `${l.policy}\n${l.key}`));
    for (const id of unlock.keys()) if (!there.has(id)) unlock.delete(id);
    rows.update(all);
    const locked = (live.overview?.policies ?? [])
      .filter((p) => !params.policy || p.name === params.policy)
      .reduce((s, p) => s + p.locked, 0);
    say(
      about,
      all.length < locked
        ? `${count(locked)} are locked out, of which the names of ${count(all.length)} are known.`
        : `${count(all.length)} locked out.`,
    );
  });
}
