// What the page asks the server: JSON over fetch, with the token of the operator if the server wants one.

// The page is served under /ui/, perhaps behind a proxy that puts something before it.
const root = new URL('../', new URL('.', document.baseURI));
const tokenName = 'weir.token';

let token = '';
try {
  token = sessionStorage.getItem(tokenName) ?? '';
} catch {
  /* storage is switched off: the token lives as long as the page */
}

/** Problem is why a server did not do what it was asked for. */
export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server replied with status ${status}`);
    this.status = status;
    this.mistakes = problem.mistakes ?? []; // of a configuration
  }
}

let askForToken = async () => false;

/** onLocked says who asks the operator for a token: f answers whether there is a new one. */
export function onLocked(f) {
  let asking = null;
  askForToken = () => {
    asking ??= f().finally(() => {
      asking = null;
    });
    return asking;
  };
}

/** tryToken asks the server whether it takes a token, and keeps it for this tab if so. */
export async function tryToken(text) {
  // A token is printable ASCII: fetch would not send anything else.
  if (!/^[!-~]+$/.test(text)) throw new Problem(0, { detail: 'A token is printable ASCII without spaces.' });
  const response = await fetch(new URL('v1/admin/overview', root), {
    headers: { Authorization: `Bearer ${text}`, Accept: 'application/json' },
    cache: 'no-store',
    redirect: 'error',
  }).catch(() => {
    throw new Problem(0, { detail: 'The server cannot be reached.' });
  });
  if (!response.ok)
    throw response.status === 401
      ? new Problem(401, { detail: 'The server does not know this token.' })
      : await problemOf(response);
  token = text;
  try {
    sessionStorage.setItem(tokenName, text);
  } catch {
    /* see above */
  }
}

async function request(path, options) {
  for (;;) {
    const sent = token;
    const headers = { Accept: 'application/json', ...options.headers };
    if (sent) headers.Authorization = `Bearer ${sent}`;
    let response;
    try {
      response = await fetch(new URL(path.replace(/^\//, ''), root), {
        ...options,
        headers,
        cache: 'no-store',
        redirect: 'error',
      });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Problem(0, { detail: 'The server cannot be reached.' });
    }
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status !== 401) throw problem;
    if (token === sent && !(await askForToken())) throw problem;
  }
}

async function problemOf(response) {
  let said = {};
  try {
    said = JSON.parse(await response.text());
  } catch {
    /* not from weir */
  }
  if (response.status === 429) said.detail ||= 'The server was asked too often: wait a moment.';
  return new Problem(response.status, said ?? {});
}

/** get reads what a path answers. */
export async function get(path, query = {}, signal = undefined) {
  const response = await request(withQuery(path, query), { signal });
  return response.json();
}

/** text reads what a path answers as text. */
export async function text(path, query = {}, signal = undefined) {
  const response = await request(withQuery(path, query), { signal, headers: { Accept: 'text/plain' } });
  return response.text();
}

/** post sends an object, and reads the answer. */
export async function post(path, body, signal = undefined) {
  const response = await request(path, {
    method: 'POST',
    signal,
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  return response.json();
}

function withQuery(path, query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) search.set(name, value);
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

// EventSource cannot send a token: the stream is read with fetch.
const silence = 15_000;

/**
 * events calls got with the name and the object of each event, and state with "live", "lost" and
 * "locked", which ends it: there is no token.
 */
export async function events(path, got, state) {
  for (let wait = 500; ; wait = Math.min(2 * wait, 10_000)) {
    const began = Date.now();
    try {
      await stream(path, got, () => state('live'));
    } catch (error) {
      if (error.status === 401) {
        state('locked');
        return;
      }
      console.info(`weir: events: ${error.message}`);
    }
    state('lost');
    if (Date.now() - began > 30_000) wait = 500;
    await new Promise((resolve) => {
      setTimeout(resolve, wait);
    });
  }
}

async function stream(path, got, live) {
  const ended = new AbortController();
  let watch = setTimeout(() => ended.abort(), silence);
  try {
    const response = await request(path, { signal: ended.signal, headers: { Accept: 'text/event-stream' } });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => ended.abort(), silence);
      rest += value.replaceAll('\r\n', '\n');
      const blocks = rest.split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parse(block);
        if (event) {
          live();
          got(event.name, event.data);
        }
      }
    }
  } finally {
    clearTimeout(watch);
    ended.abort();
  }
}

function parse(block) {
  let name = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/.exec(line) ?? [];
    if (field === 'event') name = value ?? '';
    else if (field === 'data') data.push(value ?? '');
  }
  if (!data.length) return null;
  return { name, data: JSON.parse(data.join('\n')) };
}
