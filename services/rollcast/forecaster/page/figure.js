// The one figure: the end of the run, and whether the rest is worth it. Points, level now, bands to the end of the
// budget; next to it the forecasts of the same end that were made earlier.

import { clearChart, drawChart } from "./plot.js";
import { $, column, state } from "./state.js";
import { atStep, between, compute, hasCeiling, hours, rate } from "./words.js";

export const asRate = (value, distance) => value.toFixed([1, 2, 3].find((digits) => Math.abs(distance * 10 ** digits % 1) < 1e-6) ?? 4);
const LINEAR_UP_TO = 5; // times the compute so far: beyond, a linear axis would squeeze the readings
const PAST_END = 1.02; // times the compute so far at which the axis ends if nothing is forecast
const LABEL_LINES = 2; // above the plot, for now and the budget
const DASHES = [[8, 4], [2, 3], [8, 3, 2, 3]]; // of the runs that are compared: not by colour alone

/* Whether the axis is logarithmic: as the user chose, and without a choice if the end is far. */
function isLogarithmic(end) {
  if (!$("log").dataset.touched) $("log").checked = end > LINEAR_UP_TO * state.forecast.compute;
  return $("log").checked;
}

/* others: [[name, {curve, points}]]. */
export function drawFigure(others) {
  const { advice, curve, forecast: f, points } = state;
  const isAhead = f.has_forecast;
  const last = Math.max(f.compute, ...others.flatMap(([, other]) => column(other.points, "compute")));
  const end = Math.max(isAhead || !advice.is_assumed ? advice.budget : 0, PAST_END * last);
  const log = isLogarithmic(end);
  const isShown = (point) => point.compute <= end && (!log || point.compute > 0);
  const mine = points.filter(isShown);
  const start = log ? Math.min(...column(mine, "compute")) / 1.5 : 0;
  const parts = [law(f, curve), isAhead ? ahead(f, curve) : null, earlierForecast(end), ...others.map(otherRun(isShown)), own(mine)];
  const spec = joined(parts.filter(Boolean));
  const range = rateRange([...spec.values, ...state.said.flatMap(({ reading }) => [reading.q25, reading.q75])]);
  const rules = marks(f, advice, end);
  if (hasCeiling(f) && f.asymptote.q50 < range[1]) rules.push({ y: f.asymptote.q50, text: `ceiling A ${rate(f.asymptote.q50)}` });
  drawSaid(range);
  drawChart($("curve"), {
    x: { range: [start, end], log, label: `compute (${f.unit})`, format: compute },
    y: { range, format: asRate },
    labelLines: LABEL_LINES,
    bands: spec.bands, lines: spec.lines, points: spec.points, rules,
    onHover: (at) => showReadout(at, end),
  });
  $("readout").textContent = "";
  $("legend").replaceChildren(...spec.legend.map(legendItem));
}

/* One description of all parts. A part: {bands, lines, points, legend, values}, each of them optional. */
function joined(parts) {
  const all = (name) => parts.flatMap((part) => part[name] ?? []);
  return { bands: all("bands"), lines: all("lines"), points: all("points"), legend: all("legend"), values: all("values") };
}

const places = (curve, isWanted) => [...curve.compute.keys()].filter((place) => isWanted(curve.compute[place]));
const pick = (values, of) => of.map((place) => values[place]);

/* The law through the evaluations, up to now. */
function law(f, curve) {
  if (!curve.law) return null;
  const past = places(curve, (value) => value <= f.compute);
  const line = { xs: pick(curve.compute, past), ys: pick(curve.law, past), colour: "fit" };
  return { lines: [line], legend: [["line", "fit", "fitted law"]] };
}

/* What evaluations will read from now on, and the level now. */
function ahead(f, curve) {
  const future = places(curve, (value) => value >= f.compute);
  if (future.length === 0) return null;
  const xs = pick(curve.compute, future);
  const [q05, q25, q50, q75, q95] = ["q05", "q25", "q50", "q75", "q95"].map((name) => pick(curve[name], future));
  const { level } = state.advice;
  return {
    bands: [
      { xs, low: q05, high: q95, colour: "fit", opacity: 0.15 },
      { xs, low: q25, high: q75, colour: "fit", opacity: 0.25 },
    ],
    lines: [
      { xs, ys: q50, colour: "fit", dash: [7, 4] },
      { xs: [xs[0], xs.at(-1)], ys: [level, level], colour: "muted", width: 1.5, dash: [2, 3] },
    ],
    legend: [
      ["line dashed", "fit", "median of future readings"],
      ["band inner", "fit", "50 %"],
      ["band", "fit", "90 % of future readings"],
      ["line dotted", "muted", `level now, ${rate(level)}`],
    ],
    values: [...q05, ...q95],
  };
}

/* The earlier forecast that the user chose, from when it was made. */
function earlierForecast(end) {
  const { earlier } = state;
  if (!earlier) return null;
  const shown = places(earlier, (value) => value >= earlier.forecast.compute && value <= end);
  if (shown.length === 0) return null;
  const xs = pick(earlier.compute, shown);
  const [low, middle, high] = ["q05", "q50", "q95"].map((name) => pick(earlier[name], shown));
  return {
    bands: [{ xs, low, high, colour: "earlier", opacity: 0.16 }],
    lines: [{ xs, ys: middle, colour: "earlier", dash: [7, 4] }],
    legend: [["line dashed", "earlier", "earlier forecast, 90 %"]],
    values: [...low, ...high],
  };
}

const otherRun = (isShown) => ([name, other], place) => {
  const shown = other.points.filter(isShown), look = `run-${place + 1}`;
  const rates = column(shown, "pass_rate");
  const points = [{ xs: column(shown, "compute"), ys: rates, colour: look }];
  if (!other.curve.law) return { points, legend: [["point", look, name]], values: rates };
  const past = places(other.curve, (value) => value <= shown.at(-1).compute);
  const line = { xs: pick(other.curve.compute, past), ys: pick(other.curve.law, past), colour: look, dash: DASHES[place] };
  return { points, lines: [line], legend: [[`line dash-${place + 1}`, look, name]], values: rates };
};

function own(shown) {
  const rates = column(shown, "pass_rate"), errors = column(shown, "standard_error");
  const spans = [{ low: rates.map((value, place) => value - errors[place]), high: rates.map((value, place) => value + errors[place]) }];
  return {
    points: [{ xs: column(shown, "compute"), ys: rates, colour: "point", spans }],
    legend: [["point", "point", errors.some(Boolean) ? "evaluation ± standard error" : "evaluation"]],
    values: rates,
  };
}

/* In steps of a tenth, so that the noise of a flat run does not look like a climb. */
function rateRange(values) {
  const low = Math.floor(Math.min(...values) * 10 - 0.2) / 10, high = Math.ceil(Math.max(...values) * 10 + 0.2) / 10;
  return [Math.max(low, -0.02), Math.min(high, 1.02)];
}

/* Upright lines: now, and the end of the budget. */
function marks(f, advice, end) {
  const rules = [{ x: f.compute, text: `now, ${compute(f.compute)} ${f.unit}`, dash: [] }];
  if (advice.budget <= end) {
    const name = advice.is_assumed ? "budget (assumed)" : "budget";
    rules.push({ x: advice.budget, text: `${name}, ${compute(advice.budget)} ${f.unit}`, dash: [8, 3, 2, 3] });
  }
  return rules;
}

/* The end of the budget as forecast earlier, on the same scale of pass rates. */
function drawSaid(range) {
  $("said-part").hidden = state.said.length < 2;
  if (state.said.length < 2) {
    clearChart($("said"));
    return;
  }
  const part = (chosen, name) => {
    const xs = chosen.map((place) => place), readings = chosen.map((place) => state.said[place].reading);
    const [low, quarter, middle, third, high] = ["q05", "q25", "q50", "q75", "q95"].map((quantile) => column(readings, quantile));
    const spans = [{ low, high, width: 1.5, opacity: 1 }, { low: quarter, high: third, width: 5, opacity: 0.45 }];
    return { xs, ys: middle, colour: name, spans };
  };
  const earlier = [...state.said.keys()].slice(0, -1), now = state.said.length - 1;
  const isBeside = $("said").getBoundingClientRect().top < $("curve").getBoundingClientRect().bottom;
  drawChart($("said"), {
    x: { range: [-0.6, now + 0.6], incrs: [1], space: 20, label: "of the compute so far", format: (place) => shareName(state.said[place]) },
    y: { range, format: asRate, hidden: isBeside }, // on a phone it is below the curve, without the curve's scale
    labelLines: isBeside ? LABEL_LINES : 0,
    points: [part(earlier, "earlier"), part([now], "fit")],
  });
  $("said-text").textContent = state.said
    .map((past) => `${past.share === 1 ? "Now" : `After ${shareName(past)} of the compute so far`}: ${rate(past.reading.q50)}, 90 percent interval ${between(past.reading)}.`)
    .join(" ");
}

const shareName = (past) => (past === undefined ? "" : past.share === 1 ? "now" : `${Math.round(100 * past.share)} %`);

function showReadout(hovered, end) {
  const { curve, forecast: f, points } = state;
  const nearest = (values) => values.reduce((best, value, place) => (Math.abs(value - hovered) < Math.abs(values[best] - hovered) ? place : best), 0);
  if (hovered === null) {
    $("readout").textContent = "";
    return;
  }
  const place = nearest(curve.compute), point = points[nearest(column(points, "compute"))];
  const isAhead = f.has_forecast && curve.compute[place] >= f.compute;
  const band = isAhead ? `forecast ${rate(curve.q50[place])}, 90 % ${rate(curve.q05[place])} to ${rate(curve.q95[place])}` : "";
  const fitted = !isAhead && curve.law && curve.compute[place] <= f.compute ? `law ${rate(curve.law[place])}` : "";
  const read = point && Math.abs(point.compute - hovered) < 0.01 * end
    ? `read ${atStep(point.step)}${rate(point.pass_rate)}${point.standard_error ? ` ± ${rate(point.standard_error)}` : ""}` : "";
  $("readout").textContent = [`at ${hours(hovered)} ${f.unit}`, ...[band, fitted, read].filter(Boolean)].join("; ");
}

function legendItem([kind, name, text]) {
  const item = document.createElement("li"), swatch = document.createElement("span");
  swatch.className = `swatch ${kind} ${name}`;
  item.append(swatch, text);
  return item;
}
