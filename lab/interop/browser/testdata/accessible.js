// What is wrong with the page for those who do not see it, do not see it well, or have no mouse: a list of sentences.
(() => {
  const wrong = [];
  const seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.getClientRects().length > 0;
  const text = (e) => (e.textContent || '').trim();
  const path = (e) => `${e.tagName.toLowerCase()}${e.id ? `#${e.id}` : ''}${e.className ? `.${String(e.className).split(' ').join('.')}` : ''} “${
    text(e).slice(0, 40)}”`;

  const name = (e) => {
    const by = (e.getAttribute('aria-labelledby') || '').split(' ').map((id) => id && text(document.getElementById(id) ?? e)).join('').trim();
    if (by) return by;
    if (e.getAttribute('aria-label')) return e.getAttribute('aria-label').trim();
    if (e.labels?.length) return [...e.labels].map(text).join(' ').trim();
    if (e.matches('input, select, textarea, meter')) return '';
    return text(e) || [...e.querySelectorAll('img')].map((img) => img.alt).join('').trim();
  };

  // Names, and the keyboard.
  for (const e of document.querySelectorAll('a[href], button, input, select, textarea, summary, meter, dialog[open], nav, [role=region], [role=group], [role=search] input')) {
    if (seen(e) && !name(e)) wrong.push(`${path(e)} has no name`);
  }
  for (const e of document.querySelectorAll('a[href], button:not(:disabled), input, select, textarea, summary')) {
    if (seen(e) && e.tabIndex < 0) wrong.push(`${path(e)} is not reached by the keyboard`);
  }
  for (const e of document.querySelectorAll('[tabindex]')) {
    if (e.tabIndex > 0) wrong.push(`${path(e)} comes before its turn`);
  }
  for (const e of document.querySelectorAll('main *')) {
    const style = getComputedStyle(e);
    const scrolls = (/(auto|scroll)/.test(style.overflowX) && e.scrollWidth > e.clientWidth + 1) ||
      (/(auto|scroll)/.test(style.overflowY) && e.scrollHeight > e.clientHeight + 1);
    if (seen(e) && scrolls && e.tabIndex < 0 && !e.querySelector('a[href], button, input')) wrong.push(`${path(e)} scrolls, but not by the keyboard`);
  }
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) wrong.push(`${path(e)} has no alt`);
  for (const e of document.querySelectorAll('canvas')) if (!e.closest('[aria-hidden=true]')) wrong.push('a canvas is read out');
  for (const e of document.querySelectorAll('[aria-hidden=true]')) {
    if (e.matches('a, button, input') || e.querySelector('a[href], button, input')) wrong.push(`${path(e)} is hidden, but has the focus`);
  }

  // The structure.
  const ids = new Map();
  for (const e of document.querySelectorAll('[id]')) ids.set(e.id, (ids.get(e.id) ?? 0) + 1);
  for (const [id, n] of ids) if (n > 1) wrong.push(`${n} elements have the id ${id}`);
  for (const attribute of ['aria-labelledby', 'aria-describedby', 'for']) {
    for (const e of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of e.getAttribute(attribute).split(' ')) if (!ids.has(id)) wrong.push(`${path(e)}: there is no #${id}`);
    }
  }
  for (const [selector, n] of [['h1', 1], ['main', 1], ['body > header', 1], ['nav[aria-label]', 1], ['[role=search]', 1], ['a[aria-current=page]', 1]]) {
    const all = document.querySelectorAll(selector).length;
    if (all !== n) wrong.push(`${all} × ${selector}, want ${n}`);
  }
  if (!document.documentElement.lang) wrong.push('the page has no language');
  let level = 1;
  for (const e of document.querySelectorAll('main :is(h1, h2, h3, h4)')) {
    const next = Number(e.tagName[1]);
    if (next > level + 1) wrong.push(`${path(e)} follows h${level}`);
    level = next;
  }
  for (const e of document.querySelectorAll('table')) {
    if (!text(e.caption ?? document.createElement('i'))) wrong.push(`${path(e)} has no caption`);
    for (const th of e.querySelectorAll('th')) if (!th.scope || !text(th)) wrong.push(`${path(e)}: a heading without scope or text`);
  }
  for (const e of document.querySelectorAll('ul, ol')) {
    if ([...e.children].some((c) => c.tagName !== 'LI')) wrong.push(`${path(e)} has children that are no li`);
  }
  for (const e of document.querySelectorAll('dl')) {
    for (const c of e.children) {
      if (c.tagName !== 'DIV' || !c.querySelector(':scope > dt') || !c.querySelector(':scope > dd')) wrong.push(`${path(e)} has a ${path(c)}`);
    }
  }

  // Contrast: text against what is behind it.
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const colours = new Map();
  const colour = (css) => {
    if (!colours.has(css)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = css;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      colours.set(css, [r, g, b, a / 255]);
    }
    return colours.get(css);
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const c = colour(getComputedStyle(at).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1 || at.matches('dialog')) break;
    }
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const told = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !seen(e) || e.closest('.unseen, :disabled, script, noscript, option, dialog:not([open]), .skip')) continue;
    const style = getComputedStyle(e);
    const ground = behind(e);
    const ink = over(colour(style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    if (size === 0) continue;
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const line = `${path(e)}: contrast ${ratio.toFixed(2)}`;
    if (ratio < (large ? 3 : 4.5) && !told.has(line)) {
      told.add(line);
      wrong.push(line);
    }
    if (size < 10.5) wrong.push(`${path(e)} is written in ${size} px`);
  }

  // The width: nothing sticks out, except where it can be scrolled to.
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);
  return wrong;
})()
