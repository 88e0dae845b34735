// Explain: a request, every rule and every limit, and nothing is taken.

import * as api from '../api.js';
import { fill, h, hash } from '../dom.js';
import { input } from '../dialog.js';
import { count, duration, printable, quoted, reason } from '../format.js';
import { table } from '../table.js';
import { keyLink, policyLink, sourceLink } from './parts.js';

const names = ['method', 'host', 'path', 'query', 'client', 'protocol', 'route', 'cost', 'headers', 'attributes'];

export function explain(place, { params, signal }) {
  const make = (field) => input({ narrow: true, value: params[field.name] ?? '', ...field });
  const fields = {
    method: make({ name: 'method', label: 'Method', value: params.method ?? (params.run ? '' : 'GET') }),
    host: make({ name: 'host', label: 'Host' }),
    path: make({ name: 'path', label: 'Path', value: params.path ?? (params.run ? '' : '/') }),
    query: make({ name: 'query', label: 'Query' }),
    client: make({ name: 'client', label: 'Client', placeholder: '192.0.2.1' }),
    protocol: make({ name: 'protocol', label: 'Protocol', placeholder: 'http' }),
    route: make({ name: 'route', label: 'Route' }),
    cost: make({ name: 'cost', label: 'Cost', kind: 'number', from: 0, placeholder: '1' }),
    headers: make({
      name: 'headers',
      label: 'Header fields',
      kind: 'lines',
      narrow: false,
      hint: 'One a line, such as X-Api-Key: acme',
    }),
    attributes: make({
      name: 'attributes',
      label: 'Attributes',
      kind: 'lines',
      narrow: false,
      hint: 'One a line, such as tier: gold',
    }),
  };
  const wrong = h('p.wrong', { role: 'alert' });
  const result = h('div', { role: 'region', 'aria-label': 'Explanation', 'aria-live': 'polite' });
  const more = h(
    'details',
    { open: Boolean(params.headers || params.attributes || params.route) },
    h('summary', 'More'),
    h('div.bar', fields.protocol.row, fields.route.row, fields.cost.row),
    h('div.bar', fields.headers.row, fields.attributes.row),
  );
  const form = h(
    'form',
    h(
      'div.bar',
      ['method', 'host', 'path', 'query', 'client'].map((name) => fields[name].row),
    ),
    more,
    wrong,
    h('p.buttons', h('button.primary', { type: 'submit' }, 'Explain')),
  );
  fill(place, h('p.lead', 'What would become of a request now, and why. It takes no permits.'), form, result);

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const query = Object.fromEntries(names.map((name) => [name, fields[name].value()]));
    // The address holds the request, so that it can be sent to somebody.
    history.replaceState(null, '', hash('explain', { ...query, run: '1' }));
    run();
  });

  async function run() {
    fill(wrong);
    try {
      const body = described();
      fill(result, explanation(await api.post('/v1/admin/explain', body, signal)));
    } catch (error) {
      if (!signal.aborted) fill(wrong, error.message);
    }
  }

  function described() {
    const body = {};
    for (const name of ['protocol', 'method', 'host', 'path', 'query', 'route', 'client']) {
      const value = fields[name].value();
      if (value !== '') body[name] = value;
    }
    if (fields.cost.value() !== '') body.cost = Number(fields.cost.value());
    for (const [name, value] of pairs('headers', fields.headers.value())) {
      body.headers ??= {};
      (body.headers[name] ??= []).push(value);
    }
    for (const [name, value] of pairs('attributes', fields.attributes.value())) (body.attributes ??= {})[name] = value;
    return body;
  }

  if (params.run) run();
}

function pairs(field, text) {
  return text
    .split('\n')
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf(':');
      if (at < 1) throw new Error(`${field}: “${printable(line)}” has no colon: must be name: value`);
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    });
}

const limitName = (l) => printable(l.limit ? `${l.policy}/${l.limit}` : l.policy);

function explanation(e) {
  const bound = e.binding === null || e.binding === undefined ? null : e.limits[e.binding];
  const rules = table({
    caption: 'Rules',
    page: 200,
    hideCaption: false,
    id: (r) => r.place,
    empty: 'There are no rules.',
    columns: [
      {
        title: 'Rule',
        cell: (r) => h('span', printable(r.name), r.afterwards ? h('span.tag.plain', 'charged afterwards') : null),
      },
      {
        title: 'Matches',
        cell: (r) =>
          !r.matched
            ? h('span.dim', 'does not match')
            : r.deny && r.shadow
              ? h('span', 'matches ', h('span.tag.shadow', 'denies in shadow'))
              : r.deny
                ? h('span.bad', 'denies it')
                : h('span.good', 'matches'),
      },
      { title: 'Why not', wide: true, cell: (r) => printable(r.condition ?? '') },
      { title: 'Source', cell: (r) => h('span', sourceLink(r.source)) },
    ],
  });
  rules.update(e.rules.map((r, place) => ({ ...r, place })));
  const limits = table({
    caption: 'Limits',
    hideCaption: false,
    id: (l) => l.place,
    empty: 'No limit applies to it.',
    columns: [
      {
        title: 'Limit',
        cell: (l) =>
          h(
            'span',
            policyLink(l.policy),
            l.limit ? ` / ${printable(l.limit)}` : '',
            l.place === e.binding ? h('span.tag.plain', 'decides') : null,
            l.role && l.role !== 'enforce' ? h('span.tag.shadow', l.role) : null,
          ),
      },
      { title: 'Allows', cell: (l) => printable(l.holds + (l.tier ? `, tier ${l.tier}` : '')) },
      {
        title: 'Key',
        cell: (l) => h('span', keyLink(l.policy, l.key), l.key_from ? h('span.dim', ` from ${printable(l.key_from)}`) : null),
      },
      { title: 'Rule', cell: (l) => printable(l.rule) },
      { title: 'Cost', number: true, cell: (l) => count(l.cost) },
      { title: 'Remaining before', number: true, cell: (l) => count(l.before) },
      { title: 'After', number: true, cell: (l) => count(l.after) },
      {
        title: 'Decision',
        cell: (l) =>
          h(
            l.allowed && !l.failure ? 'span.good' : 'span.bad',
            l.failure
              ? `cannot be told: ${printable(l.failure)}`
              : l.allowed
                ? 'grants it'
                : `${reason(l.reason)}, ${retry(l.retry_after)}`,
          ),
      },
      { title: 'Would pass', wide: true, cell: (l) => printable(l.would ?? '') },
    ],
  });
  limits.update(e.limits.map((l, place) => ({ ...l, place })));
  const text = e.denied
    ? `Denied by rule ${printable(e.denied)}: it can never be allowed.`
    : e.exempt
      ? 'Exempt: a rule exempts it from all limits.'
      : e.allowed
        ? e.limits.length
          ? `Allowed${bound ? `, bound by ${limitName(bound)}` : ''}.`
          : 'Allowed: no limit applies to it.'
        : `Refused${bound ? ` by ${limitName(bound)}, key ${quoted(bound.key)}` : ''}: ${reason(e.reason)}, ${retry(e.retry_after)}.`;
  return [h(`p.large.${e.allowed ? 'good' : 'bad'}`, text), limits.element, rules.element];
}

const retry = (s) => (s < 0 ? 'and it can never be allowed' : `retry after ${duration(s)}`);
