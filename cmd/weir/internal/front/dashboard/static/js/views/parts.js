// What several views have in common.

import { h, fill, link } from '../dom.js';
import { clock, printable, quoted } from '../format.js';
import { live, on } from '../live.js';

/** each calls f with the overview there is, and with each that comes, until signal is aborted. */
export function each(signal, f) {
  if (live.overview) f(live.overview);
  on('overview', f, signal);
}

/**
 * refresh calls load now and then every so many seconds while the page is looked at, one call at a time, until signal is aborted. With
 * 0 seconds it calls it once, and again as long as the server has no answer. Errors are shown in place, which is grey until there is
 * one. It returns a function that calls load at once.
 */
export function refresh(place, signal, seconds, load) {
  const wrong = h('p.wrong', { role: 'alert' });
  place.prepend(wrong);
  let good = null; // when it was loaded last
  let busy = false;
  let again = false;
  let next = 0;

  async function run() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    let lost = false; // the server may have an answer later
    clearTimeout(next);
    try {
      await load();
      good = Date.now();
      place.classList.remove('stale');
      if (wrong.textContent) fill(wrong);
    } catch (error) {
      if (signal.aborted) return;
      lost = !error.status || error.status === 429 || error.status >= 500;
      // What is in place is that of before, or nothing that is known.
      place.classList.add('stale');
      const text = good === null ? error.message : `${error.message} What is shown is of ${clock(good)}.`;
      if (wrong.textContent !== text) fill(wrong, text);
    } finally {
      busy = false;
    }
    if (signal.aborted) return;
    if (again) {
      again = false;
      run();
    } else if (seconds || lost) {
      next = setTimeout(tick, (seconds || 2) * 1000);
    }
  }

  function tick() {
    if (!document.hidden) run();
    else document.addEventListener('visibilitychange', run, { once: true, signal });
  }

  signal.addEventListener('abort', () => clearTimeout(next));
  run();
  return run;
}

/** mode is a word for how a policy takes part. */
export function mode(policy) {
  return h(`span.tag.${policy.mode === 'enforce' ? 'plain' : 'shadow'}`, policy.mode);
}

/** limits are those of a policy in words. */
export function limitsText(limits) {
  return (
    (limits ?? []).map((l) => (l.name && limits.length > 1 ? `${printable(l.name)}: ${l.holds}` : l.holds)).join('; ') ||
    'no limit'
  );
}

/** keyLink leads to what is known of a key. */
export function keyLink(policy, key) {
  return link('keys', { policy, key, exact: key === '' ? '1' : null }, h('code', quoted(key)));
}

/** policyLink leads to a policy. */
export const policyLink = (name) => link('policies', { name }, printable(name));

/** sourceLink leads to the line of the configuration that a place such as "weir.yaml:9:5" names. */
export function sourceLink(source) {
  const [, line] = /:(\d+)(?::\d+)?$/.exec(source ?? '') ?? [];
  return line ? link('configuration', { line }, h('code', printable(source))) : printable(source ?? '');
}

/** policyOptions are choices of the policies there are, after those that are given. */
export function policyOptions(first) {
  const names = (live.overview?.policies ?? []).map((p) => p.name);
  return [...first, ...names.map((name) => [name, printable(name)])];
}

/** onceHeard is done when the first overview is there. */
export function onceHeard(signal) {
  if (live.overview) return Promise.resolve(live.overview);
  return new Promise((resolve) => {
    on('overview', resolve, signal);
  });
}
