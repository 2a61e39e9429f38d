"use strict";
(async () => {
const $ = (id) => document.getElementById(id);
if (!("DecompressionStream" in window)) return;
const packed = Uint8Array.from(atob($("data").textContent), (letter) => letter.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
const { kinds, trees: packed_trees, paired, sentences, kind_words, unit_words } = JSON.parse(await new Response(stream).text());
// Rising numbers are kept as their steps, which pack better.
const summed = (steps) => { let at = 0; return steps.map((step) => (at += step)); };
const trees = packed_trees.map((one) => ({ ...one, parent: summed(one.parent),
  ...Object.fromEntries(["base", "head"].filter((side) => one[side]).map((side) => [side, { ...one[side], node: summed(one[side].node) }])) }));
// The page's language comes with the data: its sentences by their English ones, with {name} for every value.
const word = (english, values) => sentences[english].replace(/\{(\w+)\}/g, (_, name) => values[name]);
const ROW = 18, THINNEST = 0.4, ALL = -1, FONT = "11px ui-monospace, Menlo, Consolas, monospace";
const dark = matchMedia("(prefers-color-scheme: dark)");
const HUES = { thread: 220, stream: 220, python: 205, host_op: 28, annotation: 265, runtime: 50, compute: 350, copy: 165, comm: 300, fused: 325, other: 220 };
const OPERATORS = new Set(["host_op", "compute", "copy", "comm", "fused"]);
const canvas = $("canvas"), pen = canvas.getContext("2d"), tip = $("tip");
// One frame is a number: a node of the tree, or the size of the tree for the chosen tracks together.
let marks = new Map(), sums = new Map(), whole, tree, size, first, children, base, head, weight, roots, zoomed, focused, pointed = ALL, matches = null, drawn = [], levels = 0;

function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  if (parent) parent.append(made);
  return made;
}
function options(select, names) {
  select.replaceChildren();
  names.forEach(([value, text]) => { element("option", text, select).value = value; });
}
function seconds(value) {
  const size = Math.abs(value);
  const [scale, unit] = size >= 1 || size === 0 ? [1, "s"] : size >= 1e-3 ? [1e3, "ms"] : size >= 1e-6 ? [1e6, "µs"] : [1e9, "ns"];
  return `${Number((value * scale).toPrecision(4))} ${unit}`;
}
const amount = (value) => $("shares").checked ? word("{share} of the total", { share: `${Number((100 * value).toPrecision(3))} %` }) : seconds(value);
const signed = (value) => (value > 0 ? "+" : "") + amount(value);
const share = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(part / whole < 0.1 ? 2 : 1)} %` : "");
const compares = () => tree.base && tree.head;
// Where the traced times say otherwise than the pairs, or these say nothing, frames differ by how often they ran alone.
const byCounts = () => Boolean(tree.result?.by_counts);
const differing = (node) => byCounts() ? head.runs[node] - base.runs[node] : head.total[node] - base.total[node];
// Operators that the decision names or whose times the pairs decided. Names of a derived tree begin with those of the whole one.
const markOf = (node) => (node < size && OPERATORS.has(kinds[tree.kind[node]]) ? marks.get(tree.name[node]) : undefined);
// A difference that the pairs decided is seen however small a part of the operator's time it is.
const FAINTEST = 0.2;
const spent = (mark) => Math.max(...sums.get(mark)) || Infinity;
const decided = (node) => markOf(node)?.seconds ?? 0;
const worded = (node) => byCounts() && decided(node) ? more(decided(node)) : difference(differing(node));
const more = (time) => (time > 0 ? "+" : "") + seconds(time);
const difference = (value) => byCounts() ? word("{count} runs", { count: (value > 0 ? "+" : "") + Number(value.toPrecision(6)) }) : signed(value);
const text = (at) => (at < 0 ? "" : tree.texts[at]);
const nameOf = (node) => (node === size ? word("all") : text(tree.name[node]));
const above = (node) => (node === size ? ALL : roots.includes(node) ? size : tree.parent[node]);
const isStream = (node) => kinds[tree.kind[node]] === "stream";

// What each frame took in one call, for the chosen request: its own seconds, including callees, and how often it ran.
function costs(side) {
  const own = new Float64Array(size + 1), total = new Float64Array(size + 1), runs = new Float64Array(size + 1);
  if (side) {
    const wanted = $("requests").value, only = wanted === "all" ? null : Number(wanted);
    for (let at = 0; at < side.node.length; at++) {
      if (only !== null && side.request[at] !== only) continue;
      own[side.node[at]] += side.own[at] / side.units / 1e9;
      runs[side.node[at]] += side.count[at] / side.units;
    }
  }
  for (let node = size - 1; node >= 0; node--) {
    total[node] += own[node];
    if (tree.parent[node] >= 0) total[tree.parent[node]] += total[node];
  }
  roots.forEach((node) => { total[size] += total[node]; });
  if ($("shares").checked && total[size] > 0) {
    const sum = total[size];
    for (let node = 0; node <= size; node++) { own[node] /= sum; total[node] /= sum; }
  }
  return { own, total, runs };
}
function chooseTree() {
  whole = trees[$("trees").value];
  marks = new Map((whole.result?.marks ?? []).map((one) => [one.name, one]));
  $("views").value = "all";
  show(whole);
}
// The tree that is drawn: the whole one, or one that is made of it.
function show(shown) {
  tree = shown;
  size = tree.parent.length;
  const count = new Int32Array(size + 1);
  tree.parent.forEach((node) => { if (node >= 0) count[node + 1]++; });
  first = count;
  for (let at = 1; at <= size; at++) first[at] += first[at - 1];
  const next = first.slice();
  children = new Int32Array(first[size]);
  tree.parent.forEach((node, at) => { if (node >= 0) children[next[node]++] = at; });
  const tracks = tree.parent.flatMap((node, at) => (node < 0 ? [at] : []));
  const groups = [["threads", word("all host threads"), (at) => !isStream(at)], ["streams", word("all device streams"), isStream]];
  options($("tracks"), groups.filter((group) => tracks.some(group[2])).map(([value, name]) => [value, name])
    .concat(tracks.map((at) => [at, nameOf(at)])));
  options($("requests"), [["all", word("all")], ...tree.requests.map((name, at) => [at, name]), [ALL, word("none")]]);
  const derived = tree !== whole;
  $("of-tracks").hidden = derived;
  $("of-requests").hidden = derived || !tree.requests.length;
  $("of-widths").hidden = $("of-colours").hidden = !compares();
  chooseTrack();
}
// Frames of one kind and name, as a number.
const alike = (node) => tree.kind[node] * tree.texts.length + tree.name[node];
// A tree of other stacks of the same frames: each stack is a list of nodes of the tree that is shown, outermost first, with
// its own seconds and runs on both sides.
function derive(name, stacks) {
  const made = { ...tree, texts: [...tree.texts, name], requests: [], parent: [-1], kind: [kinds.indexOf("thread")], name: [tree.texts.length],
    place: [-1], shape: [-1], more_shapes: [0], omitted: { names: [] } };
  const numbers = new Map(), wide = kinds.length * tree.texts.length, cells = { base: new Map(), head: new Map() };
  for (const { path, own, runs } of stacks) {
    let at = 0;
    for (const node of path) {
      const key = at * wide + alike(node);
      let next = numbers.get(key);
      if (next === undefined) {
        next = made.parent.length;
        numbers.set(key, next);
        made.parent.push(at);
        for (const column of ["kind", "name", "place", "shape", "more_shapes"]) made[column].push(tree[column][node]);
      }
      if (at === 0) for (const side of ["base", "head"]) add(cells[side], next, 0, runs[side]);
      at = next;
    }
    for (const side of ["base", "head"]) add(cells[side], at, own[side], 0);
  }
  for (const side of ["base", "head"]) if (tree[side]) made[side] = { units: 1, node: [...cells[side].keys()], request: [...cells[side].keys()].map(() => -1),
    own: [...cells[side].values()].map((cell) => cell[0] * 1e9), count: [...cells[side].values()].map((cell) => cell[1]) };
  return made;
}
function add(cells, node, own, runs) {
  const cell = cells.get(node) || [0, 0];
  cells.set(node, [cell[0] + own, cell[1] + runs]);
}
const measured = (what, node) => ({ base: base[what][node], head: head[what][node] });
const isShown = (node) => { while (tree.parent[node] >= 0) node = tree.parent[node]; return roots.includes(node); };
function stackOf(node) {
  const path = [];
  for (; tree.parent[node] >= 0; node = tree.parent[node]) path.push(node);
  return path;
}
// Texts of a derived tree begin with those of the whole one, so frames are alike across both.
const focusedFrame = () => focused < size && tree.parent[focused] >= 0 ? tree.kind[focused] * whole.texts.length + tree.name[focused] : null;
function chooseView(wanted = focusedFrame() ?? chosen) {
  const view = $("views").value;
  $("shares").checked = false;
  if (tree !== whole) {
    show(whole);
    $("tracks").value = track;
    chooseTrack();
  } else {
    track = $("tracks").value;
    weigh();
  }
  if (view === "all" || (view !== "inverted" && wanted === null)) { $("views").value = "all"; keep(); return; }
  const nodes = Array.from({ length: size }, (_, node) => node).filter((node) => tree.parent[node] >= 0 && isShown(node));
  const name = wanted === null ? "" : text(wanted % tree.texts.length), stacks = [];
  if (view === "inverted") {
    for (const node of nodes) if (base.own[node] + head.own[node] + base.runs[node] + head.runs[node] > 0)
      stacks.push({ path: stackOf(node), own: measured("own", node), runs: measured("runs", node) });
    show(derive(word("own time first"), stacks));
  } else {
    // Of frames inside their like only the outermost counts.
    const outermost = nodes.filter((node) => alike(node) === wanted && !stackOf(node).slice(1).some((outer) => alike(outer) === wanted));
    if (view === "callers") {
      for (const node of outermost) stacks.push({ path: stackOf(node), own: measured("total", node), runs: measured("runs", node) });
      show(derive(word("callers of {name}", { name }), stacks));
    } else {
      const within = new Set(outermost);
      for (const node of nodes) {
        const path = stackOf(node).reverse(), from = path.findIndex((outer) => within.has(outer));
        if (from >= 0) stacks.push({ path: path.slice(from), own: measured("own", node), runs: from === path.length - 1 ? measured("runs", node) : { base: 0, head: 0 } });
      }
      show(derive(word("what {name} calls", { name }), stacks));
    }
  }
  chosen = wanted;
  keep();
}
// The view in the page's address, so that a link shows it again.
let chosen = null, track = "", restoring = true, first_values = {};
function keep() {
  if (restoring) return;
  const state = new URLSearchParams(), put = (name, value) => { if (value) state.set(name, value); };
  for (const id of ["trees", "tracks", "requests", "widths", "orders", "search"]) if ($(id).value !== first_values[id]) put(id, $(id).value);
  for (const id of ["pattern", "shares"]) put(id, $(id).checked ? "1" : "");
  if (compares() && !$("differs").checked) put("differs", "0");
  if ($("views").value !== "all") { put("views", $("views").value); put("of", chosen === null ? "" : String(chosen)); }
  if (zoomed !== size) put("zoom", String(zoomed));
  try { history.replaceState(null, "", `#${state}`); } catch { /* a page that may not: its link shows it anew */ }
}
function restore() {
  const state = new URLSearchParams(location.hash.slice(1)), number = (name) => (/^\d+$/.test(state.get(name) || "") ? Number(state.get(name)) : null);
  const choose = (id, otherwise = first_values[id]) => {
    const value = state.get(id) ?? otherwise;
    if ([...$(id).options].some((one) => one.value === value)) $(id).value = value;
  };
  restoring = true;
  choose("trees");
  chooseTree();
  choose("tracks", $("tracks").value);
  chooseTrack();
  choose("requests"); choose("widths"); choose("orders");
  $("search").value = state.get("search") ?? "";
  for (const id of ["pattern", "shares"]) $(id).checked = state.get(id) === "1";
  $("differs").checked = state.get("differs") !== "0";
  const shares = $("shares").checked;
  choose("views", "all");
  chooseView(number("of"));
  $("shares").checked = shares;
  weigh();
  const node = number("zoom");
  if (node !== null && node < size) zoom(node);
  restoring = false;
}
function chooseTrack() {
  const wanted = $("tracks").value, tracks = tree.parent.flatMap((node, at) => (node < 0 ? [at] : []));
  roots = /^\d+$/.test(wanted) ? [Number(wanted)] : tracks.filter((at) => isStream(at) === (wanted === "streams"));
  zoomed = focused = size;
  weigh();
}
function weigh() {
  base = costs(tree.base);
  head = costs(tree.head);
  const by = compares() ? $("widths").value : tree.head ? "head" : "base";
  weight = by === "head" ? head.total : by === "base" ? base.total : head.total.map((value, at) => (value + base.total[at]) / 2);
  // What each marked operator took on both sides, all its frames together.
  sums = new Map();
  for (let node = 0; node < size; node++) {
    const mark = markOf(node), sum = mark && (sums.get(mark) || sums.set(mark, [0, 0]).get(mark));
    if (mark) { sum[0] += base.own[node]; sum[1] += head.own[node]; }
  }
  // Nodes are numbered as they began.
  const most = $("orders").value === "began" ? () => 0 : (node) => base.total[node] + head.total[node];
  for (let node = 0; node < size; node++) children.subarray(first[node], first[node + 1]).sort((a, b) => most(b) - most(a) || a - b);
  roots.sort((a, b) => most(b) - most(a) || a - b);
  find();
}
// Text or pattern in names, places and shapes; the time is that of all frames found, none counted inside another.
function find() {
  const wanted = $("search").value, matched = $("matched");
  matches = null;
  matched.textContent = "";
  if (wanted) {
    let pattern;
    try { pattern = new RegExp($("pattern").checked ? wanted : wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"); }
    catch { matched.textContent = word("This is not a regular expression."); draw(); return; }
    const found = tree.texts.map((one) => pattern.test(one));
    matches = new Uint8Array(size + 1);
    const inside = new Uint8Array(size + 1), shown = new Set(roots);
    let count = 0, time = [0, 0];
    for (let node = 0; node < size; node++) {
      const parent = tree.parent[node];
      if (parent < 0 ? !shown.has(node) : inside[parent] === 2) { inside[node] = 2; continue; }
      if (found[tree.name[node]] || found[tree.place[node]] || found[tree.shape[node]]) { matches[node] = 1; count++; }
      inside[node] = parent >= 0 && inside[parent] === 1 ? 1 : matches[node];
      if (matches[node] && !(parent >= 0 && inside[parent] === 1)) { time[0] += base.total[node]; time[1] += head.total[node]; }
    }
    const small = tree.omitted.names.filter((name) => pattern.test(name)).length;
    const side = (name, at, costs) => name + word("{time}, {share} of the total", { time: seconds(time[at]), share: share(time[at], costs.total[size]) });
    matched.textContent = word("{count} frames match: ", { count: count.toLocaleString("en") }) + (compares()
      ? `${side("base ", 0, base)}; ${side("head ", 1, head)}${byCounts() ? "" : `; ${signed(time[1] - time[0])}`}` : side("", tree.head ? 1 : 0, tree.head ? head : base))
      + (small ? word("; and {count} names among the frames too small to keep", { count: small }) : "");
  }
  draw();
  keep();
}
const differs = (change, strength) =>
  `hsl(${change > 0 ? 8 : 212} ${Math.round(10 + 75 * strength)}% ${dark.matches ? 28 + 14 * strength : 90 - 24 * strength}%)`;
function colour(node) {
  const light = dark.matches ? 34 : 78;
  if (matches) return matches[node] ? `hsl(285 60% ${dark.matches ? 46 : 74}%)` : `hsl(220 8% ${dark.matches ? 24 : 90}%)`;
  if (node === size) return `hsl(220 12% ${light}%)`;
  if (compares() && $("differs").checked) {
    if (byCounts() && decided(node)) return differs(decided(node), Math.max(FAINTEST, Math.min(1, 2 * Math.abs(decided(node)) / spent(markOf(node)))));
    const change = differing(node), measure = byCounts() ? "runs" : "total", larger = Math.max(head[measure][node], base[measure][node]);
    const noticed = byCounts() ? change !== 0 : Math.abs(change) > 0.0005 * weight[size];
    const strength = larger > 0 && noticed ? Math.min(1, Math.abs(change) / larger * 2) : 0;
    return differs(change, strength);
  }
  return `hsl(${HUES[kinds[tree.kind[node]]]} ${dark.matches ? 38 : 62}% ${light + (tree.name[node] % 5) * 2}%)`;
}
function draw() {
  const width = canvas.clientWidth, scale = devicePixelRatio || 1, bars = [], path = [];
  drawn = [];
  levels = 0;
  for (let node = zoomed; node !== ALL; node = above(node)) path.unshift(node);
  path.slice(0, -1).forEach((node, level) => drawn.push({ node, x: 0, level, width }));
  const waiting = [[zoomed, 0, path.length - 1, width]];
  while (waiting.length) {
    const [node, x, level, wide] = waiting.pop();
    drawn.push({ node, x, level, width: wide });
    levels = Math.max(levels, level + 1);
    const inner = node === size ? roots : children.subarray(first[node], first[node + 1]), per = weight[node] > 0 ? wide / weight[node] : 0;
    let left = x;
    for (const child of inner) {
      const own = weight[child] * per;
      if (own >= THINNEST) waiting.push([child, left, level + 1, own]);
      left += own;
    }
  }
  canvas.style.height = `${levels * ROW}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(levels * ROW * scale);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const letter = pen.measureText("m").width, ink = dark.matches ? "#f2f4f8" : "#16202e";
  for (const bar of drawn) {
    pen.globalAlpha = bar.level < path.length - 1 ? 0.55 : 1;
    pen.fillStyle = colour(bar.node);
    pen.fillRect(bar.x, bar.level * ROW, Math.max(bar.width - 0.5, THINNEST), ROW - 1);
    const room = Math.floor((bar.width - 8) / letter);
    if (room >= 3) {
      const noted = compares() && room > 16 && (differing(bar.node) || decided(bar.node) || !byCounts());
      const label = nameOf(bar.node) + (noted ? `  ${worded(bar.node)}` : "");
      pen.fillStyle = ink;
      pen.fillText(label.length > room ? `${label.slice(0, room - 1)}…` : label, bar.x + 4, bar.level * ROW + ROW / 2);
    }
    if (bar.node === focused || markOf(bar.node)?.named) {
      pen.strokeStyle = ink;
      pen.lineWidth = bar.node === focused ? 1.5 : 1;
      pen.setLineDash(bar.node === focused ? [] : [4, 2]);
      pen.strokeRect(bar.x + 1, bar.level * ROW + 1, Math.max(bar.width - 2.5, 1), ROW - 3);
    }
  }
  pen.globalAlpha = 1;
  crumbs(path);
}
function crumbs(path) {
  $("crumbs").replaceChildren();
  path.forEach((node) => { element("button", nameOf(node), $("crumbs")).onclick = () => zoom(node); });
}
function zoom(node) {
  zoomed = focused = node;
  draw();
  say();
  keep();
}
// One level towards a frame, or one out.
function step(node, inward) {
  if (!inward) { if (above(zoomed) !== ALL) zoom(above(zoomed)); return; }
  while (node !== ALL && node !== zoomed && above(node) !== zoomed) node = above(node);
  if (node !== ALL && node !== zoomed) zoom(node);
}
function facts(node) {
  const sides = [["base", base, tree.base], ["head", head, tree.head]].filter((side) => side[2]);
  const measures = [[word("total"), (side) => side.total[node], amount], [word("self"), (side) => side.own[node], amount],
    [word("runs"), (side) => side.runs[node], (value) => String(Number(value.toPrecision(6)))]];
  return measures.map(([name, value, worded]) => {
    const cells = sides.map((side) => worded(value(side[1])));
    if (sides.length === 2) cells.push(name === word("runs") ? worded(value(head) - value(base)) : byCounts() ? "" : signed(value(head) - value(base)));
    if (name === word("total")) {
      if (!$("shares").checked) sides.forEach((side, at) => { cells[at] += ` (${word("{share} of the total", { share: share(value(side[1]), side[1].total[size]) })})`; });
    }
    return [name, ...cells];
  });
}
// What the decision holds of an operator, beside what was traced.
const remarks = (node) => [
  decided(node) ? word("all {name} together {time} a call, decided by the pairs", { name: nameOf(node), time: more(decided(node)) }) : "",
  markOf(node)?.named ? word("named as a cause by the decision") : "",
];
function showTip(node, x, y) {
  tip.replaceChildren();
  element("b", nameOf(node), tip);
  if (node !== size) {
    const shape = text(tree.shape[node]), more = tree.more_shapes[node];
    [kind_words[tree.kind[node]], text(tree.place[node]), more ? word("{shape} and {count} other shapes", { shape, count: more }) : shape]
      .concat(remarks(node)).filter(Boolean).forEach((line) => element("div", line, tip));
  }
  const table = element("table", "", tip);
  if (compares()) { const row = element("tr", "", table); ["", "base", "head", word("difference")].forEach((name) => element("th", name, row)); }
  facts(node).forEach(([name, ...cells]) => {
    const row = element("tr", "", table);
    element("th", name, row);
    cells.forEach((cell) => element("td", cell, row));
  });
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? Math.max(4, y - tip.offsetHeight - 12) : y + 18}px`;
}
function say() {
  const place = focused === size ? "" : text(tree.place[focused]);
  const sides = compares() ? ["base", "head", word("difference")] : ["", "", ""];
  const numbers = facts(focused).map(([name, ...cells]) => `${name} ${cells.map((cell, at) => cell && `${sides[at]} ${cell}`.trim()).filter(Boolean).join(", ")}`);
  $("said").textContent = [nameOf(focused), place, ...remarks(focused), ...numbers].filter(Boolean).join("; ");
}
function at(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, level = Math.floor((event.clientY - box.top) / ROW);
  const bar = drawn.find((one) => one.level === level && x >= one.x && x < one.x + one.width);
  return bar ? bar.node : ALL;
}
function move(key) {
  const parent = above(focused), peers = parent === ALL ? [focused] : parent === size ? roots : [...children.subarray(first[parent], first[parent + 1])];
  const inner = focused === size ? roots : [...children.subarray(first[focused], first[focused + 1])];
  const next = { ArrowUp: parent, ArrowDown: inner.find((node) => weight[node] > 0), ArrowLeft: peers[peers.indexOf(focused) - 1],
    ArrowRight: peers[peers.indexOf(focused) + 1] }[key];
  if (next === undefined || next === ALL || !(weight[next] > 0)) return;
  focused = next;
  if (!drawn.some((bar) => bar.node === next)) zoomed = above(next);
  draw();
  say();
  const bar = drawn.find((one) => one.node === focused), box = canvas.getBoundingClientRect();
  if (bar) {
    $("pane").scrollTop = Math.max(0, (bar.level - 4) * ROW);
    showTip(focused, box.left + Math.max(0, bar.x), canvas.getBoundingClientRect().top + bar.level * ROW);
  }
}
canvas.addEventListener("mousemove", (event) => {
  pointed = at(event);
  if (pointed === ALL) tip.hidden = true;
  else showTip(pointed, event.clientX, event.clientY);
});
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  step(at(event), event.deltaY < 0);
}, { passive: false });
canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
for (const kind of ["click", "dblclick"]) canvas.addEventListener(kind, (event) => { const node = at(event); if (node !== ALL && node !== zoomed) zoom(node); });
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.startsWith("Arrow")) move(event.key);
  else if (event.key === "Enter" || event.key === " ") zoom(focused);
  else if (event.key === "Backspace" && above(zoomed) !== ALL) zoom(above(zoomed));
  else if (event.key === "Escape" || event.key === "Home") { tip.hidden = true; zoom(size); }
  else if (event.key === "/") $("search").focus();
  else return;
  event.preventDefault();
});
$("reset").onclick = () => zoom(size);
$("trees").onchange = chooseTree;
$("tracks").onchange = chooseTrack;
$("requests").onchange = $("widths").onchange = $("orders").onchange = $("shares").onchange = weigh;
$("views").onchange = () => chooseView();
$("differs").onchange = () => { legend(); draw(); keep(); };
$("search").oninput = $("pattern").onchange = find;
dark.addEventListener("change", draw);
function legend() {
  const differs = compares() && $("differs").checked;
  const unit = unit_words[tree.unit];
  const times = () => word("Red: head takes longer. Blue: head takes less. Grey: as before. Numbers are head minus base, in {unit}.", { unit })
    + word(paired[$("trees").value] ? " The times come from the pairs, which took turns, spread over the stacks that some of them traced."
      : " The recordings were made separately, under a profiler: a difference that all frames share comes from the machine.");
  const counts = () => word("Red: head runs it more often. Blue: head runs it less often. Grey: as often. Numbers are runs in {unit}.", { unit })
    + ([...marks.values()].some((mark) => mark.seconds) ? word(" Operators with times decided by the pairs are coloured by these, and so are their numbers.") : "");
  const outlines = () => ([...marks.values()].some((mark) => mark.named) ? word(" A dashed outline marks an operator that the decision names as a cause.") : "");
  $("legend").textContent = differs ? (byCounts() ? counts() : times()) + outlines()
    : word("Time in {unit}; a colour for each kind: Python function, operator, annotation, runtime call, kernel, copy, collective.", { unit });
}
options($("trees"), trees.map((one, at) => [at, one.label]));
$("of-trees").hidden = trees.length < 2;
$("graph").hidden = false;
$("no-graph").hidden = true;
chooseTree();
first_values = Object.fromEntries(["trees", "tracks", "requests", "widths", "orders", "search"].map((id) => [id, $(id).value]));
restore();
legend();
$("trees").addEventListener("change", legend);
addEventListener("hashchange", restore);
new ResizeObserver(draw).observe($("graph"));
})();
