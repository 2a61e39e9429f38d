"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const { labels, maps } = JSON.parse($("maps").textContent);
const canvas = $("map"), ramp = $("ramp"), dark = matchMedia("(prefers-color-scheme: dark)");
const FONT = "11px ui-monospace, Menlo, Consolas, monospace", HEAD = 16, TALLEST = 18, WIDEST = 48, SCREEN = 600;
// Times within 5 % of the median are neutral, and from half as long again on as strong as any; bandwidth likewise.
const NEUTRAL = 0.05, STRONG = 1.5;
let shown = 0, at = [-1, -1], grid;

// A number of base units in the unit that suits it.
function amount(value, unit) {
  const steps = unit === "s" ? [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]] : [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];
  const [scale, name] = value === 0 ? steps[0] : steps.find(([one]) => Math.abs(value) >= one) || steps[steps.length - 1];
  return `${Number((value / scale).toPrecision(4))} ${name}`;
}
// Dark is much time, or little bandwidth: what one looks for.
function colour(share) {
  const [pale, strong] = dark.matches ? [[34, 46, 66], [255, 122, 61]] : [[226, 234, 245], [214, 69, 15]];
  return `rgb(${pale.map((one, at) => Math.round(one + (strong[at] - one) * share)).join(" ")})`;
}
function sized(element, width, height) {
  const dots = devicePixelRatio || 1, pen = element.getContext("2d");
  element.width = Math.round(width * dots);
  element.height = Math.round(height * dots);
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}
function draw() {
  const map = maps[shown], known = map.values.flat().filter((value) => value !== null).sort((one, other) => one - other);
  const most = known[known.length - 1], middle = known[known.length >> 1], isTime = map.unit === "s";
  // What lies within 5 % of the median is neutral, whatever the range: noise of equal ranks is no fault. Arrivals have no median.
  const [pale, strong] = !middle ? [0, most] : isTime ? [(1 + NEUTRAL) * middle, STRONG * middle] : [(1 - NEUTRAL) * middle, middle / STRONG];
  const shareOf = (value) => strong === pale ? 0 : Math.max(0, Math.min(1, (value - pale) / (strong - pale)));
  // All ranks fit one screen; of those that share a row of pixels the worst is drawn.
  const width = canvas.clientWidth, tall = labels.length > SCREEN ? SCREEN / labels.length : Math.max(1, Math.min(TALLEST, Math.floor(SCREEN / labels.length)));
  const named = Math.ceil(12 / tall);
  canvas.style.height = `${HEAD + labels.length * tall}px`;
  const pen = sized(canvas, width, HEAD + labels.length * tall), ink = dark.matches ? "#98a3b4" : "#5b6575";
  pen.font = FONT;
  pen.textBaseline = "middle";
  const left = Math.max(...labels.map((label) => pen.measureText(label).width)) + 8, wide = Math.min(WIDEST, (width - left) / map.columns.length);
  grid = { left, wide, tall };
  const every = Math.ceil(pen.measureText(map.columns.reduce((one, other) => (other.length > one.length ? other : one), "")).width / wide + 0.3);
  pen.fillStyle = ink;
  map.columns.forEach((column, number) => { if (every < map.columns.length ? number % every === 0 : number === 0) pen.fillText(column, left + number * wide, HEAD / 2); });
  labels.forEach((label, row) => { if (row % named === 0) pen.fillText(label, 0, HEAD + (row + 0.5) * tall); });
  const painted = new Map();
  map.values.forEach((cells, row) => {
    const y = tall < 1 ? Math.floor(row * tall) : row * tall, worst = painted.get(y) || painted.set(y, []).get(y);
    cells.forEach((value, column) => { if (value !== null) worst[column] = Math.max(worst[column] ?? 0, shareOf(value)); });
  });
  painted.forEach((shares, y) => shares.forEach((share, column) => {
    pen.fillStyle = colour(share);
    pen.fillRect(left + column * wide, HEAD + y, Math.max(wide - (wide > 4 ? 1 : 0), 1), Math.max(tall - (tall > 4 ? 1 : 0), 1));
  }));
  if (at[0] >= 0) { pen.strokeStyle = dark.matches ? "#f2f4f8" : "#16202e"; pen.lineWidth = 1.5; pen.strokeRect(left + at[1] * wide, HEAD + at[0] * tall, Math.max(wide, 2), Math.max(tall, 2)); }
  const band = sized(ramp, ramp.clientWidth, ramp.clientHeight);
  for (let x = 0; x < ramp.clientWidth; x++) { band.fillStyle = colour(x / ramp.clientWidth); band.fillRect(x, 0, 1, 12); }
  const [within, beyond] = isTime ? ["≤", "≥"] : ["≥", "≤"];
  $("least").textContent = known.length ? `${within} ${amount(pale, map.unit)}` : "";
  $("most").textContent = known.length ? `${beyond} ${amount(strong, map.unit)}` : "";
  $("left-out").textContent = map.note;
}
function pick(row, column) {
  const map = maps[shown];
  at = [Math.max(0, Math.min(labels.length - 1, row)), Math.max(0, Math.min(map.columns.length - 1, column))];
  const value = map.values[at[0]][at[1]];
  const values = { row: labels[at[0]], column: map.columns[at[1]], value: value === null ? "–" : amount(value, map.unit) };
  $("cell").textContent = map.cell.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  draw();
}
canvas.addEventListener("pointermove", (event) => {
  const row = Math.floor((event.offsetY - HEAD) / grid.tall), column = Math.floor((event.offsetX - grid.left) / grid.wide);
  if (row >= 0 && row < labels.length && column >= 0 && column < maps[shown].columns.length) pick(row, column);
});
canvas.addEventListener("keydown", (event) => {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move) return;
  pick(Math.max(at[0], 0) + (at[0] < 0 ? 0 : move[0]), Math.max(at[1], 0) + (at[1] < 0 ? 0 : move[1]));
  event.preventDefault();
});
maps.forEach((map, number) => {
  const option = document.createElement("option");
  option.value = number;
  option.textContent = map.title;
  $("which").append(option);
});
$("which").onchange = () => { shown = Number($("which").value); at = [-1, -1]; $("cell").textContent = ""; draw(); };
$("heat").hidden = false;
dark.addEventListener("change", draw);
new ResizeObserver(draw).observe(canvas.parentElement);
})();
