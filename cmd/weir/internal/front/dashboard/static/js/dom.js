// The one place where elements are made. Text goes in as text nodes only: nothing that a server or a client says becomes markup.

const svgSpace = 'http://www.w3.org/2000/svg';

/**
 * h makes an element: h('p.note', {id: 'x', onclick: f}, 'text', child, [more]). null, undefined and false are left out.
 * Attributes of true are set without a value.
 */
export function h(name, ...rest) {
  const [tag, ...classes] = name.split('.');
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  if (rest.length && isAttributes(rest[0])) set(element, rest.shift());
  add(element, rest);
  return element;
}

function isAttributes(v) {
  return v !== null && typeof v === 'object' && !(v instanceof Node) && !Array.isArray(v);
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked' || name === 'selected') element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === 0) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** fill puts children in the place of those that an element has. */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** say sets the text of an element if it is another one, so that nothing is painted or read out without need. */
export function say(element, text) {
  text = String(text);
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/** icon draws lines in a square of 16. */
export function icon(path) {
  const svg = document.createElementNS(svgSpace, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(svgSpace, 'path');
  line.setAttribute('d', path);
  svg.append(line);
  return svg;
}

let ids = 0;

/** newID is one that no other element has. */
export const newID = (prefix) => `${prefix}-${++ids}`;

/** link leads to a view of the page: link('keys', {policy: 'p'}, 'text'). */
export function link(view, query, ...children) {
  return h('a', { href: hash(view, query) }, ...children);
}

/** hash is the address of a view. */
export function hash(view, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') search.set(name, value);
  }
  const text = search.toString();
  return `#/${view}${text ? `?${text}` : ''}`;
}

/** morph makes what an element has like next, in place where it can, so that focus and selections stay. next has no listeners. */
export function morph(element, next) {
  const now = element.firstChild;
  if (now && element.childNodes.length === 1) become(now, next);
  else fill(element, next);
}

function become(now, next) {
  if (now.nodeName !== next.nodeName || now.childNodes.length !== next.childNodes.length) {
    now.replaceWith(next);
    return;
  }
  if (now.nodeType === Node.TEXT_NODE) {
    if (now.data !== next.data) now.data = next.data;
    return;
  }
  for (const { name } of [...now.attributes]) if (!next.hasAttribute(name)) now.removeAttribute(name);
  for (const { name, value } of [...next.attributes]) if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  // A child of next that takes the place of one of now leaves next: hence the copies.
  const children = [...next.childNodes];
  [...now.childNodes].forEach((child, i) => become(child, children[i]));
}
