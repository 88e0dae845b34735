// Lines over time, drawn by uPlot on a canvas, with the same numbers as a table for those who cannot see them.

import uPlot from '../uplot/uPlot.esm.js';
import { h, fill, say, newID } from './dom.js';
import { clock } from './format.js';
import { kept } from './live.js';

const charts = new Set();

/** redraw draws all charts anew, in the colours of now. */
export function redraw() {
  for (const chart of charts) chart.redraw();
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/**
 * chart makes a figure. series are {label, colour, dash}: colour is a custom property without its dashes. format says a value in
 * words. It is drawn from when it is in the page until signal is aborted. update takes seconds since 1970 and a list for each
 * series.
 */
export function chart({ title, heading, series, format, signal, height = 150, logarithmic = false }) {
  const caption = newID('chart');
  const values = series.map(() => h('b', '–'));
  const legend = h(
    'ul.legend',
    series.map((one, i) =>
      h('li', h(`i.key.${one.colour}${one.dash ? '.dashed' : ''}`, { 'aria-hidden': 'true' }), one.label, ' ', values[i]),
    ),
  );
  const canvas = h('div.canvas', { 'aria-hidden': 'true' });
  const rows = h('tbody');
  const details = h(
    'details',
    h('summary', 'As a table'),
    h(
      'div.scroll',
      { tabindex: '0', role: 'region', 'aria-label': `${title}: the last values` },
      h(
        'table',
        h('caption.unseen', `${title}: the last values`),
        h(
          'thead',
          h(
            'tr',
            h('th', { scope: 'col' }, 'Time'),
            series.map((one) => h('th.number', { scope: 'col' }, one.label)),
          ),
        ),
        rows,
      ),
    ),
  );
  details.addEventListener('toggle', () => drawTable());
  const element = h(
    'figure.chart',
    { role: 'group', 'aria-labelledby': caption },
    h('figcaption', h('span', { id: caption }, heading ?? title), legend),
    canvas,
    details,
  );

  let plot = null;
  let data = [[], ...series.map(() => [])];
  let at = null; // the place under the pointer

  function say_() {
    const place = at ?? data[0].length - 1;
    values.forEach((value, i) => {
      const v = place >= 0 ? data[i + 1][place] : null;
      say(value, v === null || v === undefined ? '–' : format(v));
    });
  }

  function drawTable() {
    if (!details.open) return;
    const from = Math.max(0, data[0].length - 12);
    fill(
      rows,
      data[0]
        .slice(from)
        .map((_, i) => from + i)
        .reverse()
        .map((place) =>
          h(
            'tr',
            h('td', clock(data[0][place] * 1000)),
            series.map((_, i) => h('td.number', data[i + 1][place] === null ? '–' : format(data[i + 1][place]))),
          ),
        ),
    );
  }

  function make() {
    plot?.destroy();
    const grid = { stroke: colour('grid'), width: 1 };
    const axis = { stroke: colour('dim'), font: '11px system-ui, sans-serif', grid, ticks: { show: false }, gap: 6 };
    const y = logarithmic
      ? { distr: 3, range: (_, low, high) => [low > 0 ? low / 2 : 1e-7, high > 0 ? high * 2 : 1e-3] }
      : { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] };
    plot = new uPlot(
      {
        width: Math.max(120, canvas.clientWidth),
        height,
        padding: [8, 22, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { setScale: false, x: false, y: false }, points: { size: 6 } },
        scales: { x: { time: true, range: (_, low, high) => [Math.min(low, high - 60), high] }, y },
        axes: [
          {
            ...axis,
            size: 26,
            space: 80,
            values: (_, ticks) => ticks.map((t) => clock(t * 1000).slice(0, 5 + 3 * (t % 60 !== 0))),
          },
          { ...axis, size: 54, space: 32, values: (_, ticks) => ticks.map((v) => (v === null ? '' : format(v))) },
        ],
        series: [
          {},
          ...series.map((one) => ({
            label: one.label,
            stroke: colour(one.colour),
            width: 1.75,
            dash: one.dash ? [5, 4] : undefined,
            fill: one.area ? `${colour(one.colour)}22` : undefined,
            points: { show: false },
            spanGaps: false,
          })),
        ],
        hooks: {
          setCursor: [
            (u) => {
              at = u.cursor.idx ?? null;
              say_();
            },
          ],
        },
      },
      data,
      canvas,
    );
  }

  const sized = new ResizeObserver(() => {
    if (!element.isConnected || !canvas.clientWidth) return;
    if (plot) plot.setSize({ width: canvas.clientWidth, height });
    else make();
  });
  sized.observe(canvas);

  const one = {
    element,
    redraw() {
      if (plot) make();
    },
    update(time, ...lists) {
      data = [time, ...lists].map((list) => list.slice(-kept));
      plot?.setData(data);
      if (plot?.cursor.left < 0) at = null;
      say_();
      drawTable();
    },
    close() {
      charts.delete(one);
      sized.disconnect();
      plot?.destroy();
      plot = null;
    },
  };
  charts.add(one);
  signal.addEventListener('abort', one.close);
  return one;
}

/** meter shows how much of a limit is used, in words too. */
export function meter(used, limit) {
  const part = limit > 0 ? Math.min(1, Math.max(0, used / limit)) : 0;
  return h('meter', {
    min: 0,
    max: 1,
    low: 0.7,
    high: 0.9,
    optimum: 0,
    value: part,
    'aria-label': `${Math.round(part * 100)} % used`,
  });
}
