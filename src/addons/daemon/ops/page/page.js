// SPDX-License-Identifier: Apache-2.0
'use strict';

// Draws the responses of /api/status and /api/entries. Every text goes through `node`, which makes text
// nodes and never parses HTML, because users choose the names of kernels.

const kRefreshMs = 2000;
const kPageSize = 100;
const kSlowest = 6;
const kTierNames = {
  memory: 'process memory',
  disk: 'store on disk',
  system: 'system store',
  daemon: 'this daemon',
  remote: 'remote store',
};
const kFallbacks = {
  absent: 'daemon not running',
  timeout: 'timeout',
  version: 'another version',
  io: 'connection lost',
  protocol: 'protocol error',
  declined: 'declined',
};

const kOrigins = { compiled: 'compiled here', imported: 'imported', remote: 'from a remote' };

const byId = (id) => document.getElementById(id);

// Replaces control characters, line ends and bidirectional marks by a visible sign.
const printable = (text) =>
  String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '␣');

function node(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === 'class') made.className = value;
    else if (name === 'on') made.addEventListener('click', value);
    else made.setAttribute(name, printable(value));
  }
  made.append(...children.map((child) => (child instanceof Node ? child : printable(child))));
  return made;
}

const count = (n) => Number(n).toLocaleString('en');
const plural = (n, one, many) => `${count(n)} ${Number(n) === 1 ? one : many}`;
const short = (key) => key.slice(0, 12);

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toPrecision(3)} ${units[unit]}`;
}

function duration(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? Number(ms).toPrecision(2) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toPrecision(3)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function age(unix) {
  const s = Date.now() / 1000 - unix;
  if (s < 60) return 'now';
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

const moment = (unix) => `${new Date(unix * 1000).toLocaleString()} (${age(unix)})`;

async function ask(path) {
  const answer = await fetch(path, { cache: 'no-store' });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

// Fills a panel's list. An empty panel shows its text for that.
function fill(panel, list, items) {
  list.replaceChildren(...items);
  panel.classList.toggle('filled', items.length > 0);
  panel.classList.remove('loading');
}

const width = (element, share) => {
  element.style.width = `${Math.round(Math.min(Math.max(share, 0), 1) * 1000) / 10}%`;
};

function bars(id, rows) {
  const panel = byId(id);
  const most = Math.max(...rows.map((row) => row.value), 1e-9);
  fill(panel, panel.querySelector('ul'), rows.map((row) => {
    const bar = node('i');
    width(bar, row.value / most);
    const what = row.open
      ? node('button', { type: 'button', class: 'link what', title: row.what, on: row.open }, row.what)
      : node('span', { class: 'what' }, row.what);
    return node('li', {}, bar, what, node('span', { class: 'number' }, row.shown));
  }));
}

function drawHealth(words, kind) {
  const pill = byId('health');
  if (pill.textContent !== words) pill.textContent = words;
  pill.className = `pill ${kind}`;
  document.body.classList.toggle('stale', kind === 'bad');
}

function drawStatus(status) {
  const { store, lookups } = status;
  drawHealth(status.draining ? 'draining' : store.bypassed ? 'no disk' : 'running',
    status.draining || store.bypassed ? 'warn' : 'good');
  byId('about').textContent = printable(
    `${status.version} · process ${status.process} · up ${duration(status.uptime_ms)} · ` +
    (store.bypassed || store.directory));

  const asked = lookups.hits + lookups.misses;
  byId('ratio').textContent = asked ? `${((100 * lookups.hits) / asked).toFixed(1)} %` : '–';
  width(byId('ratio-bar'), asked ? lookups.hits / asked : 0);
  byId('ratio-note').textContent =
    `${plural(lookups.hits, 'hit', 'hits')}, ${plural(lookups.misses, 'miss', 'misses')}`;
  byId('saved').textContent = duration(lookups.saved_ms);
  byId('saved-note').textContent =
    `${plural(lookups.compiles, 'compile', 'compiles')}, ${count(lookups.failed)} failed; ` +
    `${plural(lookups.waits, 'wait', 'waits')} for another process`;
  byId('size').textContent = bytes(store.bytes);
  width(byId('size-bar'), store.max_bytes ? store.bytes / store.max_bytes : 0);
  byId('size-note').textContent = printable(
    `${plural(store.entries, 'entry', 'entries')}, ` +
    (store.blobs ? `${plural(store.blobs, 'blob', 'blobs')} of ${bytes(store.blob_bytes)}, ` : '') +
    `cap ${bytes(store.max_bytes)}, ` +
    `${count(store.evicted)} evicted` +
    (store.damaged ? `, ${count(store.damaged)} were damaged` : ''));

  const { compiles_running: running, compiles_queued: queued, compile_waiters: waiters, compile_clients: clients } =
    status.counters;
  byId('running').textContent = count(running);
  byId('running-note').textContent = waiters === 0 ? `no client is loading, ${count(queued)} queued here` :
    `${plural(clients, 'client is loading', 'clients are loading')}: ` +
    `${plural(waiters, 'request waits', 'requests wait')}, ${count(queued)} queued here`;

  fill(byId('compiles'), byId('compiles').querySelector('tbody'), status.compiles.map((job) =>
    node('tr', { class: job.running ? '' : 'queued' },
      node('td', { class: 'name', title: job.name }, job.name),
      node('td', { 'data-head': 'Target' }, job.target),
      node('td', { 'data-head': 'Owner' }, job.orphaned ? 'disconnected' : `process ${job.owner_process}`),
      node('td', { class: 'number', 'data-head': 'Requests' }, count(job.waiters)),
      node('td', { class: 'number', 'data-head': 'Elapsed' }, job.running ? duration(job.elapsed_ms) : 'queued'))));

  bars('misses', Object.entries(lookups.misses_by_reason)
    .filter(([, n]) => n > 0)
    .map(([reason, n]) => ({ what: reason.replace('_', ' '), value: n, shown: count(n) })));

  bars('tiers', Object.entries(lookups.by_tier)
    .filter(([, tier]) => tier.hits > 0)
    .map(([name, tier]) => ({
      what: kTierNames[name] ?? name,
      value: tier.hits,
      shown: `${count(tier.hits)} · ≤ ${duration(tier.median_us / 1000)}`,
    })));
  const fallbacks = Object.entries(status.fallbacks).filter(([, n]) => n > 0);
  byId('fallbacks').textContent = printable(fallbacks.length === 0 ? '' :
    `Local fallbacks: ${fallbacks.map(([reason, n]) =>
      `${count(n)} × ${kFallbacks[reason] ?? reason}`).join(', ')}`);

  drawRemotes(status.remotes);
}

function drawRemotes(remotes) {
  const total = (counters) => Object.values(counters).reduce((sum, n) => sum + n, 0);
  const rejected = Object.entries(remotes.rejected).filter(([, n]) => n > 0);
  fill(byId('remotes'), byId('remotes').querySelector('ul'), remotes.servers.map((server) =>
    node('li', {},
      node('span', { class: `dot ${server.circuit_open ? 'bad' : ''}` }),
      server.where,
      node('div', { class: 'quiet' }, server.circuit_open ? 'circuit open after failures' : 'in use'))));
  byId('remotes-note').textContent = printable(remotes.servers.length === 0 ? '' :
    `${plural(remotes.hits, 'hit', 'hits')}, ${plural(remotes.misses, 'miss', 'misses')}, ` +
    `${count(remotes.skipped)} skipped; ${plural(total(remotes.requests), 'request', 'requests')}, ` +
    `${bytes(remotes.received_bytes)} in, ${bytes(remotes.sent_bytes)} out; ` +
    `${plural(remotes.stored, 'upload', 'uploads')}, ${count(remotes.dropped)} dropped`);
  byId('remotes-problem').textContent = printable(rejected.length === 0 ? '' :
    `Rejected: ${rejected.map(([reason, n]) => `${count(n)} for ${reason.replace(/_/g, ' ')}`).join(', ')}`);
}

// The query of the inventory is kept in the address, so that a link shows the same entries.
const view = { q: '', target: '', origin: '', sort: 'used', key: '', limit: kPageSize };

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of ['q', 'target', 'origin', 'key']) view[name] = given.get(name) ?? '';
  view.sort = given.get('sort') ?? 'used';
  byId('search').value = view.q;
  byId('origin').value = view.origin;
}

function writeAddress(push) {
  const parameters = new URLSearchParams();
  for (const name of ['q', 'target', 'origin', 'key']) if (view[name]) parameters.set(name, view[name]);
  if (view.sort !== 'used') parameters.set('sort', view.sort);
  const hash = `#${parameters}`;
  if (hash === (location.hash || '#')) return;
  if (push) history.pushState(null, '', hash);
  else history.replaceState(null, '', hash);
}

let lastQuery = 0;

async function drawInventory() {
  const panel = byId('inventory');
  const problem = panel.querySelector('.problem');
  const number = (lastQuery += 1);
  const { q, target, origin, sort, limit } = view;
  try {
    const found = await ask(`api/entries?${new URLSearchParams({ q, target, origin, sort, limit })}`);
    if (number !== lastQuery) return; // a later query was sent
    problem.hidden = true;
    fill(panel, panel.querySelector('tbody'), found.entries.map((entry) => {
      const row = node('tr', { on: () => openEntry(entry.key) },
        node('td', { class: 'name' },
          node('button', { type: 'button', class: 'link', title: entry.name }, entry.name || '(no name)')),
        node('td', { class: 'mono', 'data-head': 'Key' }, short(entry.key)),
        node('td', { 'data-head': 'Target' }, entry.target),
        node('td', { class: 'number', 'data-head': 'Cubin' }, bytes(entry.cubin_bytes)),
        node('td', { class: 'number', 'data-head': 'Compile' }, duration(entry.compile_ms)),
        node('td', { class: 'number', 'data-head': 'Hits' }, count(entry.hits)),
        node('td', { class: 'number', 'data-head': 'Used' }, age(entry.last_used)));
      row.dataset.key = entry.key;
      return row;
    }));
    byId('matching').textContent = found.matching === found.all
      ? `${plural(found.all, 'entry', 'entries')}, ${bytes(found.matching_bytes)}`
      : `${count(found.matching)} of ${plural(found.all, 'entry', 'entries')}, ${bytes(found.matching_bytes)}`;
    byId('more').hidden = found.entries.length >= found.matching || limit >= 500;
    drawTargets(found.targets);
  } catch (error) {
    if (number !== lastQuery) return;
    problem.textContent = printable(error.message);
    problem.hidden = false;
  }
  for (const button of panel.querySelectorAll('[data-sort]')) {
    const direction = button.dataset.sort === 'name' ? 'ascending' : 'descending';
    button.closest('th').setAttribute('aria-sort', button.dataset.sort === view.sort ? direction : 'none');
  }
}

function drawTargets(targets) {
  const select = byId('target');
  const known = new Set(targets);
  if (view.target) known.add(view.target);
  const wanted = ['', ...[...known].sort()];
  if (wanted.join() !== [...select.options].map((option) => option.value).join()) {
    select.replaceChildren(...wanted.map((name) => node('option', { value: name }, name || 'all')));
  }
  select.value = view.target;
}

async function drawSlowest() {
  try {
    const found = await ask(`api/entries?sort=time&limit=${kSlowest}`);
    bars('slowest', found.entries.map((entry) => ({
      what: `${entry.name} · ${entry.target}`,
      value: entry.compile_ms,
      shown: duration(entry.compile_ms),
      open: () => openEntry(entry.key),
    })));
  } catch {
    // drawInventory shows the error.
  }
}

const fields = (rows) => node('dl', {}, ...rows.filter(([, value]) => value !== '' && value != null)
  .flatMap(([name, value, kind]) => [node('dt', {}, name), node('dd', { class: kind ?? '' }, value)]));

const lines = (text) => {
  const box = node('pre');
  box.textContent = text.split('\n').map(printable).join('\n');
  return box;
};

const table = (heads, rows) => node('div', { class: 'scroll' }, node('table', {},
  node('thead', {}, node('tr', {}, ...heads.map(([name, kind]) => node('th', { class: kind ?? '' }, name)))),
  node('tbody', {}, ...rows.map((row) =>
    node('tr', {}, ...row.map((cell, i) => node('td', { class: heads[i][1] ?? '', 'data-head': heads[i][0] }, cell)))))));

function drawEntry(entry) {
  const parts = [
    fields([
      ['key', entry.key, 'mono'],
      ['target', entry.target],
      ['source', entry.source],
      ['cubin', bytes(entry.cubin_bytes)],
      ['compiler', entry.compiler],
      ['flags', entry.request.arguments.join(' '), 'mono'],
      ['without effect', entry.dropped_flags, 'mono'],
      ['names', entry.request.names.join(', '), 'mono'],
      ['request', entry.request.digest, 'mono'],
    ]),
    node('h3', {}, 'History'),
    fields([
      [kOrigins[entry.origin] ?? entry.origin, moment(entry.created)],
      ['took', duration(entry.compile_ms)],
      ['last used', moment(entry.last_used)],
      ['hits', count(entry.hits)],
      ['signed by', entry.signer],
    ]),
    node('h3', {}, plural(entry.kernels.length, 'kernel', 'kernels')),
    table([['Name', 'mono'], ['Registers', 'number'], ['Shared', 'number'], ['Local', 'number'], ['Spills', 'number']],
      entry.kernels.map((kernel) => [kernel.name, count(kernel.registers), bytes(kernel.shared_bytes),
        bytes(kernel.local_bytes), bytes(kernel.spill_bytes)])),
    ...(entry.variables.length > 0 ? [
      node('h3', {}, plural(entry.variables.length, 'variable', 'variables')),
      table([['Name', 'mono'], ['Size', 'number'], ['Memory', 'text']],
        entry.variables.map((one) => [one.name, bytes(one.size_bytes), one.is_constant ? 'constant' : 'global'])),
    ] : []),
    node('h3', {}, `Depends on ${plural(entry.dependencies.length, 'file', 'files')}`),
    table([['Path', 'mono'], ['Digest', 'mono']],
      entry.dependencies.map((file) => [file.path, short(file.digest)])),
  ];
  if (entry.absent.length > 0) {
    parts.push(node('h3', {}, plural(entry.absent.length, 'absent path', 'absent paths')),
      lines(entry.absent.join('\n')));
  }
  parts.push(node('h3', {}, 'Log'), entry.log ? lines(entry.log) : node('p', { class: 'quiet' }, 'nothing'));
  byId('entry-name').textContent = printable(entry.name || '(no name)');
  byId('entry-body').replaceChildren(...parts);
}

async function showEntry() {
  const dialog = byId('entry');
  if (!view.key) {
    dialog.close();
    return;
  }
  const { key } = view;
  try {
    const entry = await ask(`api/entries/${encodeURIComponent(key)}`);
    if (key !== view.key) return;
    drawEntry(entry);
  } catch (error) {
    if (key !== view.key) return;
    byId('entry-name').textContent = printable(short(key));
    byId('entry-body').replaceChildren(node('p', { class: 'problem' }, error.message));
  }
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function openEntry(key) {
  view.key = key;
  writeAddress(true);
  showEntry();
}

function askAgain() {
  view.limit = kPageSize;
  writeAddress(false);
  drawInventory();
}

let drawn = '';

async function refresh() {
  try {
    const status = await ask('api/status');
    drawStatus(status);
    // The lists are loaded again when the store has changed.
    const { entries, stored, evicted, generation } = status.store;
    const now = [entries, stored, evicted, generation, status.lookups.hits].join();
    if (now !== drawn) {
      drawn = now;
      await Promise.all([drawInventory(), drawSlowest()]);
    }
  } catch (error) {
    drawHealth('no response', 'bad');
    byId('about').textContent = printable(error.message);
    drawn = '';
  }
}

async function keepFresh() {
  if (!document.hidden) await refresh();
  setTimeout(keepFresh, kRefreshMs);
}

let typing = 0;
byId('search').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    view.q = byId('search').value;
    askAgain();
  }, 150);
});
for (const name of ['target', 'origin']) {
  byId(name).addEventListener('change', () => {
    view[name] = byId(name).value;
    askAgain();
  });
}
document.querySelector('form').addEventListener('submit', (event) => event.preventDefault());
for (const button of document.querySelectorAll('[data-sort]')) {
  button.addEventListener('click', () => {
    view.sort = button.dataset.sort;
    askAgain();
  });
}
byId('more').addEventListener('click', () => {
  view.limit = 500;
  drawInventory();
});
byId('close').addEventListener('click', () => byId('entry').close());
byId('entry').addEventListener('click', (event) => {
  if (event.target === byId('entry')) byId('entry').close(); // beside it
});
byId('entry').addEventListener('close', () => {
  if (view.key) {
    view.key = '';
    writeAddress(true);
  }
});
addEventListener('popstate', () => {
  readAddress();
  drawInventory();
  showEntry();
});
addEventListener('keydown', (event) => {
  const inField = ['INPUT', 'SELECT', 'TEXTAREA'].includes(document.activeElement?.tagName);
  if (event.key === '/' && !inField && !byId('entry').open) {
    event.preventDefault();
    byId('search').focus();
  }
});

readAddress();
if (view.key) showEntry();
keepFresh();
