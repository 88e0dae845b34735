// Roles are said out loud, as browsers forget them where a narrow page shows a table as a list.
//
// Tables that are sorted by their headings, and whose rows stay in place while their values change, so that focus is not lost.

import { h, fill, say } from './dom.js';
import { count } from './format.js';

/**
 * table makes one. columns are {title, cell(row), sort(row), number, wide, label}: cell answers text, which is set again when it
 * changes, or an element, which is made once for each row, and again when its text would be another; a column with sort has a
 * button in
 * its heading. id answers what tells rows apart. Of many rows there is a page at a time.
 */
export function table({
  caption,
  columns,
  id,
  empty = 'Nothing here.',
  by = null,
  down = false,
  page = 100,
  hideCaption = true,
}) {
  let rows = [];
  let from = 0;
  let order = { by, down };
  const shown = new Map();
  const heads = columns.map((column) => head(column));
  const body = h('tbody', { role: 'rowgroup' });
  const none = h('p.none', { hidden: true }, empty);
  const where = h('span');
  const back = h('button', { type: 'button', onclick: () => turn(-page) }, 'Previous');
  const on = h('button', { type: 'button', onclick: () => turn(page) }, 'Next');
  const pager = h('p.pager', { hidden: true }, back, where, on);
  const element = h(
    'div.table',
    h(
      'div.scroll',
      { tabindex: '0', role: 'region', 'aria-label': caption },
      h(
        'table',
        { role: 'table' },
        h('caption', { class: hideCaption ? 'unseen' : null }, caption),
        h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, heads)),
        body,
      ),
    ),
    none,
    pager,
  );

  function head(column) {
    const th = h('th', { scope: 'col', role: 'columnheader', class: column.number ? 'number' : null });
    if (!column.sort) return fill(th, column.title || h('span.unseen', column.label));
    return fill(th, h('button', { type: 'button', onclick: () => sortBy(column) }, column.title));
  }

  function sortBy(column) {
    order =
      order.by === column.title ? { by: column.title, down: !order.down } : { by: column.title, down: Boolean(column.number) };
    from = 0;
    draw();
  }

  function turn(by) {
    from = Math.min(Math.max(0, from + by), Math.max(0, rows.length - 1));
    draw();
  }

  function sorted() {
    const column = columns.find((c) => c.title === order.by);
    if (!column?.sort) return rows;
    const sign = order.down ? -1 : 1;
    return [...rows].sort((a, b) => sign * compare(column.sort(a), column.sort(b)));
  }

  function draw() {
    heads.forEach((th, i) => {
      if (!columns[i].sort) return;
      const direction = order.down ? 'descending' : 'ascending';
      if (columns[i].title === order.by) th.setAttribute('aria-sort', direction);
      else th.removeAttribute('aria-sort');
    });
    if (from >= rows.length) from = 0;
    const visible = sorted().slice(from, from + page);
    const wanted = new Set(visible.map(id));
    for (const [key, row] of shown) {
      if (wanted.has(key)) continue;
      row.remove();
      shown.delete(key);
    }
    let before = body.firstChild;
    for (const row of visible) {
      const tr = drawRow(row);
      if (tr === before) before = before.nextSibling;
      else body.insertBefore(tr, before);
    }
    none.hidden = rows.length > 0;
    element.classList.toggle('bare', rows.length === 0);
    pager.hidden = rows.length <= page;
    back.disabled = from === 0;
    on.disabled = from + page >= rows.length;
    say(where, `${count(from + 1)} to ${count(Math.min(from + page, rows.length))} of ${count(rows.length)}`);
  }

  function drawRow(row) {
    const key = id(row);
    let tr = shown.get(key);
    if (!tr) {
      tr = h(
        'tr',
        { role: 'row' },
        columns.map((column) =>
          h('td', {
            role: 'cell',
            class: [column.number && 'number', column.wide && 'wide'].filter(Boolean).join(' ') || null,
            'data-title': column.title,
          }),
        ),
      );
      shown.set(key, tr);
    }
    columns.forEach((column, i) => {
      const cell = column.cell(row);
      if (!(cell instanceof Node)) say(tr.children[i], cell ?? '');
      else if (!tr.children[i].firstChild || !tr.children[i].firstChild.isEqualNode(cell)) fill(tr.children[i], cell);
    });
    return tr;
  }

  draw();
  return {
    element,
    update(next) {
      rows = next;
      draw();
    },
  };
}

function compare(a, b) {
  if (typeof a === 'string' && typeof b === 'string') return a.localeCompare(b, 'en', { numeric: true });
  return (a ?? -Infinity) < (b ?? -Infinity) ? -1 : (a ?? -Infinity) > (b ?? -Infinity) ? 1 : 0;
}

/** facts is a list of names and values. */
export function facts(pairs) {
  return h(
    'dl.facts',
    pairs.filter(Boolean).map(([name, value]) => h('div', h('dt', name), h('dd', value))),
  );
}

/** tiles are a list of large numbers; set gives them new texts, with a note below. */
export function tiles(names) {
  const all = names.map(([name, title, kind]) => {
    const value = h('dd.value', '–');
    const note = h('dd.note');
    return { name, value, note, element: h(kind ? `div.tile.${kind}` : 'div.tile', h('dt', title), value, note) };
  });
  return {
    element: h(
      'dl.tiles',
      all.map((t) => t.element),
    ),
    set(values) {
      for (const t of all) {
        const [value, note] = values[t.name] ?? ['–', ''];
        say(t.value, value);
        say(t.note, note ?? '');
      }
    },
  };
}
