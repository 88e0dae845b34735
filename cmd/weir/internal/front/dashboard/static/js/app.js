// The page: views, the way between them, and what all of them show.

import * as api from './api.js';
import { ask, tell, note } from './dialog.js';
import { redraw } from './chart.js';
import { h, fill, hash, icon, link, say } from './dom.js';
import { clock, count, duration, printable } from './format.js';
import { live, on, silence, start } from './live.js';
import { audit } from './views/audit.js';
import { configuration } from './views/configuration.js';
import { differences } from './views/differences.js';
import { explain } from './views/explain.js';
import { keys } from './views/keys.js';
import { lockouts } from './views/lockouts.js';
import { overview } from './views/overview.js';
import { policies } from './views/policies.js';
import { refusals } from './views/refusals.js';
import { replicas } from './views/replicas.js';

// Each view has an address (#/id?...), a title and a letter, which is pressed after g.
const views = [
  { id: 'overview', title: 'Overview', letter: 'o', show: overview, icon: 'M2 13h12M3.5 10l3-4 2.5 2.5L13 3' },
  { id: 'refusals', title: 'Refusals', letter: 'r', show: refusals, icon: 'M8 2a6 6 0 1 0 .01 0zM4 12l8-8' },
  { id: 'policies', title: 'Policies', letter: 'p', show: policies, icon: 'M2 4h12M2 8h12M2 12h12M5 2.5v3M10 6.5v3M7 10.5v3' },
  { id: 'keys', title: 'Keys', letter: 'k', show: keys, icon: 'M6 7a3 3 0 1 0 .01 0zM8 8.5 13.5 3M11 5.5l2 2' },
  { id: 'lockouts', title: 'Lockouts', letter: 'l', show: lockouts, icon: 'M3.5 7.5h9v6h-9zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5' },
  { id: 'differences', title: 'Differences', letter: 'd', show: differences, icon: 'M2 5h9l-2.5-2.5M14 11H5l2.5 2.5' },
  { id: 'explain', title: 'Explain', letter: 'e', show: explain, icon: 'M7 2.5a4.5 4.5 0 1 0 .01 0zM10.5 10.5 14 14' },
  { id: 'configuration', title: 'Configuration', letter: 'c', show: configuration, icon: 'M4 2h6l3 3v9H4zM6.5 8h4M6.5 11h4' },
  { id: 'replicas', title: 'Replicas', letter: 's', show: replicas, icon: 'M3 3h10v3.5H3zM3 9.5h10V13H3zM5 4.75h1M5 11.25h1' },
  { id: 'audit', title: 'Audit', letter: 'a', show: audit, icon: 'M4 2v12M4 3h9l-2 3 2 3H4' },
];

const main = document.getElementById('main');
const sought = document.getElementById('sought');
const badges = new Map();
let shown = null;

function drawViews() {
  fill(
    document.getElementById('views'),
    h(
      'ul',
      views.map((view) => {
        badges.set(view.id, h('span.badge', { hidden: true }));
        return h(
          'li',
          h(
            'a',
            { href: hash(view.id), 'data-view': view.id, 'aria-keyshortcuts': `g ${view.letter}` },
            icon(view.icon),
            h('span', view.title),
            badges.get(view.id),
          ),
        );
      }),
    ),
  );
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const view = views.find((v) => v.id === path) ?? views[0];
  const params = Object.fromEntries(new URLSearchParams(query ?? ''));
  const first = !shown; // then the focus stays where a page begins
  const moved = shown?.view !== view;
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  shown?.ended.abort();
  const ended = new AbortController();
  const heading = h('h1', { id: 'title', tabindex: '-1' }, view.title);
  const gone = h('p.gone', { hidden: true });
  const banners = h('div.banners');
  const content = h('div.content');
  fill(main, h('section', { 'aria-labelledby': 'title', class: `view ${view.id}` }, heading, gone, banners, content));
  shown = { view, ended, gone, banners };
  for (const a of document.querySelectorAll('#views a')) {
    if (a.dataset.view === view.id) {
      a.setAttribute('aria-current', 'page');
      a.scrollIntoView({ block: 'nearest', inline: 'center' });
    } else a.removeAttribute('aria-current');
  }
  const title = (text) => {
    say(heading, text);
    document.title = `${text} · weir`;
  };
  title(view.title);
  drawGone(silence());
  drawBanners();
  view.show(content, { params, signal: ended.signal, title, again: route });
  if (moved) window.scrollTo(0, 0);
  if (!first && (document.activeElement === document.body || moved)) heading.focus({ preventScroll: true });
}

// What is shown is old: the page says since when, and its figures are grey, until the server is heard again.
function drawGone(since) {
  document.body.classList.toggle('stale', since !== null);
  if (!shown) return;
  shown.gone.hidden = since === null;
  if (since === null) return;
  const age = duration(Math.max(0, Math.floor((Date.now() - since) / 1000)));
  const what = live.overview ? 'What is shown is of then.' : 'Nothing is known of the server.';
  const next = live.state === 'locked' ? 'The server wants a token.' : 'Trying again.';
  say(shown.gone, `No answer since ${clock(since)} (${age}). ${what} ${next}`);
}

function drawBanners() {
  const now = live.overview;
  if (!now || !shown) return;
  const all = [];
  if (now.draining) all.push(h('p.banner.bad', 'The server is shutting down.'));
  if (now.not_ready) {
    const why = printable(now.not_ready.replace(/^weir: /, ''));
    all.push(
      h(
        'p.banner.bad',
        `Durable limits cannot be decided: ${why}. The fail of each policy decides. `,
        link('replicas', {}, 'Look at the cluster'),
      ),
    );
  }
  if (now.config.last_error) {
    all.push(
      h(
        'p.banner.bad',
        'The last reload was refused: the configuration before it is in force. ',
        link('configuration', {}, 'Look at the mistakes'),
      ),
    );
  }
  const text = all.map((one) => one.textContent).join();
  if (shown.banners.textContent === text && shown.banners.children.length === all.length) return;
  fill(shown.banners, all);
}

function drawBadges(now) {
  const locked = now.policies.reduce((sum, p) => sum + p.locked, 0);
  for (const [view, text, label] of [
    ['lockouts', locked ? count(locked) : '', `${locked} locked out`],
    ['configuration', now.config.last_error ? '!' : '', 'reload refused'],
  ]) {
    const badge = badges.get(view);
    badge.hidden = !text;
    if (badge.textContent !== text) fill(badge, h('span', { 'aria-hidden': 'true' }, text), h('span.unseen', label));
  }
}

// The theme is that of the system unless the operator wants another.
const themes = ['system', 'light', 'dark'];
const themeButton = document.getElementById('theme');

function theme() {
  return document.documentElement.dataset.theme ?? 'system';
}

function drawTheme() {
  const drawn = {
    system: 'M8 2.5a5.5 5.5 0 1 0 .01 0zM8 2.5v11',
    light: 'M8 5a3 3 0 1 0 .01 0zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
    dark: 'M12.5 10A5.5 5.5 0 0 1 6 3.5 5.5 5.5 0 1 0 12.5 10z',
  };
  fill(themeButton, icon(drawn[theme()]));
  themeButton.setAttribute('aria-label', `Theme: ${theme()}`);
  themeButton.title = `Theme: ${theme()}`;
}

function nextTheme() {
  const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
  if (next === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  store('weir.theme', next);
  drawTheme();
  redraw();
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    /* storage is switched off: it holds until the page is closed */
  }
}

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

// Letters can be switched off, for those whose speech or switches press keys by chance.
let shortcuts = stored('weir.shortcuts') !== 'off';
let leader = 0;

function pressed(event) {
  const busy =
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    document.querySelector('dialog[open]') ||
    event.target.closest?.('input:not([type=checkbox]), select, textarea, [contenteditable]');
  if (!shortcuts || busy) return;
  const after = Date.now() - leader < 2000;
  leader = 0;
  if (after) {
    const view = views.find((v) => v.letter === event.key);
    if (!view) return;
    event.preventDefault();
    location.hash = hash(view.id);
  } else if (event.key === 'g') {
    leader = Date.now();
  } else if (event.key === '/') {
    event.preventDefault();
    sought.focus();
    sought.select();
  } else if (event.key === '?') {
    event.preventDefault();
    showHelp();
  }
}

function showHelp() {
  const box = h('input', {
    id: 'shortcuts',
    type: 'checkbox',
    checked: shortcuts,
    onchange: () => {
      shortcuts = box.checked;
      store('weir.shortcuts', shortcuts ? 'on' : 'off');
    },
  });
  tell(
    'Keyboard',
    h(
      'dl.shortcuts',
      views.map((view) => h('div', h('dt', h('kbd', 'g'), ' ', h('kbd', view.letter)), h('dd', view.title))),
      h('div', h('dt', h('kbd', '/')), h('dd', 'Search a client, a key or a refusal')),
      h('div', h('dt', h('kbd', '?')), h('dd', 'This list')),
      h('div', h('dt', h('kbd', 'Esc')), h('dd', 'Close a dialog')),
    ),
    h('p.field.check', box, h('label', { for: 'shortcuts' }, 'Shortcuts of letters')),
  );
}

// What is typed into the search is the ID of a refusal if there is one with it, and otherwise a key.
async function search(event) {
  event.preventDefault();
  const text = sought.value.trim();
  if (!text) return;
  if (/^[0-9A-Za-z_-]{1,40}$/.test(text)) {
    try {
      await api.get('/v1/admin/refusal', { id: text });
      location.hash = hash('refusals', { id: text });
      return;
    } catch (error) {
      if (error.status !== 404 && error.status !== 400) {
        note(error.message);
        return;
      }
    }
  }
  location.hash = hash('keys', { key: sought.value });
}

async function login() {
  const entered = await ask({
    title: 'Token',
    lines: ['This server asks for the token of --admin-token-file. It is kept in this tab.'],
    fields: [{ name: 'token', label: 'Token', kind: 'password', required: true, autocomplete: 'current-password' }],
    action: 'Enter',
    run: ({ token }) => api.tryToken(token.trim()),
  });
  if (!entered) {
    fill(
      main,
      h(
        'section.view',
        h('h1', 'Locked'),
        h('p', 'This server wants a token.'),
        h('p', h('button.primary', { type: 'button', onclick: () => location.reload() }, 'Enter a token')),
      ),
    );
  }
  return Boolean(entered);
}

function drawState(state) {
  const element = document.getElementById('live');
  element.dataset.state = state;
  say(element, state === 'lost' ? 'connection lost' : state);
}

drawViews();
drawTheme();
api.onLocked(login);
on('state', drawState);
on('stale', drawGone);
on('overview', (now) => {
  drawBanners();
  drawBadges(now);
});
addEventListener('hashchange', route);
addEventListener('keydown', pressed);
themeButton.addEventListener('click', nextTheme);
document.getElementById('help').addEventListener('click', showHelp);
document.getElementById('search').addEventListener('submit', search);
document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
route();
start();
