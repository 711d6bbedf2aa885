// SPDX-License-Identifier: Apache-2.0
'use strict';

// Draws the entry that is in the element `data`. Every text goes through `node`, which makes text nodes and
// never parses HTML, because others choose the names, sources, flags and logs of modules.

const data = JSON.parse(document.getElementById('data').textContent);
const { entry } = data;
const kWarp = 32;
const kRegistersOfPartition = 16384; // of the four of an SM, which share no registers
const kRegisterGranularity = 256; // of a warp
const kGuessedThreads = 256;

// Replaces control characters, line ends and bidirectional marks by a visible sign.
const printable = (text) =>
  String(text).replace(/[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '␣');

function node(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name === 'class') element.className = value;
    else if (name === 'on') element.addEventListener('click', value);
    else element.setAttribute(name, printable(value));
  }
  element.append(...children.map((child) => (child instanceof Node ? child : printable(child))));
  return element;
}

const count = (n) => Number(n).toLocaleString('en');
const plural = (n, one, many) => `${count(n)} ${Number(n) === 1 ? one : many}`;
const short = (digest) => digest.slice(0, 12);
const moment = (unix) => (unix ? new Date(unix * 1000).toLocaleString() : 'not recorded');

function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1 << 20 ? `${Number((n / 1024).toPrecision(3))} KiB` : `${Number((n / 1048576).toPrecision(3))} MiB`;
}

const table = (heads, rows) => node('div', { class: 'scroll' }, node('table', {},
  node('thead', {}, node('tr', {}, ...heads.map(([name, kind]) => node('th', { class: kind ?? '' }, name)))),
  node('tbody', {}, ...rows.map((row) =>
    node('tr', {}, ...row.map((cell, i) => node('td', { class: heads[i][1] ?? '', 'data-head': heads[i][0] },
      node('span', {}, cell))))))));

const fields = (rows) => node('dl', {}, ...rows.filter(([, value]) => value !== '' && value != null)
  .flatMap(([name, value, kind]) => [node('dt', {}, name), node('dd', { class: kind ?? '' }, value)]));

const section = (title, ...children) => node('section', {}, node('h2', {}, title), ...children);

const textLines = (text) => {
  const box = node('pre');
  box.textContent = text.split('\n').map(printable).join('\n');
  return box;
};

// --- Where instructions come from. A position is `path:line`; those of a line begin with the innermost one, and
// --- go on with where that was inlined.

const isInstruction = (line) => /^\s*\{?\s*[^.\/{}\s]/.test(line) && !/^\s*[\w$]+:/.test(line);

function positionsInPtx(lines) {
  const all = lines.map(() => []);
  const inlinedAt = new Map(); // `file line column` to that of the call
  let table = new Map();
  let current = [];
  lines.forEach((line, i) => {
    if (/^\.version\b/.test(line)) { // each source of a linked module has files of its own
      table = new Map();
      for (let j = i; j < lines.length && (j === i || !/^\.version\b/.test(lines[j])); j += 1) {
        const file = lines[j].match(/^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"/);
        if (file) table.set(file[1], file[2].replace(/\\(.)/g, '$1'));
      }
      inlinedAt.clear();
    }
    const loc = line.match(/^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?/);
    if (loc) {
      const [, file, row, column, ...call] = loc;
      if (call[0]) inlinedAt.set(`${file} ${row} ${column}`, call.join(' '));
      current = [];
      for (let at = `${file} ${row} ${column}`; at && current.length < 32; at = inlinedAt.get(at)) {
        const [f, r] = at.split(' ');
        current.push(`${table.get(f)}:${r}`);
      }
    } else if (/^\s*(\.\w+ )*\.(entry|func)\b/.test(line)) {
      current = [];
    } else if (isInstruction(line)) {
      all[i] = current;
    }
  });
  return all;
}

function positionsInSass(lines) {
  const all = lines.map(() => []);
  let current = [];
  let inGroup = false;
  lines.forEach((line, i) => {
    const mark = line.match(/^\s*\/\/## File "(.*?)", line (\d+)/);
    if (mark) {
      if (!inGroup) current = [];
      current.push(`${mark[1]}:${mark[2]}`);
    } else if (/^\s*\/\*[0-9a-f]+\*\/\s/.test(line)) {
      all[i] = current;
    } else if (/^\s*\.section\b/.test(line)) {
      current = [];
    }
    inGroup = mark !== null;
  });
  return all;
}

const links = new Map(); // a position to the lines that have it
const positions = new Map(); // of a line that has some
const kinds = new Map(); // a position to the panes that have it, and `innermost ` and it to those where it is that
const starts = { ptx: new Map(), sass: new Map() }; // the first line of a kernel, by symbol

const entryOf = (map, key, make) => map.get(key) ?? map.set(key, make()).get(key);

function link(line, kind, at) {
  if (at.length === 0) return;
  positions.set(line, at);
  for (const position of at) {
    entryOf(links, position, () => []).push(line);
    entryOf(kinds, position, () => new Set()).add(kind);
  }
  entryOf(kinds, `innermost ${at[0]}`, () => new Set()).add(kind);
}

/** Whether another pane has a line of the same place; see partnersOf. */
function isLinked(line) {
  const at = positions.get(line);
  return kindOf(line) === 'source' ? at.some((position) => kinds.get(position).size > 1)
    : at.some((position) => kinds.get(position).has('source')) || kinds.get(`innermost ${at[0]}`).size > 1;
}

const lineNode = (number, text) => node('div', {}, node('i', {}, number), node('span', {}, text));

function codePane(kind, title, code, parse) {
  const box = node('div', { class: 'lines', tabindex: '0', role: 'region', 'aria-label': title });
  box.dataset.kind = kind;
  if (code.text === undefined) {
    return node('div', { class: 'pane' }, node('h3', {}, title), node('p', {}, `Not available: ${code.problem}`),
      ...(code.log ? [textLines(code.log)] : []));
  }
  const lines = code.text.split('\n');
  const at = parse(lines);
  lines.forEach((text, i) => {
    if (/^\s*\/\/## File "/.test(text)) return;
    // nvdisasm leaves room for predicates; a narrow pane has none.
    const line = lineNode(box.children.length + 1, text.replace(/^ {8}(\/\*[0-9a-f]+\*\/) {11}/, '$1'));
    if (/^\s*\.(loc|file)\b/.test(text)) line.className = 'quiet';
    link(line, kind, at[i]);
    const start = text.match(/\.entry\s+([\w$]+)/) ?? text.match(/^\.text\.([\w$]+):/) ?? text.match(/Function : ([\w$]+)/);
    if (start) starts[kind].set(start[1], line);
    box.append(line);
  });
  return node('div', { class: 'pane' }, node('h3', {}, title), box);
}

function sourcePane() {
  const box = node('div', { class: 'lines', tabindex: '0', role: 'region', 'aria-label': 'Source' });
  box.dataset.kind = 'source';
  const problems = [];
  for (const { path, text, problem } of data.sources) {
    if (text === undefined) {
      problems.push(node('p', {}, `Not available: ${problem}`));
      continue;
    }
    if (data.sources.length > 1) box.append(node('div', { class: 'path' }, path));
    // Line tables have a program's relative names below its folder.
    const named = path.startsWith('/') ? path : `${entry.request.working_folder}/${path}`;
    text.replace(/\n$/, '').split('\n').forEach((content, i) => {
      const line = lineNode(i + 1, content);
      link(line, 'source', [...new Set([`${path}:${i + 1}`, `${named}:${i + 1}`])]);
      box.append(line);
    });
  }
  return node('div', { class: 'pane' }, node('h3', {}, 'Source'), ...problems, ...(box.children.length ? [box] : []));
}

const kindOf = (line) => line.parentElement.dataset.kind;

/** The lines of the other panes that come from the same places. */
function partnersOf(line) {
  const at = positions.get(line) ?? [];
  const own = kindOf(line);
  const partners = new Set();
  at.forEach((position, depth) => {
    for (const other of links.get(position) ?? []) {
      // Between PTX and SASS only the innermost position counts: all of a kernel may share an outer one.
      const both = own !== 'source' && kindOf(other) !== 'source';
      const isPartner = both ? depth === 0 && positions.get(other)[0] === position : true;
      if (kindOf(other) !== own && isPartner) partners.add(other);
    }
  });
  return partners;
}

let pinned = null;
const status = node('output', { class: 'quiet', 'aria-live': 'polite' });

function mark(line) {
  for (const old of document.querySelectorAll('.hot')) old.classList.remove('hot');
  if (!line) {
    status.textContent = '';
    return;
  }
  const partners = [...partnersOf(line)];
  for (const one of [line, ...partners]) one.classList.add('hot');
  const of = (kind) => partners.filter((other) => kindOf(other) === kind).length;
  status.textContent = `${kindOf(line) === 'source' ? 'Line' : 'From line'} ${
    kindOf(line) === 'source' ? line.firstChild.textContent : partners.find((p) => kindOf(p) === 'source')?.firstChild.textContent ?? '–'
  }: ${count(of('ptx'))} PTX and ${count(of('sass'))} SASS instructions`;
}

const show = (line) => {
  if (line) line.parentElement.scrollTop = line.offsetTop - line.parentElement.clientHeight / 3;
};

function pin(line) {
  pinned?.classList.remove('pinned');
  pinned = line === pinned ? null : line;
  mark(pinned);
  if (!pinned) return;
  pinned.classList.add('pinned');
  const partners = [...partnersOf(pinned)];
  for (const kind of ['source', 'ptx', 'sass']) show(partners.find((other) => kindOf(other) === kind));
}

function drawCode() {
  const panes = node('div', { class: 'code' }, sourcePane(),
    codePane('ptx', 'PTX', data.ptx, positionsInPtx), codePane('sass', 'SASS', data.sass, positionsInSass));
  for (const line of positions.keys()) line.classList.toggle('linked', isLinked(line));
  const lineAt = (event) => event.target.closest('.linked');
  panes.addEventListener('pointerover', (event) => {
    if (!pinned && lineAt(event)) mark(lineAt(event));
  });
  panes.addEventListener('click', (event) => {
    if (lineAt(event)) pin(lineAt(event));
  });
  panes.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Escape' && pinned) pin(pinned);
    if (!step || event.ctrlKey || event.altKey) return;
    const lines = [...event.target.querySelectorAll('.linked')];
    const next = lines[lines.indexOf(pinned) + step] ?? lines[0];
    if (next) {
      event.preventDefault();
      if (next !== pinned) pin(next);
      show(next);
    }
  });
  const how = panes.querySelector('.linked')
    ? 'Point at a line with a coloured number to see what it became or where it comes from; click to hold it, then ↑ and ↓ go on.'
    : 'Lines are not linked: compile the module with -lineinfo for that.';
  const isCode = data.ptx.text !== undefined || data.sass.text !== undefined;
  return section('Code', ...(isCode ? [node('p', { class: 'quiet' }, how), status] : []), panes);
}

// --- Occupancy

const roundUp = (n, unit) => Math.ceil(n / unit) * unit;

/** How many blocks an SM holds, and what limits them. */
function occupancy(limits, kernel, threads, dynamicBytes) {
  const warps = Math.ceil(threads / kWarp);
  const perWarp = roundUp(Math.max(kernel.registers, 1) * kWarp, kRegisterGranularity);
  const shared = roundUp(kernel.shared_bytes + dynamicBytes + limits.reserved_bytes, limits.shared_granularity);
  const most = [
    ['blocks', limits.blocks],
    ['warps', Math.floor(limits.warps / warps)],
    ['registers', Math.floor((Math.floor(kRegistersOfPartition / perWarp) * 4) / warps)],
    ['shared memory', shared ? Math.floor(limits.shared_bytes / shared) : limits.blocks],
  ];
  const blocks = Math.min(...most.map(([, n]) => n));
  return {
    blocks,
    warps: blocks * warps,
    share: (blocks * warps) / limits.warps,
    by: most.filter(([, n]) => n === blocks).map(([name]) => name).join(', '),
  };
}

function drawOccupancy() {
  const kernel = node('select', { id: 'kernel' }, ...entry.kernels.map((one, i) => node('option', { value: i }, one.name)));
  const threads = node('input', { id: 'threads', type: 'number', min: 1, max: 1024, step: 1 });
  const dynamic = node('input', { id: 'dynamic', type: 'number', min: 0, step: 1, value: 0 });
  const result = node('div');
  const note = node('p', { class: 'quiet' });
  const limitOf = () => data.max_threads[entry.kernels[kernel.value].lowered];
  const draw = () => {
    const n = Math.min(Math.max(Math.floor(Number(threads.value)) || 1, 1), limitOf() ?? 1024);
    const extra = Math.max(Math.floor(Number(dynamic.value)) || 0, 0);
    result.replaceChildren(table(
      [['Capability'], ['Blocks per SM', 'number'], ['Warps per SM', 'number'], ['Occupancy', 'number'], ['Limited by'],
        ['Registers per SM', 'number'], ['Shared memory per SM', 'number'], ['Per block at most', 'number']],
      data.limits.map((limits) => {
        const got = occupancy(limits, entry.kernels[kernel.value], n, extra);
        return [limits.capability, `${got.blocks} of ${limits.blocks}`, `${got.warps} of ${limits.warps}`,
          `${Math.round(got.share * 100)} %`, got.by, '65,536', bytes(limits.shared_bytes),
          bytes(limits.shared_bytes - limits.reserved_bytes)];
      })));
    note.textContent = `${limitOf() ? `The kernel takes blocks of at most ${count(limitOf())} threads (__launch_bounds__). ` :
      'The kernel has no __launch_bounds__. '}Figures are NVIDIA's; clusters, named barriers and setmaxnreg are not counted.`;
  };
  const choose = () => {
    threads.value = limitOf() ?? kGuessedThreads;
    draw();
  };
  kernel.addEventListener('change', choose);
  for (const input of [threads, dynamic]) input.addEventListener('input', draw);
  choose();
  const form = node('form', {}, node('label', {}, 'Kernel', kernel), node('label', {}, 'Threads per block', threads),
    node('label', {}, 'Dynamic shared memory, bytes', dynamic));
  form.addEventListener('submit', (event) => event.preventDefault());
  return section('Occupancy', form, data.limits.length ? result : node('p', {}, `The limits of ${entry.target} are not known to cukiln ${data.version}.`), note);
}

function drawKernels() {
  const open = (kernel) => {
    for (const kind of ['ptx', 'sass']) show(starts[kind].get(kernel.lowered));
    document.querySelector('.code').scrollIntoView({ block: 'nearest' });
  };
  const parts = [table(
    [['Kernel', 'mono'], ['Registers', 'number'], ['Shared', 'number'], ['Local', 'number'], ['Spills', 'number'], ['Threads at most', 'number'], ['Symbol', 'mono']],
    entry.kernels.map((kernel) => [
      node('button', { type: 'button', class: 'link', on: () => open(kernel) }, kernel.name),
      count(kernel.registers), bytes(kernel.shared_bytes), bytes(kernel.local_bytes),
      node('span', { class: kernel.spill_bytes ? 'bad' : '' }, bytes(kernel.spill_bytes)),
      data.max_threads[kernel.lowered] ? count(data.max_threads[kernel.lowered]) : '–',
      kernel.lowered === kernel.name ? 'same' : kernel.lowered]))];
  if (entry.variables.length > 0) {
    parts.push(table([['Variable', 'mono'], ['Size', 'number'], ['Memory'], ['Symbol', 'mono']],
      entry.variables.map((one) => [one.name, bytes(one.size_bytes), one.is_constant ? 'constant' : 'global',
        one.lowered === one.name ? 'same' : one.lowered])));
  }
  return section('Kernels', ...parts);
}

function drawInputs() {
  const { request } = entry;
  const files = (list) => list.map((one) => `${one.path} (${bytes(one.size_bytes)}, ${short(one.digest)})`).join('\n');
  const library = ({ version, digest }) => `${version}, library ${short(digest)}`;
  return section('Inputs', fields([
    ['key', entry.key, 'mono'],
    ['request', request.digest, 'mono'],
    ['target', request.target],
    ['output', `${request.output}, ${bytes(entry.cubin_bytes)}`],
    ['compiler', `nvrtc ${library(request.compiler)}`],
    ['linker', request.link ? `nvjitlink ${library(request.link.linker)}` : ''],
    ['link options', request.link ? request.link.options.join(' ') : '', 'mono'],
    ['objects', request.link && request.link.objects.length ? textLines(files(request.link.objects)) : ''],
    ['sources', textLines(files(request.sources))],
    ['headers as texts', request.headers.length ? textLines(files(request.headers)) : ''],
    ['flags', textLines(request.arguments.join('\n'))],
    ['dropped', entry.dropped_flags, 'mono'],
    ['names', request.names.length ? textLines(request.names.join('\n')) : ''],
    ['folder', request.working_folder, 'mono'],
    [entry.origin, moment(entry.created)],
    ['compile time', entry.compile_ms ? `${count(Math.round(entry.compile_ms))} ms` : ''],
    ['signed by', entry.signers.join(', ')],
  ]));
}

function drawDependencies() {
  const absent = entry.absent.length === 0 ? [] : [node('details', {},
    node('summary', {}, `${plural(entry.absent.length, 'path', 'paths')} searched and absent`), textLines(entry.absent.join('\n')))];
  return section(`Dependencies: ${plural(entry.dependencies.length, 'file', 'files')}`,
    ...(entry.portable ? [] : [node('p', { class: 'bad' }, 'Not portable: a file outside the source and include folders was read.')]),
    ...(entry.dependencies.length ? [table([['Path', 'mono'], ['Digest', 'mono']], entry.dependencies.map((file) => [
      file.path, node('span', { title: file.digest }, short(file.digest))]))] : []),
    ...absent);
}

document.title = printable(`${entry.name} for ${entry.target}`);
document.querySelector('noscript').remove();
const code = drawCode();
document.body.append(
  node('header', {}, node('h1', {}, entry.name || '(no name)'),
    node('p', { class: 'quiet' }, `${entry.source} for ${entry.target} · ${short(entry.key)} · cukiln ${data.version}`)),
  node('main', {}, drawKernels(), ...(entry.kernels.length ? [drawOccupancy()] : []), code,
    node('div', { class: 'two' }, drawInputs(), node('div', {}, drawDependencies(),
      section('Log', entry.log ? textLines(entry.log) : node('p', { class: 'quiet' }, 'empty'))))));
