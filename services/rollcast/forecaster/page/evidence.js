// What the advice rests on, one click below it: a target, earlier forecasts, staleness, truncation.

import { asRate } from "./figure.js";
import { clearChart, drawChart } from "./plot.js";
import { $, ask, column, runPath, state } from "./state.js";
import { showEventsTable, showStalenessTable } from "./tables.js";
import { between, chance, compute, hours, rate, share, verdictWord } from "./words.js";

const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const asShare = (value) => `${Math.round(100 * value)} %`;
const target = { isTouched: false, numAsked: 0 };

export function chooseTarget() {
  target.isTouched = true;
  return showTarget();
}

export function forgetTarget() {
  target.isTouched = false;
}

export async function showTarget() {
  const { forecast: f } = state;
  $("target-part").hidden = !f.is_described;
  if (!f.is_described) {
    $("target-note").textContent = `The compute to a pass rate is not known: no law describes this curve (${verdictWord(f.verdict).toLowerCase()}).`;
    return;
  }
  if (!target.isTouched) $("target").value = ((Math.max(f.asymptote.q50, f.pass_rate) + f.pass_rate) / 2).toFixed(3);
  const value = Number($("target").value), asked = ++target.numAsked;
  $("target-value").textContent = value.toFixed(3);
  const answer = await ask(runPath(state.run, `target?pass_rate=${value}`));
  if (asked !== target.numAsked || answer.compute === null) return;
  const { compute: wanted, probability, probability_in_budget: inBudget } = answer;
  const isReached = wanted.q50 !== null;
  $("target-answer").textContent = isReached ? `${hours(wanted.q50)} ${f.unit} in all` : "More likely than not, never";
  const more = wanted.q50 > f.compute ? `${hours(wanted.q50 - f.compute)} ${f.unit} more than now. ` : "Behind us already. ";
  const last = wanted.q95 === null ? "never" : `${hours(wanted.q95)} ${f.unit}`;
  const budget = inBudget === null ? "" : `, within the budget ${chance(inBudget)}`;
  $("target-note").textContent =
    `${isReached ? more : ""}90 %: ${hours(wanted.q05)} to ${last}. Chance to reach it ever ${chance(probability)}${budget}.`;
}

/* The ceiling of each earlier forecast, except those whose curve no law described. */
export function drawPast() {
  const all = state.history, said = all.filter((past) => past.is_described);
  $("past").hidden = said.length < 2;
  $("past-note").hidden = said.length >= 2;
  if (said.length < 2) {
    const missing = said.length === 0 ? "No law described this curve at any evaluation" : "Only one forecast has been made";
    $("past-note").textContent = `${missing}, so there are no earlier ceilings to compare.`;
    $("past-text").textContent = "";
    clearChart($("past"));
    return;
  }
  const xs = column(said, "compute"), made = column(all, "compute");
  const ceilings = (quantile) => column(column(said, "asymptote"), quantile);
  drawChart($("past"), {
    x: { range: [Math.min(...made), Math.max(...made)], label: `forecast made at (${state.forecast.unit})`, format: compute },
    y: { range: [Math.max(0, Math.min(...ceilings("q05")) - 0.05), Math.min(1, Math.max(...ceilings("q95")) + 0.05)], format: asRate },
    bands: [
      { xs, low: ceilings("q05"), high: ceilings("q95"), colour: "fit", opacity: 0.15 },
      { xs, low: ceilings("q25"), high: ceilings("q75"), colour: "fit", opacity: 0.25 },
    ],
    lines: [{ xs, ys: ceilings("q50"), colour: "fit" }],
    points: [{ xs, ys: ceilings("q50"), colour: "point" }],
    rules: state.earlier ? [{ x: state.earlier.forecast.compute, text: "shown above" }] : [],
  });
  const [first, last] = [said[0].asymptote, said.at(-1).asymptote];
  $("past-text").textContent = `Ceiling A as forecast at ${said.length} evaluations: first ${rate(first.q50)}, 90 percent interval ` +
    `${between(first)}; most recently ${rate(last.q50)}, ${between(last)}.`;
}

export function showStatus() {
  const { status: s } = state;
  $("groups-note").hidden = s.groups === "";
  $("groups-note").textContent = s.groups && `Since the trainer started ${s.groups}.`;
  $("episodes-note").hidden = s.episodes === "";
  $("episodes-note").textContent = s.episodes && `Newest batch: ${s.episodes}.`;
  showEventsTable(s.events);
  drawStaleness(s);
  drawTruncation(s);
}

function drawStaleness({ staleness, max_staleness: bound, longest_group_ratio: longest }) {
  const buckets = staleness.filter((bucket) => bucket.steps !== null);
  const total = staleness.reduce((sum, bucket) => sum + bucket.tokens, 0);
  $("staleness").hidden = total === 0;
  if (total === 0) {
    clearChart($("staleness"));
    showStalenessTable([]);
    $("staleness-note").textContent = "Nothing to draw: this run's source reports no staleness.";
    return;
  }
  const last = Math.max(bound ?? 0, ...column(buckets.filter((bucket) => bucket.tokens > 0), "steps"));
  const shown = buckets.filter((bucket) => bucket.steps <= last).map(({ steps, tokens }) => ({ steps, share: tokens / total }));
  drawChart($("staleness"), {
    x: { range: [-0.6, last + 0.6], format: String, incrs: WHOLE, label: "age of trained tokens (steps)" },
    y: { range: [0, Math.max(...column(shown, "share"), 0.01) * 1.1], format: asShare },
    bars: { xs: column(shown, "steps"), ys: column(shown, "share"), colour: "fit" },
    rules: bound === null ? [] : [{ x: bound, text: `bound, ${bound} steps` }],
  });
  showStalenessTable(shown);
  const mean = buckets.reduce((sum, bucket) => sum + bucket.steps * bucket.tokens, 0) / total;
  const group = longest === null ? "" : `; the longest group takes ${Math.round(100 * longest)} % of what the bound allows`;
  $("staleness-note").textContent = `Share of trained tokens by staleness: ${mean.toFixed(2)} steps on average${group}.`;
}

/* The share of rollouts that were cut off: lately as a line, at the evaluations as dots. */
function drawTruncation({ truncation_ratio: now, step, trace }) {
  const known = (rows) => rows.filter((row) => row.truncation_ratio !== null).sort((a, b) => a.step - b.step);
  const line = known(trace), dots = known(state.points), all = [...line, ...dots];
  const steps = column(all, "step"), isDrawn = Math.max(...steps) > Math.min(...steps);
  $("truncation").hidden = !isDrawn;
  if (isDrawn) {
    drawChart($("truncation"), {
      x: { range: [Math.min(...steps), Math.max(...steps)], format: (value) => value.toLocaleString("en"), incrs: WHOLE, label: "step" },
      y: { range: [0, Math.max(0.12, ...column(all, "truncation_ratio")) * 1.1], format: asShare },
      lines: line.length > 1 ? [{ xs: column(line, "step"), ys: column(line, "truncation_ratio"), colour: "fit" }] : [],
      points: [{ xs: column(dots, "step"), ys: column(dots, "truncation_ratio"), colour: "point" }],
      rules: [{ y: 0.1, text: "10 %: often unstable beyond" }],
    });
  } else clearChart($("truncation"));
  const last = dots.at(-1);
  if (now !== null) $("truncation-note").textContent = `Now ${share(now)} of rollouts are cut by the budget, at step ${step ?? "?"}. Dots: at the evaluations.`;
  else if (last) $("truncation-note").textContent = `${share(last.truncation_ratio)} of rollouts were cut by the budget at step ${last.step}.`;
  else $("truncation-note").textContent = "Nothing to draw: this run's source reports no truncated rollouts.";
}
