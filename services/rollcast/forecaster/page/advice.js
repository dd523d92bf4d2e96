// The advice, the terms that the user may change, and the tiles.

import { $, ask, runPath, state } from "./state.js";
import { between, chance, gain, hasCeiling, hours, look, rate, singular, verdictWord } from "./words.js";

const SELDOM = 0.01; // below this probability the ceiling of the few trajectories that have one means nothing
const TERMS = ["budget", "worth", "price"];
let numAsked = 0;

/* The advice on what the user typed in, or that of the run. Null if another question was asked meanwhile. */
export async function askAdvice() {
  const asked = ++numAsked;
  const typed = TERMS.filter((name) => $(name).value !== "" && $(name).checkValidity());
  if (typed.length === 0) return state.forecast.advice;
  const query = new URLSearchParams(typed.map((name) => [name, $(name).value]));
  const run = state.run;
  const answer = await ask(runPath(run, `advice?${query}`));
  return asked === numAsked && run === state.run ? answer : null;
}

export function showAdvice() {
  const { advice, forecast } = state;
  const { unit } = forecast;
  const word = verdictWord(forecast.verdict);
  $("advice").className = `advice ${look(advice, forecast)}`;
  $("advice-word").textContent = advice.headline ?? word;
  $("advice-reason").textContent = advice.reason;
  $("advice-change").textContent = advice.change;
  $("verdict-word").textContent = `Verdict: ${word.toLowerCase()}.`;
  $("verdict-word").hidden = advice.headline === null;
  $("verdict-reason").textContent = forecast.reason;
  $("budget-label").textContent = `Total budget${advice.is_assumed ? ", assumed" : ""} (${unit})`;
  $("price-label").textContent = `Price per ${singular(unit)}`;
  $("budget").placeholder = hours(advice.budget);
  $("worth").placeholder = advice.worth.toFixed(3);
  $("price").placeholder = advice.price === null ? "none" : hours(advice.price);
  showTiles();
  $("soon").textContent = advice.soon.gain === null ? "" :
    `The next ${hours(advice.soon.compute)} ${unit} gain ${gain(advice.soon.gain.q50)} (90 %: ${span(advice.soon.gain)})${price(advice.soon)}.`;
}

const span = (gains) => `${gain(gains.q05)} to ${gain(gains.q95)}`;
const price = ({ money }) => (money === null ? "" : ` for ${money.toLocaleString("en", { maximumFractionDigits: 2 })}`);

function showTiles() {
  const { advice, forecast: f } = state;
  const { rest } = advice;
  $("chance-tile").hidden = advice.chance === null;
  $("chance").textContent = advice.chance === null ? "" : chance(advice.chance);
  $("chance-note").textContent = f.verdict === "no_learning" ? "that it still takes off" : `to gain ${rate(advice.worth)} or more`;
  $("rest-name").textContent = `${advice.is_assumed ? "As much compute again" : "The rest"} ${rest.gain ? "gains" : "costs"}`;
  const cost = `${hours(rest.compute)} ${f.unit}`;
  $("rest").textContent = rest.gain ? gain(rest.gain.q50) : cost;
  $("rest-note").textContent = rest.gain
    ? `90 %: ${span(rest.gain)}; ${cost}${price(rest)}` : `its gain is unknown${price(rest) && `;${price(rest)}`}`;
  $("ceiling-tile").hidden = !f.is_described;
  if (f.is_described) showCeiling(f);
}

function showCeiling(f) {
  $("asymptote").textContent = hasCeiling(f) ? rate(f.asymptote.q50) : "none in sight";
  const then = f.ceiling_probability < SELDOM ? "" : `, then at ${between(f.asymptote)} (90 %)`;
  $("asymptote-note").textContent = hasCeiling(f)
    ? `90 %: ${between(f.asymptote)}` : `gains end with a chance of ${chance(f.ceiling_probability)}${then}`;
}

/* What an evaluation at the end of the budget will read: {compute, q05, q25, q50, q75, q95}, or null if nothing says. */
export function reading() {
  const { advice, curve, forecast } = state;
  const last = curve.compute.length - 1;
  if (!forecast.has_forecast || last < 0 || advice.budget <= forecast.compute) return null;
  const at = Object.fromEntries(["q05", "q25", "q50", "q75", "q95"].map((name) => [name, curve[name][last]]));
  return { compute: advice.budget, ...at };
}

export function showEnd() {
  const end = reading();
  $("end-tile").hidden = end === null;
  if (end === null) return;
  $("end").textContent = rate(end.q50);
  $("end-note").textContent = `90 %: ${between(end)}; at ${hours(end.compute)} ${state.forecast.unit}`;
}
