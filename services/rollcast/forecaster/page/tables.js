// The numbers behind the charts as tables, for whoever does not see the charts or wants the digits.

import { atStep, hours, rate, share, verdictWord } from "./words.js";

const MAX_FORECAST_ROWS = 8;
const QUANTILES = ["q05", "q25", "q50", "q75", "q95"];

export function showTables({ forecast: f, curve, points, history }) {
  for (const header of document.querySelectorAll("[data-unit]")) header.textContent = `${header.dataset.unit} (${f.unit})`;
  const rows = f.is_described
    ? [["A (pass rate)", f.asymptote, rate], ["B (no unit)", f.exponent, rate], [`C_mid (${f.unit})`, f.midpoint, hours], ["Headroom (pass rate)", f.headroom, rate]] : [];
  fill("parameters", rows.map(([name, q, show]) => [name, show(q.q05), show(q.q50), show(q.q95)]), "No law describes this curve.");
  fill("points", points.map((p, place) => [
    (atStep(p.step) ? p.step : place + 1).toLocaleString("en"), hours(p.compute), rate(p.pass_rate), rate(p.standard_error), share(p.truncation_ratio),
  ]));
  fill("ahead", future(f, curve), "Nothing is forecast beyond the newest evaluation.");
  fill("said-table", history.map((past) => [
    hours(past.compute), verdictWord(past.verdict), ...["q05", "q50", "q95"].map((q) => rate(past.asymptote?.[q])),
  ]), "No earlier forecast has been made.");
}

/* A few computes from now to the end of the budget. */
function future(f, curve) {
  if (!f.has_forecast) return [];
  const ahead = [...curve.compute.keys()].filter((place) => curve.compute[place] > f.compute);
  const every = Math.max(1, Math.ceil(ahead.length / MAX_FORECAST_ROWS));
  const shown = ahead.filter((place, number) => number % every === every - 1 || place === ahead.at(-1));
  return shown.map((place) => [hours(curve.compute[place]), ...QUANTILES.map((q) => rate(curve[q][place]))]);
}

export function showStalenessTable(rows) {
  fill("staleness-table", rows.map(({ steps, share: part }) => [String(steps), share(part)]), "This run's source reports no staleness.");
}

export function showEventsTable(events) {
  fill("events", events.map(({ at, line, trouble }) => [new Date(at * 1000).toLocaleString("en"), `${trouble ? "! " : ""}${line}`]),
    "No events yet, or this forecaster does not have the run's folder.");
}

/* `why`: said instead of rows if there are none. */
function fill(id, rows, why = "") {
  const table = document.getElementById(id);
  table.tBodies[0].replaceChildren(...(rows.length ? rows.map(filledRow) : [emptyRow(why, table.tHead.rows[0].cells.length)]));
}

function filledRow(cells) {
  const row = document.createElement("tr");
  cells.forEach((text, place) => {
    const cell = document.createElement(place ? "td" : "th");
    if (!place) cell.scope = "row";
    cell.textContent = text;
    row.append(cell);
  });
  return row;
}

function emptyRow(why, numColumns) {
  const row = document.createElement("tr"), cell = document.createElement("td");
  cell.colSpan = numColumns;
  cell.textContent = why;
  row.append(cell);
  return row;
}
