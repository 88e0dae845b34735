// Audit: who has changed what, and why.

import * as api from '../api.js';
import { fill, h } from '../dom.js';
import { moment, printable, quoted } from '../format.js';
import { on } from '../live.js';
import { table } from '../table.js';
import { keyLink, refresh } from './parts.js';

export function audit(place, { signal }) {
  const rows = table({
    caption: 'Changes, the last first',
    id: (a) => a.place,
    empty: 'Nothing has been changed since the server started.',
    page: 50,
    columns: [
      { title: 'Time', cell: (a) => h('time', { datetime: a.time }, moment(a.time)) },
      {
        title: 'Who',
        sort: (a) => a.who,
        cell: (a) => h('span', printable(a.who || '–'), h('span.dim', ` ${printable(a.from)}`)),
      },
      { title: 'Action', sort: (a) => a.action, cell: (a) => printable(a.action) },
      {
        title: 'On',
        cell: (a) =>
          a.policy
            ? h('span', printable(a.policy), ': ', keyLink(a.policy, a.key ?? ''))
            : h('span', a.key ? quoted(a.key) : ''),
      },
      { title: 'Detail', wide: true, cell: (a) => printable(a.detail ?? '') },
      { title: 'Reason', wide: true, cell: (a) => printable(a.reason ?? '') },
      {
        title: 'Result',
        sort: (a) => a.result,
        cell: (a) => h(a.result === 'ok' ? 'span.good' : 'span.bad', printable(a.result)),
      },
    ],
  });
  const body = h('div', rows.element);
  fill(
    place,
    h(
      'p.lead',
      'Every change, and every try to make one without being allowed to. With --audit-log they are in a file as well.',
    ),
    body,
  );
  const load = refresh(body, signal, 10, async () => {
    const all = (await api.get('/v1/admin/audit', { n: 1000 }, signal)) ?? [];
    rows.update(all.map((a, i) => ({ ...a, place: all.length - i })));
  });
  on('audit', () => load(), signal);
}
