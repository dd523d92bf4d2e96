// The numbers behind the charts as tables, for whoever does not see the charts or wants the digits.

import { VERDICTS, atStep, hours, rate, share } from "./words.js";

const MAX_FORECAST_ROWS = 8;

export function showTables({ forecast: f, curve, points, history }) {
  const rows = f.is_described
    ? [["A", f.asymptote, rate], ["B", f.exponent, rate], [`C_mid (${f.unit})`, f.midpoint, hours], ["Headroom", f.headroom, rate]] : [];
  fill("parameters", rows.map(([name, q, show]) => [name, show(q.q05), show(q.q50), show(q.q95)]));
  fill("points", points.map((p, place) => [atStep(p.step) ? `${p.incarnation}.${p.step}` : `${place + 1}`, hours(p.compute), rate(p.pass_rate), rate(p.standard_error), share(p.truncation_ratio)]));
  const ahead = curve.compute.map((_, place) => place).filter((place) => curve.compute[place] > f.compute);
  const every = Math.max(1, Math.ceil(ahead.length / MAX_FORECAST_ROWS));
  const shown = ahead.filter((place, number) => number % every === every - 1 || place === ahead.at(-1));
  fill("ahead", shown.map((place) => [hours(curve.compute[place]), ...["q05", "q25", "q50", "q75", "q95"].map((q) => rate(curve[q][place]))]));
  fill("said", history.map((past) => [
    hours(past.compute), (VERDICTS[past.verdict] ?? [past.verdict])[0],
    ...["q05", "q50", "q95"].map((q) => rate(past.asymptote?.[q])),
  ]));
}

export function showStalenessTable(drawn) {
  fill("staleness-table", drawn ? drawn.steps.map((steps, place) => [String(steps), share(drawn.shares[place])]) : []);
}

function fill(id, rows) {
  document.getElementById(id).tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((text, place) => {
      const cell = document.createElement(place ? "td" : "th");
      if (!place) cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  }));
}
