// The page's four charts, from what the service answered.

import { clearChart, drawChart } from "./plot.js";
import { atStep, compute, hasCeiling, hours, rate } from "./words.js";

const $ = (id) => document.getElementById(id);
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const asRate = (value, distance) => value.toFixed([1, 2, 3].find((digits) => Math.abs(distance * 10 ** digits % 1) < 1e-6) ?? 4);
const asShare = (value) => `${Math.round(100 * value)} %`;
const FUTURE = 2.2; // times the compute so far, that the picture shows unless it is logarithmic: twice as much, and its end
const column = (rows, name) => rows.map((row) => row[name]);

/* Pass rate against compute. others: [[name, {curve, points}]]; earlier: a past forecast's bands, or null. */
export function drawCurve({ forecast: f, curve, points, earlier }, others, { log, power }) {
  const isLaw = f.is_described; // if not, no line is drawn through the readings
  const usable = (rows) => rows.filter((p) => !log || p.compute > 0);
  const all = Math.max(curve.compute.at(-1), ...others.map(([, other]) => other.curve.compute.at(-1)));
  const now = Math.max(f.compute, ...others.flatMap(([, other]) => column(other.points, "compute")));
  const stop = log ? all : Math.min(all, FUTURE * now); // a far end of the budget would squeeze the readings
  const seen = (values) => values.filter((_, place) => curve.compute[place] <= stop);
  const values = [...seen(curve.q05), ...seen(curve.q95), ...column(points, "pass_rate")];
  for (const [, other] of others) values.push(...other.curve.q50, ...column(other.points, "pass_rate"));
  const showsCeiling = hasCeiling(f) && f.asymptote.q50 < Math.max(...values) + 0.1;
  if (showsCeiling) values.push(f.asymptote.q50);
  if (earlier) for (const q of ["q05", "q95"]) values.push(...earlier[q].filter((_, place) => earlier.compute[place] <= stop));
  const low = Math.max(0, Math.floor(Math.min(...values) * 10 - 0.2) / 10), high = Math.min(1, Math.ceil(Math.max(...values) * 10 + 0.2) / 10);
  const bands = [
    { xs: curve.compute, low: curve.q05, high: curve.q95, colour: "fit", opacity: 0.13 },
    { xs: curve.compute, low: curve.q25, high: curve.q75, colour: "fit", opacity: 0.22 },
  ];
  const lines = [], marks = [], legend = [["point", "point", "evaluation ± standard error"],
    ...(isLaw ? [["line", "fit", "the law"]] : []),
    ["band inner", "fit", "50 % of readings"], ["band", "fit", "90 % of readings"]];
  if (earlier) {
    bands.push({ xs: earlier.compute, low: earlier.q05, high: earlier.q95, colour: "earlier", opacity: 0.14 });
    lines.push({ xs: earlier.compute, ys: earlier.q50, colour: "earlier", dash: [7, 4] });
  }
  if (power) {
    lines.push({ xs: curve.compute, ys: curve.power_law, colour: "power", width: 1.5, dash: [5, 4] });
    legend.push(["line dashed", "power", "power law"]);
  }
  if (earlier) legend.push(["line dashed", "earlier", "earlier forecast"]);
  others.forEach(([name, other], place) => {
    const mine = usable(other.points), colour = `run-${place + 1}`;
    if (other.curve.law) lines.push({ xs: other.curve.compute, ys: other.curve.law, colour });
    marks.push({ xs: column(mine, "compute"), ys: column(mine, "pass_rate"), colour });
    legend.push([other.curve.law ? "line" : "point", colour, name]);
  });
  if (isLaw) lines.push({ xs: curve.compute, ys: curve.law, colour: "fit" });
  const mine = usable(points);
  marks.push({ xs: column(mine, "compute"), ys: column(mine, "pass_rate"), errors: column(mine, "standard_error"), colour: "point" });
  $("readout").textContent = "";
  const rules = showsCeiling ? [{ y: f.asymptote.q50, text: `ceiling A ${rate(f.asymptote.q50)}` }] : [];
  if (f.end && f.end.compute <= stop) rules.push({ x: f.end.compute, text: "end of budget" });
  else if (f.end) rules.push({ x: stop, text: `budget ends at ${compute(f.end.compute)} →` });
  drawChart($("curve"), {
    x: { range: [log ? curve.compute[0] : 0, stop], log, label: `compute (${f.unit})`, format: compute },
    y: { range: [low, high], format: asRate },
    bands, lines, points: marks, rules, onHover: (at) => showReadout(at, curve, points, stop, f.unit),
  });
  $("legend").replaceChildren(...legend.map(legendItem));
}

function showReadout(at, curve, points, stop, unit) {
  const nearest = (values) => values.reduce((best, value, place) => (Math.abs(value - at) < Math.abs(values[best] - at) ? place : best), 0);
  if (at === null) {
    $("readout").textContent = "";
    return;
  }
  const place = nearest(curve.compute), point = points[nearest(column(points, "compute"))];
  const near = point && Math.abs(point.compute - at) < 0.01 * stop
    ? `; read ${atStep(point.step)}${rate(point.pass_rate)} ± ${rate(point.standard_error)}` : "";
  $("readout").textContent =
    `at ${hours(curve.compute[place])} ${unit}: ${rate(curve.q50[place])}, 90 % ${rate(curve.q05[place])} to ${rate(curve.q95[place])}${near}`;
}

function legendItem([kind, colour, text]) {
  const item = document.createElement("li"), swatch = document.createElement("span");
  swatch.className = `swatch ${kind} ${colour}`;
  item.append(swatch, text);
  return item;
}

/* The asymptote of each earlier forecast, except those whose curve no law described. */
export function drawPast(all, earlier) {
  const history = all.filter((past) => past.is_described);
  if (history.length === 0) {
    clearChart($("past"));
    return;
  }
  const xs = column(history, "compute"), said = (quantile) => history.map((past) => past.asymptote[quantile]);
  const [low, high] = [Math.min(...said("q05")), Math.max(...said("q95"))];
  drawChart($("past"), {
    x: { range: all.length === 1 ? [0, 2 * xs[0]] : [Math.min(...column(all, "compute")), Math.max(...column(all, "compute"))], format: compute },
    y: { range: [Math.max(0, low - 0.05), Math.min(1, high + 0.05)], format: asRate },
    bands: [
      { xs, low: said("q05"), high: said("q95"), colour: "fit", opacity: 0.13 },
      { xs, low: said("q25"), high: said("q75"), colour: "fit", opacity: 0.22 },
    ],
    lines: [{ xs, ys: said("q50"), colour: "fit" }],
    points: [{ xs, ys: said("q50"), colour: "point" }],
    rules: earlier ? [{ x: earlier.forecast.compute, text: "shown above" }] : [],
  });
}

/* Returns the drawn values {mean, steps, shares}, or null if the source reports no staleness. */
export function drawStaleness({ staleness, max_staleness }) {
  const buckets = staleness.filter((bucket) => bucket.steps !== null);
  const total = staleness.reduce((sum, bucket) => sum + bucket.tokens, 0);
  if (total === 0) {
    clearChart($("staleness"));
    return null;
  }
  const last = Math.max(max_staleness ?? 0, ...column(buckets.filter((bucket) => bucket.tokens > 0), "steps"));
  const shown = buckets.filter((bucket) => bucket.steps <= last), shares = shown.map((bucket) => bucket.tokens / total);
  drawChart($("staleness"), {
    x: { range: [-0.6, last + 0.6], format: String, incrs: WHOLE },
    y: { range: [0, Math.max(...shares, 0.01) * 1.1], format: asShare },
    bars: { xs: column(shown, "steps"), ys: shares, colour: "fit" },
    rules: max_staleness === null ? [] : [{ x: max_staleness, text: "bound k" }],
  });
  return { mean: buckets.reduce((sum, bucket) => sum + bucket.steps * bucket.tokens, 0) / total, steps: column(shown, "steps"), shares };
}

/* The share of rollouts that were cut off: lately as a line, at the evaluations as dots. */
export function drawTruncation(trace, points) {
  const known = (rows) => rows.filter((row) => row.truncation_ratio !== null).sort((a, b) => a.step - b.step);
  const line = known(trace), dots = known(points);
  const steps = column([...line, ...dots], "step"), ratios = column([...line, ...dots], "truncation_ratio");
  if (!(Math.max(...steps) > Math.min(...steps))) {
    clearChart($("truncation"));
    return;
  }
  drawChart($("truncation"), {
    x: { range: [Math.min(...steps), Math.max(...steps)], format: String, incrs: WHOLE },
    y: { range: [0, Math.max(0.12, ...ratios) * 1.1], format: asShare },
    lines: line.length > 1 ? [{ xs: column(line, "step"), ys: column(line, "truncation_ratio"), colour: "fit" }] : [],
    points: [{ xs: column(dots, "step"), ys: column(dots, "truncation_ratio"), colour: "point" }],
    rules: [{ y: 0.1, text: "10 %: often unstable beyond" }],
  });
}

