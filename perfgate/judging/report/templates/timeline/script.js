"use strict";
(async () => {
const $ = (id) => document.getElementById(id);
if (!("DecompressionStream" in window)) return;
const letters = atob($("data").textContent), packed = new Uint8Array(letters.length);
for (let at = 0; at < letters.length; at++) packed[at] = letters.charCodeAt(at);
const inflated = async ([at, size]) => new Uint8Array(await new Response(new Blob([packed.subarray(at, at + size)]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
const header_size = new DataView(packed.buffer).getUint32(0, true);
const { kinds, kind_words, causes, sentences, timelines } = JSON.parse(new TextDecoder().decode(await inflated([4, header_size])));
let behind = 4 + header_size;
for (const one of timelines) { one.at = one.sizes.map((size) => { const at = behind; behind += size; return [at, size]; }); }
// The page's language comes with the data: its sentences by their English ones, with {name} for every value.
const word = (english, values) => sentences[english].replace(/\{(\w+)\}/g, (_, name) => values[name]);
const ROW = 16, TITLE = 18, COUNTER = 30, RULER = 22, LISTED = 50, NEAREST = 4, FONT = "11px ui-monospace, Menlo, Consolas, monospace";
const HUES = { python: 205, host_op: 28, annotation: 265, device_annotation: 265, runtime: 50, compute: 350, copy: 165, comm: 300, fused: 325, memory: 90, other: 220, gap: 0 };
const ON_DEVICE = ["compute", "copy", "comm", "fused"].map((kind) => kinds.indexOf(kind));
const dark = matchMedia("(prefers-color-scheme: dark)");
const pane = $("pane"), canvas = $("canvas"), pen = canvas.getContext("2d"), tip = $("tip");
// The spans of the timeline that is shown: columns, and their numbers by row and start. A row is one level of a track.
let shown, counters, zeros, size, start, duration, name, kind, shape, launch, order, until, rows, heads, device, around, trackOf;
let hover = null; // the time under the pointer, at which keys zoom
let from = 0, to = 1, selection = null, chosen = -1, reading = null, matches = null, folded = new Set();

function numbers(bytes, count, out) {
  for (let place = 0, at = 0; place < count; place++) {
    let value = 0, scale = 1, byte;
    do { byte = bytes[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte & 128);
    out[place] = value;
  }
  return out;
}
function element(tag, text, parent) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (parent) parent.append(made);
  return made;
}
function seconds(ns, digits = 4) {
  const [scale, unit] = Math.abs(ns) >= 1e9 ? [1e-9, "s"] : Math.abs(ns) >= 1e6 ? [1e-6, "ms"] : Math.abs(ns) >= 1e3 ? [1e-3, "µs"] : [1, "ns"];
  return `${Number((ns * scale).toPrecision(digits))} ${unit}`;
}
const changes = (counter) => counter.high > counter.low;
const inAll = ({ low, high, unit }) => high > low ? word("{low} to {high} in all", { low: quantity(low, unit), high: quantity(high, unit) }) : word("{value} throughout", { value: quantity(low, unit) });
const nameOf = (span) => shown.texts[name[span]];
const endOf = (span) => start[span] + duration[span];
const isGap = (span) => kinds[kind[span]] === "gap";

// A value in its unit: those of the International System scaled, others as recorded.
function quantity(value, unit) {
  const scaled = ["Hz", "B", "B/s"].includes(unit), power = scaled ? Math.min(Math.max(Math.floor(Math.log10(Math.abs(value) || 1) / 3), 0), 5) : 0;
  const number = value / 1000 ** power;
  return `${(Math.abs(number) < 1e4 ? Number(number.toPrecision(4)) : Math.round(number)).toLocaleString("en", { maximumFractionDigits: 9 })} ${["", "k", "M", "G", "T", "P"][power]}${unit}`.trim();
}

const columnsOf = (number) => Promise.all(timelines[number].at.map(inflated));
function choose(number, columns) {
  shown = timelines[number];
  size = shown.tracks.reduce((sum, track) => sum + track[2], 0);
  const [starts, durations, names, kinds_of, shapes, launches, ...readings] = columns;
  start = numbers(starts, size, new Float64Array(size));
  duration = numbers(durations, size, new Float64Array(size));
  name = numbers(names, size, new Int32Array(size));
  kind = kinds_of;
  shape = numbers(shapes, size, new Int32Array(size));
  launch = numbers(launches, size, new Int32Array(size));
  for (let at = 0, span = 0; at < shown.tracks.length; at++)
    for (let sum = 0, last = span + shown.tracks[at][2]; span < last; span++) { sum += start[span]; start[span] = sum; }
  const all = shown.counters.map(([label, unit, count], at) => {
    const time = numbers(readings[2 * at], count, new Float64Array(count)), doubles = new DataView(readings[2 * at + 1].buffer);
    for (let one = 1; one < count; one++) time[one] += time[one - 1];
    const value = Float64Array.from(time, (_, one) => doubles.getFloat64(8 * one, true));
    return { label, unit, time, value, low: value.reduce((a, b) => Math.min(a, b)), high: value.reduce((a, b) => Math.max(a, b)) };
  });
  // Those that change are drawn first, those that do not as a line of words, and those of zero only named below.
  counters = [...all.filter(changes), ...all.filter((one) => !changes(one) && one.high !== 0)];
  zeros = all.filter((one) => one.low === 0 && one.high === 0).map((one) => one.label);
  nest();
  from = 0; to = Math.max(shown.length, 1);
  selection = null; chosen = -1; reading = null; device = null; hover = null; $("meanwhile").hidden = true; folded = new Set();
  find();
  lay();
  total();
}
// A span goes one level below those that are open when it begins, so that no two of a row overlap.
function nest() {
  const level = new Uint16Array(size), counts = [];
  order = new Int32Array(size);
  around = new Int32Array(size).fill(-1); // the span that each lies in
  trackOf = new Uint16Array(size);
  rows = [];
  let span = 0;
  shown.tracks.forEach((track, at) => {
    const first = span, last = span + track[2], open = [], found = [];
    for (; span < last; span++) {
      while (open.length && endOf(open[open.length - 1]) <= start[span]) open.pop();
      level[span] = Math.min(open.length, 65535);
      trackOf[span] = at;
      if (open.length) around[span] = open[open.length - 1];
      open.push(span);
      found[level[span]] = (found[level[span]] || 0) + 1;
    }
    let place = first;
    const next = found.map((count, depth) => { rows.push({ track: at, depth, from: place, to: place + count }); place += count; return place - count; });
    for (let one = first; one < last; one++) order[next[level[one]]++] = one;
    counts.push(found.length);
  });
  until = new Float64Array(size + 1);
  for (let place = 0; place < size; place++) until[place + 1] = until[place] + duration[order[place]];
  heads = counts;
}
// Where every row and title lies; a folded track shows its outermost row.
function lay() {
  let y = RULER, track = -1;
  const titles = [];
  // Counters stand between the device and the host.
  const measure = () => { if (!measure.done) for (const one of counters) { one.y = y + TITLE; one.tall = changes(one) ? COUNTER : 0; y += TITLE + one.tall; } measure.done = true; };
  for (const row of rows) {
    if (row.track !== track) {
      track = row.track;
      if (shown.tracks[track][1] === "host") measure();
      titles.push({ track, y });
      y += TITLE;
    }
    row.y = folded.has(row.track) && row.depth > 0 ? -1 : y;
    if (row.y >= 0) y += ROW;
  }
  measure();
  lay.titles = titles;
  pane.style.height = `${Math.min(y + 10, Math.max(0.68 * innerHeight, 200))}px`;
  $("height").style.height = `${Math.max(0, y + 8 - pane.clientHeight)}px`;
  draw();
}
// The first place of a row whose span fulfils what only later ones fulfil too.
function firstWhere(low, high, holds) {
  while (low < high) { const middle = (low + high) >> 1; if (holds(order[middle])) high = middle; else low = middle + 1; }
  return low;
}
function colour(span, strength = 1) {
  const light = dark.matches ? 34 : 76;
  if (matches) return matches[name[span]] || matches[shown.texts.length + shape[span]] ? `hsl(285 65% ${dark.matches ? 52 : 60}%)` : `hsl(220 8% ${dark.matches ? 26 : 88}%)`;
  if (isGap(span)) return `hsl(8 55% ${dark.matches ? 40 : 70}% / ${strength})`;
  return `hsl(${HUES[kinds[kind[span]]]} ${dark.matches ? 38 : 60}% ${light + (name[span] % 5) * 2}% / ${strength})`;
}
function draw() {
  const width = pane.clientWidth, height = pane.clientHeight, dots = devicePixelRatio || 1, top = pane.scrollTop;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const scale = width / (to - from), letter = pen.measureText("m").width, ink = dark.matches ? "#f2f4f8" : "#16202e", soft = dark.matches ? "#98a3b4" : "#5b6575";
  for (const row of rows) {
    const y = row.y - top;
    if (row.y < 0 || y < RULER - ROW || y > height) continue;
    let place = firstWhere(row.from, row.to, (span) => endOf(span) > from);
    while (place < row.to && start[order[place]] < to) {
      const span = order[place], x = (start[span] - from) * scale, wide = duration[span] * scale;
      if (wide >= 1) {
        const left = Math.max(x, 0), right = Math.min(x + wide, width);
        pen.fillStyle = colour(span);
        pen.fillRect(left, y, Math.max(right - left - (wide > 3 ? 0.5 : 0), 1), ROW - 1);
        const room = Math.floor((right - left - 6) / letter);
        if (room >= 3) {
          const label = nameOf(span);
          pen.fillStyle = ink;
          pen.fillText(label.length > room ? `${label.slice(0, room - 1)}…` : label, left + 3, y + ROW / 2);
        }
        if (span === chosen) { pen.strokeStyle = ink; pen.lineWidth = 1.5; pen.strokeRect(left + 1, y + 1, Math.max(right - left - 2, 1), ROW - 3); }
        place++;
      } else {
        // One pixel for all that begins in it, as dark as it is busy.
        const pixel = Math.max(Math.floor(x), 0), next = from + (pixel + 1) / scale;
        let after = Math.max(firstWhere(place, row.to, (one) => start[one] >= next), place + 1);
        // Spans of a row do not overlap, so only the last that begins in a pixel can be wider than that: it is drawn as a span.
        if (after - 1 > place && duration[order[after - 1]] * scale >= 1) after--;
        let best = span;
        if (matches) for (let one = place; one < after; one++) if (matches[name[order[one]]]) { best = order[one]; break; }
        pen.fillStyle = colour(best, Math.min(1, 0.25 + (until[after] - until[place]) * scale));
        pen.fillRect(pixel, y, 1, ROW - 1);
        place = after;
      }
    }
  }
  for (const one of counters) drawCounter(one, scale, width, height, top, ink, soft);
  const ground = getComputedStyle(document.documentElement).getPropertyValue("--card");
  for (const title of lay.titles || []) {
    const y = title.y - top, [label, side] = shown.tracks[title.track];
    if (y < 0 || y > height) continue;
    const words = `${folded.has(title.track) ? "▸" : "▾"} ${side === "gaps" ? word("gaps of the device") : side === "rank" ? label : `${word(side)} ${label}`}`;
    pen.fillStyle = soft;
    pen.fillText(words, 4, y + TITLE / 2);
  }
  if (chosen >= 0 && launch[chosen]) arrow(scale, top, ink);
  if (selection) {
    const left = (selection[0] - from) * scale, right = (selection[1] - from) * scale;
    pen.fillStyle = dark.matches ? "#6ea0ff33" : "#2f6fe428";
    pen.fillRect(left, RULER, right - left, height);
  }
  pen.fillStyle = ground;
  pen.fillRect(0, 0, width, RULER - 1);
  pen.fillStyle = soft;
  pen.fillRect(0, RULER - 1, width, 1);
  const rough = (to - from) / Math.max(2, width / 110), power = 10 ** Math.floor(Math.log10(rough));
  const tick = power * [1, 2, 5, 10].find((one) => one * power >= rough);
  for (let at = Math.ceil(from / tick) * tick; at < to; at += tick) {
    const x = (at - from) * scale;
    pen.fillRect(x, RULER - 6, 1, 5);
    const label = seconds(at, Math.min(15, Math.max(4, Math.ceil(Math.log10(Math.max(Math.abs(at), 1) / tick)) + 1)));
    if (x + label.length * letter < width) pen.fillText(label, x + 3, 9);
  }
}
// The last reading until a time, -1 before the first.
function readingAt(counter, time) {
  let low = 0, high = counter.time.length;
  while (low < high) { const middle = (low + high) >> 1; if (counter.time[middle] <= time) low = middle + 1; else high = middle; }
  return low - 1;
}
// A pixel is filled from zero to the highest reading in it, and darker from there to the lowest: none is passed over.
function drawCounter(counter, scale, width, height, top, ink, soft) {
  const y = counter.y - top, base = Math.min(counter.low, 0), span = Math.max(counter.high, 0) - base || 1, of = (value) => y + (COUNTER - 3) * (1 - (value - base) / span);
  if (y - TITLE > height || y + COUNTER < RULER) return;
  const { time, value, label } = counter, strong = `hsl(190 55% ${dark.matches ? 60 : 38}%)`, light = `hsl(190 45% ${dark.matches ? 30 : 80}%)`;
  pen.fillStyle = soft;
  pen.fillText(`${label} · ${inAll(counter)}`, 4, y - TITLE / 2);
  if (!counter.tall) return;
  const zero = of(0);
  let place = readingAt(counter, from);
  for (let pixel = 0; pixel < width; pixel++) {
    const next = from + (pixel + 1) / scale;
    let low = place < 0 ? Infinity : value[place], high = place < 0 ? -Infinity : value[place];
    for (; place + 1 < time.length && time[place + 1] < next; place++) { low = Math.min(low, value[place + 1]); high = Math.max(high, value[place + 1]); }
    if (high < low) continue;
    const upper = of(high), lower = of(low);
    pen.fillStyle = light;
    pen.fillRect(pixel, Math.min(upper, zero), 1, Math.abs(zero - upper));
    pen.fillStyle = strong;
    pen.fillRect(pixel, upper, 1, Math.max(lower - upper, 1.5));
  }
  if (reading && reading.counter === counter) {
    pen.fillStyle = ink;
    pen.fillRect(Math.round((time[reading.place] - from) * scale), y - 2, 1.5, COUNTER);
  }
}
// From the call that launched to what it launched.
function arrow(scale, top, ink) {
  const source = launch[chosen] - 1, of = (span) => rows.find((row) => { const place = firstWhere(row.from, row.to, (one) => endOf(one) > start[span]); return place < row.to && order[place] === span; });
  const ends = [source, chosen].map((span) => { const row = of(span); return row && row.y >= 0 ? [(start[span] - from) * scale, row.y - top + ROW / 2] : null; });
  if (!ends[0] || !ends[1]) return;
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(...ends[0]);
  pen.lineTo(...ends[1]);
  pen.stroke();
}
function zoom(factor, at) {
  const wide = Math.min(Math.max((to - from) * factor, 10), Math.max(shown.length, 10)), share = (at - from) / (to - from);
  show(at - share * wide, at + (1 - share) * wide);
}
function show(left, right) {
  const wide = right - left, whole = Math.max(shown.length, 10);
  from = Math.max(Math.min(left, whole - wide), 0);
  to = from + wide;
  tip.hidden = true;
  draw();
  clearTimeout(show.waiting);
  show.waiting = setTimeout(total, 150);
}
function at(event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const time = from + (x / box.width) * (to - from), line = y + pane.scrollTop;
  const title = y > RULER ? lay.titles.find((one) => line >= one.y && line < one.y + TITLE) : undefined;
  let span = -1;
  const counter = y > RULER ? counters.find((one) => line >= one.y - TITLE && line < one.y + one.tall) : undefined;
  if (y > RULER && !title && !counter) {
    const row = rows.find((one) => one.y >= 0 && line >= one.y && line < one.y + ROW), near = NEAREST * (to - from) / box.width;
    if (row) {
      const place = firstWhere(row.from, row.to, (one) => endOf(one) > time);
      const around = [place, place - 1].filter((one) => one >= row.from && one < row.to).map((one) => order[one]);
      const distance = (one) => Math.max(start[one] - time, time - endOf(one), 0);
      around.sort((a, b) => distance(a) - distance(b));
      if (around.length && distance(around[0]) <= near) span = around[0];
    }
  }
  return { x, y, time, title, span, counter };
}
function facts(span) {
  const lines = [kind_words[kind[span]], word("starts at {start}, lasts {time}", { start: seconds(start[span], 9), time: seconds(duration[span], 6) })];
  if (isGap(span)) lines.push(causes[nameOf(span)]);
  if (shape[span]) lines.push(shown.texts[shape[span] - 1]);
  if (launch[span]) lines.push(word("launched by {name}, {time} before", { name: nameOf(launch[span] - 1), time: seconds(start[span] - start[launch[span] - 1]) }));
  return lines;
}
// The value of a counter at a time, in words.
function read(counter, place, time) {
  return place < 0 ? word("no reading yet at {start}", { start: seconds(time) })
    : word("{value} from {start} on", { value: quantity(counter.value[place], counter.unit), start: seconds(counter.time[place], 9) });
}
function showTip({ span, counter, time }, x, y) {
  tip.replaceChildren();
  element("b", counter ? counter.label : nameOf(span), tip);
  (counter ? [read(counter, readingAt(counter, time), time)] : facts(span)).forEach((line) => element("div", line, tip));
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? Math.max(4, y - tip.offsetHeight - 12) : y + 18}px`;
}
// Mark a reading of a counter and say it.
function pickReading(counter, place) {
  if (chosen >= 0) pick(-1);
  reading = place < 0 ? null : { counter, place };
  $("said").textContent = `${counter.label}; ${word("counter")}; ${read(counter, place, 0)}; ${inAll(counter)}`;
  if (place >= 0 && (counter.time[place] < from || counter.time[place] > to)) show(counter.time[place] - (to - from) / 2, counter.time[place] + (to - from) / 2);
  else draw();
}
// The next counter, at the reading in force in the middle of what is shown; scrolled to.
function nextCounter() {
  if (!counters.length) return;
  const counter = counters[reading ? (counters.indexOf(reading.counter) + 1) % counters.length : 0];
  pane.scrollTop = Math.max(0, counter.y - pane.clientHeight / 2);
  pickReading(counter, Math.max(readingAt(counter, (from + to) / 2), 0));
}
function pick(span) {
  chosen = span;
  reading = null;
  $("said").textContent = span < 0 ? "" : [nameOf(span), ...facts(span)].join("; ");
  const filler = span >= 0 && isGap(span) ? meanwhile(span) : -1, link = $("meanwhile");
  link.hidden = filler < 0;
  link.textContent = filler < 0 ? "" : word("the host then: {name}", { name: nameOf(filler) });
  link.onclick = () => reveal(filler);
  draw();
}
// The span of the host that fills most of a gap: the innermost that covers half of it, on the thread that launched what ends it.
function meanwhile(gap) {
  const left = start[gap], right = endOf(gap), half = duration[gap] / 2;
  let thread = -1, best = -1;
  for (let span = 0; span < size; span++) if (launch[span] && start[span] === right) { thread = trackOf[launch[span] - 1]; break; }
  for (let span = 0; span < size; span++) {
    if (shown.tracks[trackOf[span]][1] !== "host" || Math.min(endOf(span), right) - Math.max(start[span], left) < half) continue;
    const better = best < 0 || (trackOf[best] !== thread && trackOf[span] === thread) || ((trackOf[best] === thread) === (trackOf[span] === thread) && duration[span] <= duration[best]);
    if (better) best = span;
  }
  return best;
}
// Zoom to a span and scroll to its row, unfolded.
function reveal(span) {
  if (folded.delete(trackOf[span])) lay();
  pick(span);
  const wide = Math.min(Math.max(duration[span] * 1.5, 1000), Math.max(shown.length, 10)), middle = start[span] + duration[span] / 2;
  show(middle - wide / 2, middle + wide / 2);
  const row = rows.find((one) => { for (let place = one.from; place < one.to; place++) if (order[place] === span) return true; return false; });
  if (row) pane.scrollTop = Math.max(0, row.y - pane.clientHeight / 2);
}
// Count and own time by name of what lies in the selection, else in what is shown: the parts of spans that lie in it, without
// those of what they called. The device comes first.
function total() {
  const [left, right] = selection || [from, to], times = new Float64Array(shown.texts.length), runs = new Float64Array(shown.texts.length), of = new Int8Array(shown.texts.length);
  let spans = 0;
  for (let span = 0; span < size; span++) {
    const inside = Math.min(endOf(span), right) - Math.max(start[span], left);
    if (inside < 0 || (inside === 0 && duration[span] > 0) || isGap(span)) continue;
    times[name[span]] += inside;
    const outer = around[span];
    if (outer >= 0) times[name[outer]] -= Math.max(0, Math.min(endOf(span), endOf(outer), right) - Math.max(start[span], left));
    runs[name[span]]++;
    of[name[span]] = kind[span];
    spans++;
  }
  const busy = busyBetween(left, right), count = spans.toLocaleString("en");
  $("selected").textContent = word(selection ? "{time} selected" : "{time} shown", { time: seconds(right - left) });
  $("totals").textContent = busy === null ? word("{count} spans", { count })
    : word("{count} spans; the device was busy for {busy} of it", { count, busy: `${seconds(busy)} (${(100 * busy / (right - left)).toFixed(1)} %)` });
  const names = [...runs.keys()].filter((one) => runs[one]).sort((a, b) => times[b] - times[a] || runs[b] - runs[a]);
  const [first, then] = [true, false].map((wanted) => names.filter((one) => ON_DEVICE.includes(of[one]) === wanted));
  $("rows").replaceChildren();
  for (const one of [...first.slice(0, LISTED / 2), ...then].slice(0, LISTED)) {
    const row = element("tr", "", $("rows"));
    [shown.texts[one], kind_words[of[one]]].forEach((text) => element("td", text, row));
    [runs[one].toLocaleString("en"), seconds(times[one]), `${(100 * times[one] / (right - left)).toFixed(1)} %`].forEach((text) => { element("td", text, row).className = "number"; });
  }
  totalCounters(left, right);
  if (names.length > LISTED) element("td", word("{count} more names", { count: names.length - LISTED }), element("tr", "", $("rows"))).colSpan = 5;
}
// The readings of each counter in force in a window: the lowest, the mean over time and the highest.
function totalCounters(left, right) {
  $("of-counters").hidden = !counters.length;
  $("zeros").textContent = zeros.length ? word("zero throughout: {names}", { names: zeros.join(", ") }) : "";
  $("counters").replaceChildren();
  for (const counter of counters) {
    let low = Infinity, high = -Infinity, sum = 0, long = 0, count = 0;
    for (let place = Math.max(readingAt(counter, left), 0); place < counter.time.length && counter.time[place] <= right; place++) {
      const until = place + 1 < counter.time.length ? counter.time[place + 1] : shown.length, wide = Math.max(0, Math.min(until, right) - Math.max(counter.time[place], left));
      low = Math.min(low, counter.value[place]);
      high = Math.max(high, counter.value[place]);
      sum += wide * counter.value[place];
      long += wide;
      count++;
    }
    const row = element("tr", "", $("counters"));
    element("td", counter.label, row);
    const values = count ? [low, long ? sum / long : low, high].map((value) => quantity(value, counter.unit)) : ["–", "–", "–"];
    [...values, count.toLocaleString("en")].forEach((text) => { element("td", text, row).className = "number"; });
  }
}
// How long the device was busy; null where none is shown, or one of each of many ranks.
function busyBetween(left, right) {
  if (device === null) {
    device = [];
    const ofRanks = shown.tracks.some(([, side]) => side === "rank");
    for (let span = 0; span < size && !ofRanks; span++) if (ON_DEVICE.includes(kind[span])) device.push(span);
    device = Int32Array.from(device).sort((a, b) => start[a] - start[b]);
  }
  if (!device.length) return null;
  let busy = 0, reached = left;
  for (const span of device) {
    if (start[span] >= right) break;
    const end = Math.min(endOf(span), right), begin = Math.max(start[span], reached);
    if (end > begin) { busy += end - begin; reached = end; }
  }
  return busy;
}
function find() {
  const wanted = $("search").value.toLowerCase();
  matches = null;
  $("matched").textContent = "";
  if (wanted) {
    // By name, and behind the names by one more than the number of a shape.
    const found = shown.texts.map((text) => text.toLowerCase().includes(wanted));
    matches = new Uint8Array(2 * shown.texts.length + 1);
    found.forEach((hit, at) => { if (hit) { matches[at] = 1; matches[shown.texts.length + at + 1] = 1; } });
    let count = 0, time = 0;
    for (let span = 0; span < size; span++) if (matching(span)) { count++; time += duration[span]; }
    $("matched").textContent = word("{count} spans match: {time}", { count: count.toLocaleString("en"), time: seconds(time) });
  }
  if (rows) draw();
}
const matching = (span) => matches && !isGap(span) && (matches[name[span]] || matches[shown.texts.length + shape[span]]);
// The match that begins next after the one chosen, else after the left edge; then the first of all.
function nextMatch() {
  if (!matches) return;
  const after = chosen >= 0 ? start[chosen] : from - 1;
  let best = -1, first = -1;
  for (let span = 0; span < size; span++) {
    if (!matching(span)) continue;
    if (first < 0 || start[span] < start[first]) first = span;
    if (start[span] > after && (best < 0 || start[span] < start[best])) best = span;
  }
  if (best < 0) best = first;
  if (best < 0) return;
  const wide = Math.min(Math.max(duration[best] * 8, 1000), Math.max(shown.length, 10));
  pick(best);
  show(start[best] + duration[best] / 2 - wide / 2, start[best] + duration[best] / 2 + wide / 2);
}
// Chrome's trace events, which Perfetto reads: times in microseconds with all their digits, from the begin of the recording.
function perfetto() {
  const parts = ['{"displayTimeUnit":"ns","traceEvents":[\n'], micro = (ns) => { const whole = Math.floor(ns / 1000); return `${whole}.${String(ns - whole * 1000).padStart(3, "0")}`; };
  shown.tracks.forEach(([label, side], at) => {
    const title = JSON.stringify(side === "gaps" ? word("gaps of the device") : label);
    parts.push(`{"ph":"M","name":"thread_name","pid":${side === "host" ? 1 : 2},"tid":${at},"args":{"name":${title}}},\n`);
  });
  parts.push(`{"ph":"M","name":"process_name","pid":1,"args":{"name":"host"}},\n{"ph":"M","name":"process_name","pid":2,"args":{"name":"device"}}`);
  let span = 0;
  shown.tracks.forEach(([, side, count], track) => {
    for (const last = span + count; span < last; span++) {
      const args = shape[span] ? `,"args":{"shapes":${JSON.stringify(shown.texts[shape[span] - 1])}}` : "";
      parts.push(`,\n{"ph":"X","cat":"${kinds[kind[span]]}","name":${JSON.stringify(nameOf(span))},"pid":${side === "host" ? 1 : 2},"tid":${track},"ts":${micro(start[span])},"dur":${micro(duration[span])}${args}}`);
    }
  });
  for (const { label, unit, time, value } of counters)
    for (let place = 0; place < time.length; place++) parts.push(`,\n{"ph":"C","name":${JSON.stringify(label)},"pid":2,"ts":${micro(time[place])},"args":{${JSON.stringify(unit || "value")}:${value[place]}}}`);
  parts.push("\n]}\n");
  return new Blob(parts, { type: "application/json" });
}
$("save").onclick = () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(perfetto());
  link.download = "timeline.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const step = event.deltaMode ? event.deltaY * 30 : event.deltaY;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) show(from + (event.deltaX || step) / canvas.clientWidth * (to - from), to + (event.deltaX || step) / canvas.clientWidth * (to - from));
  else zoom(Math.exp(step * 0.002), at(event).time);
}, { passive: false });
let held = null;
canvas.addEventListener("pointerdown", (event) => {
  const place = at(event);
  held = { ...place, selects: event.shiftKey || place.y <= RULER, left: from, right: to, top: pane.scrollTop, clientY: event.clientY, moved: false };
  canvas.setPointerCapture(event.pointerId);
  tip.hidden = true;
});
canvas.addEventListener("pointermove", (event) => {
  const place = at(event);
  hover = place.time;
  if (!held) {
    if (place.span >= 0 || place.counter) showTip(place, event.clientX, event.clientY); else tip.hidden = true;
    return;
  }
  if (Math.abs(place.x - held.x) + Math.abs(event.clientY - held.clientY) > 3) held.moved = true;
  if (!held.moved) return;
  if (held.selects) { selection = [held.time, place.time].sort((a, b) => a - b); draw(); return; }
  const moved = (held.x - place.x) / canvas.clientWidth * (held.right - held.left);
  pane.scrollTop = held.top + held.clientY - event.clientY;
  show(held.left + moved, held.right + moved);
});
canvas.addEventListener("pointerup", () => {
  const place = held;
  held = null;
  if (!place) return;
  if (place.moved) { if (place.selects) total(); return; }
  if (place.title) { const { track } = place.title; if (!folded.delete(track)) folded.add(track); lay(); return; }
  if (place.selects) { selection = null; total(); }
  if (place.counter) pickReading(place.counter, readingAt(place.counter, place.time)); else pick(place.span);
});
canvas.addEventListener("pointerleave", () => { tip.hidden = true; hover = null; });
pane.addEventListener("scroll", draw);
pane.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // W, S, A and D as in Perfetto; W and S zoom at the pointer.
  const middle = hover !== null && hover > from && hover < to ? hover : (from + to) / 2, step = (to - from) / 5, key = event.key.toLowerCase();
  if (key === "+" || key === "=" || key === "w") zoom(0.6, middle);
  else if (key === "-" || key === "s") zoom(1 / 0.6, middle);
  else if (key === "arrowleft" || key === "a") show(from - step, to - step);
  else if (key === "arrowright" || key === "d") show(from + step, to + step);
  else if (key === "c") nextCounter();
  else if ((key === "," || key === ".") && reading) pickReading(reading.counter, Math.min(Math.max(reading.place + (key === "," ? -1 : 1), 0), reading.counter.time.length - 1));
  else if (key === "g" && !$("meanwhile").hidden) $("meanwhile").click();
  else if (event.key === "ArrowUp") pane.scrollTop -= 3 * ROW;
  else if (event.key === "ArrowDown") pane.scrollTop += 3 * ROW;
  else if (event.key === "Enter") nextMatch();
  else if (event.key === "Home") show(0, Math.max(shown.length, 10));
  else if (event.key === "Escape") { selection = null; pick(-1); total(); }
  else if (event.key === "/") $("search").focus();
  else return;
  event.preventDefault();
});
$("out").onclick = () => show(0, Math.max(shown.length, 10));
$("search").oninput = find;
$("search").onkeydown = (event) => { if (event.key === "Enter") nextMatch(); };
timelines.forEach((one, number) => { element("option", one.label, $("timelines")).value = number; });
$("timelines").onchange = async () => {
  const wanted = $("timelines").value, columns = await columnsOf(Number(wanted));
  if (wanted === $("timelines").value) choose(Number(wanted), columns);
};
$("of-timelines").hidden = timelines.length < 2;
const first = await columnsOf(0);
$("graph").hidden = false;
$("no-graph").hidden = true;
choose(0, first);
dark.addEventListener("change", draw);
new ResizeObserver(lay).observe(pane);
})();
