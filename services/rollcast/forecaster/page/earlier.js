// Forecasts as they were made earlier: of the end of the budget, and the one that the user wants to see.

import { $, ask, runPath, state } from "./state.js";
import { reading } from "./advice.js";
import { between, hours, lookedAhead, rate, verdictWord } from "./words.js";

const SHARES = [0.25, 0.5, 0.75]; // of the compute so far, after which a forecast is compared with that of now
const MIN_EVALUATIONS = 5; // fewer make no forecast
const QUANTILES = ["q05", "q25", "q50", "q75", "q95"];
const kept = new Map(); // bands of earlier forecasts by run, id and time: they never change
let numAsked = 0;

async function bands(run, past) {
  const key = `${run} ${past.id} ${past.made_at}`;
  if (!kept.has(key)) kept.set(key, await ask(runPath(run, `history/${past.id}`)));
  return kept.get(key);
}

/* What the page's forecasts said of the end of the budget, oldest first, the present one last; empty if none did. */
export async function saidOfTheEnd() {
  const { forecast: f, history, run } = state;
  const now = reading();
  if (now === null) return [];
  const made = history.filter((past) => past.compute < f.compute && past.num_points >= MIN_EVALUATIONS && lookedAhead(past));
  const chosen = SHARES.map((share) => ({ share, past: made.findLast((past) => past.compute <= share * f.compute) }))
    .filter(({ past }, place, all) => past && past !== all[place - 1]?.past);
  const earlier = await Promise.all(chosen.map(async ({ share, past }) => {
    const band = await bands(run, past).catch(() => null); // it may be dropped meanwhile
    return { share, reading: band && at(band, now.compute) };
  }));
  return [...earlier.filter(({ reading: read }) => read !== null), { share: 1, reading: now }];
}

/* The bands at one compute, straight between those of the grid; null beyond it. */
function at(band, compute) {
  const after = band.compute.findIndex((value) => value >= compute);
  if (after < 1 || band.q50[after] === null) return null;
  const [left, right] = [band.compute[after - 1], band.compute[after]];
  const share = (compute - left) / (right - left);
  return Object.fromEntries(QUANTILES.map((name) => [name, band[name][after - 1] * (1 - share) + band[name][after] * share]));
}

export function showEarlierChoice() {
  const slider = $("earlier"), isAtEnd = slider.value === slider.max;
  slider.max = state.history.length;
  $("earlier-part").hidden = state.history.filter(lookedAhead).length < 2;
  if (isAtEnd) slider.value = slider.max;
  slider.setAttribute("aria-valuetext", isAtEnd ? "none" : `after ${state.history[slider.value]?.num_points} evaluations`);
}

/* Takes the forecast that the slider names; false if another one was chosen meanwhile. */
export async function chooseEarlier() {
  const past = state.history[Number($("earlier").value)], asked = ++numAsked;
  if (!past) {
    state.earlier = null;
    $("earlier-answer").textContent = "";
    $("earlier-label").textContent = "Show a forecast made earlier";
    return true;
  }
  const answer = await bands(state.run, past);
  if (asked !== numAsked) return false;
  state.earlier = lookedAhead(past) ? answer : null;
  const { unit } = state.forecast, when = `after ${past.num_points} evaluations`;
  $("earlier-label").textContent = `A${when.slice(1)} (${hours(past.compute)} ${unit})`;
  $("earlier").setAttribute("aria-valuetext", when);
  const ceiling = past.is_described ? `, ceiling ${rate(past.asymptote.q50)} (90 %: ${between(past.asymptote)})` : "";
  const end = past.end && past.end.q50 !== null && lookedAhead(past)
    ? `; at ${hours(past.end.compute)} ${unit} ${rate(past.end.q50)} (90 %: ${between(past.end)})` : "";
  $("earlier-answer").textContent = `Forecast then: ${verdictWord(past.verdict).toLowerCase()}${ceiling}${end}.`;
  return true;
}
