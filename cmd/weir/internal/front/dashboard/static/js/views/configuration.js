// Configuration: the text in force, what became of the last reloads, the rules, and a button to reload.

import * as actions from '../actions.js';
import * as api from '../api.js';
import { fill, h } from '../dom.js';
import { count, moment, printable } from '../format.js';
import { on } from '../live.js';
import { facts, table } from '../table.js';
import { policyLink, refresh, sourceLink } from './parts.js';

export function configuration(place, { params, signal }) {
  const about = h('div');
  const wrong = h('div');
  const history = h('ol.history');
  const text = h('ol.source', { tabindex: '0', 'aria-label': 'Text of the configuration' });
  const rules = table({
    caption: 'Rules',
    id: (r) => r.place,
    empty: 'There are no rules.',
    page: 200,
    columns: [
      { title: 'Rule', sort: (r) => r.name, cell: (r) => printable(r.name) },
      { title: 'Matches', wide: true, cell: (r) => printable(r.match) },
      {
        title: 'Applies',
        cell: (r) =>
          r.deny
            ? h('span', h('span.tag.bad', 'denied'), r.mode === 'enforce' ? null : h(`span.tag.${r.mode}`, r.mode))
            : r.exempt
              ? h('span.tag.plain', 'exempt')
              : h(
                  'span',
                  r.limits.map((name, i) => [i ? ', ' : '', policyLink(name)]),
                  r.afterwards ? h('span.tag.plain', 'charged afterwards') : null,
                  r.final ? h('span.tag.plain', 'final') : null,
                ),
      },
      { title: 'Matched', number: true, sort: (r) => r.matched, cell: (r) => count(r.matched) },
      { title: 'Failed', number: true, sort: (r) => r.failed, cell: (r) => count(r.failed) },
      { title: 'Source', cell: (r) => h('span', sourceLink(r.source)) },
    ],
  });
  const body = h(
    'div',
    h('div.card', about, wrong, h('p.buttons', h('button.primary', { type: 'button', onclick: () => reload() }, 'Reload'))),
    h('section', { 'aria-labelledby': 'reloads' }, h('h2', { id: 'reloads' }, 'Last reloads'), history),
    h('section', { 'aria-labelledby': 'rules' }, h('h2', { id: 'rules' }, 'Rules'), rules.element),
    h('section', { 'aria-labelledby': 'text' }, h('h2', { id: 'text' }, 'In force'), text),
  );
  fill(place, body);

  let shown = null;
  let said = '';

  async function reload() {
    try {
      await actions.reload();
    } finally {
      load();
    }
  }

  const load = refresh(body, signal, 5, async () => {
    const c = await api.get('/v1/admin/configuration', {}, signal);
    rules.update((c.rules ?? []).map((r, index) => ({ ...r, place: index })));
    const { rules: _, text: source, ...rest } = c;
    const now = JSON.stringify(rest);
    if (now !== said) {
      said = now;
      fill(
        about,
        facts([
          ['File', printable(c.file || 'none: the limit is that of the command line')],
          ['Version', count(c.version)],
          ['In force since', moment(c.loaded)],
          ['Reloads', count(c.reloads)],
          ['Refused', count(c.reloads_refused)],
        ]),
      );
      fill(
        wrong,
        c.last_error &&
          h(
            'div.mistakes',
            { role: 'alert' },
            h('b', 'The last reload was refused'),
            h('pre.text', { tabindex: '0' }, printableText(c.last_error)),
          ),
      );
      fill(history, (c.history ?? []).map(entry), !c.history?.length && h('li.none', 'None since the start.'));
    }
    if (source !== shown) {
      shown = source;
      drawText(source);
    }
  });
  on(
    'overview',
    (o) => {
      if (said && o.config.version !== JSON.parse(said).version) load();
    },
    signal,
  );

  function drawText(source) {
    const wanted = Number(params.line);
    fill(
      text,
      source
        ? source
            .replace(/\n$/, '')
            .split('\n')
            .map((line, i) =>
              h(
                'li',
                {
                  class: i + 1 === wanted ? 'wanted' : null,
                  id: `line-${i + 1}`,
                },
                printableText(line) || ' ',
              ),
            )
        : h('li', 'There is no text to show.'),
    );
    text.querySelector('.wanted')?.scrollIntoView({ block: 'center' });
  }
}

const printableText = (text) => text.split('\n').map(printable).join('\n');

function entry(one) {
  const refused = one.mistakes?.length;
  const n = one.changes?.length ?? 0;
  return h(
    'li',
    { class: refused ? 'refused' : null },
    h(
      'p',
      h(refused ? 'span.tag.bad' : 'span.tag.plain', refused ? 'refused' : `version ${one.version}`),
      ' ',
      h('time', { datetime: one.time }, moment(one.time)),
      `, ${printable(one.cause)}: `,
      refused
        ? `${count(refused)} ${refused === 1 ? 'mistake' : 'mistakes'}`
        : n
          ? `${count(n)} ${n === 1 ? 'change' : 'changes'}`
          : 'nothing has changed',
    ),
    (refused || n) &&
      h(
        'ul',
        (refused ? one.mistakes : one.changes).map((line) => h('li', h('code', printable(line)))),
      ),
  );
}
