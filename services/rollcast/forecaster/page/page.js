// The live page: asks for /api/runs, which answers when something has changed, and redraws that.

import { drawCurve, drawPast, drawStaleness, drawTruncation } from "./charts.js";
import { showStalenessTable, showTables } from "./tables.js";
import { ADVICE, VERDICTS, atStep, chance, gain, hasCeiling, hours, rate, share } from "./words.js";

const WAIT_SECONDS = 5;
const PAUSE_MILLISECONDS = 250, RETRY_MILLISECONDS = 2000, TIMEOUT_MILLISECONDS = 30000;
const MAX_COMPARED = 3;
const SELDOM = 0.01; // below this probability the ceiling of the few trajectories that have one means nothing
const $ = (id) => document.getElementById(id);
const state = {
  version: "", runs: [], run: null, drawn: "", forecast: null, curve: null, points: [], history: [], status: null,
  earlier: null, compared: new Map(), targetTouched: false, asked: 0,
};

async function ask(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS) });
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? `status ${response.status}`);
  return body;
}
const runPath = (run, rest) => `api/runs/${encodeURIComponent(run)}/${rest}`;

async function poll() {
  let pause = PAUSE_MILLISECONDS;
  try {
    if (document.hidden) await new Promise((shown) => document.addEventListener("visibilitychange", shown, { once: true }));
    const answer = await ask(`api/runs?after=${state.version}&wait_seconds=${WAIT_SECONDS}`);
    state.runs = answer.runs;
    showSource(answer);
    showRunChoice();
    const mine = answer.runs.find((item) => item.run === state.run);
    $("waiting").hidden = Boolean(mine);
    $("content").hidden = !mine;
    if (mine) await follow(mine);
    state.version = answer.version;
  } catch (error) {
    pause = RETRY_MILLISECONDS;
    state.version = "";
    $("source").className = "away";
    $("source").textContent = `The forecaster is not responding (${error.message}). Showing the last known values.`;
  }
  setTimeout(poll, pause);
}

async function follow(mine) {
  const key = `${mine.run} ${mine.sequence} ${mine.updated_at}`, isNew = key !== state.drawn;
  if (isNew) await load(mine);
  const status = await ask(runPath(mine.run, "status"));
  if (mine.run !== state.run) return; // another one was chosen meanwhile
  state.drawn = key;
  const toldNew = JSON.stringify(status) !== JSON.stringify(state.status);
  state.status = status;
  if (isNew || toldNew) showStatus();
  const stale = [...state.compared].filter(([name, { sequence }]) => ![sequence, undefined].includes(sequenceOf(name)));
  for (const [name] of stale) state.compared.set(name, await other(name));
  if (stale.length) redrawCurve();
}

const itemOf = (name) => state.runs.find((item) => item.run === name);
const sequenceOf = (name) => itemOf(name)?.sequence;
async function other(name) {
  const { sequence } = itemOf(name) ?? {};
  const [curve, points] = await Promise.all([ask(runPath(name, "curve")), ask(runPath(name, "points"))]);
  return { sequence, curve, points: points.points };
}

function showSource({ source, now }) {
  const age = Math.max(0, Math.round(now - source.read_at));
  $("source").className = source.up ? "up" : "away";
  const text = source.up ? `live${source.message === "ok" ? "" : `; ${source.message}`}` : `source away${source.read_at ? ` for ${age} s` : ""}: ${source.message}`;
  if ($("source").textContent !== text) $("source").textContent = text;
}

function showRunChoice() {
  const names = state.runs.map((item) => item.run);
  const select = $("run");
  if (!names.includes(state.run)) state.run = new URLSearchParams(location.search).get("run") ?? names[0] ?? null;
  if (!names.includes(state.run)) state.run = names[0] ?? null;
  if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    showCompareChoice();
  }
  if (state.run) select.value = state.run;
}

/* Runs of another unit have no place on the axis of the chosen one. */
function showCompareChoice() {
  const unit = itemOf(state.run)?.unit;
  const others = state.runs.filter((item) => item.run !== state.run && item.unit === unit).map((item) => item.run);
  for (const name of [...state.compared.keys()]) if (!others.includes(name)) state.compared.delete(name);
  $("compare").hidden = others.length === 0;
  const legend = document.createElement("legend");
  legend.textContent = "Compare with";
  $("compare").replaceChildren(legend, ...others.map((name) => {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = state.compared.has(name);
    box.addEventListener("change", () => compare(name, box));
    label.append(box, name);
    return label;
  }));
}

async function compare(name, box) {
  if (!box.checked) state.compared.delete(name);
  else if (state.compared.size >= MAX_COMPARED) box.checked = false;
  else state.compared.set(name, await other(name));
  redrawCurve();
}

async function load(forecast) {
  const run = forecast.run;
  const [curve, points, history] = await Promise.all(
    ["curve", "points", "history"].map((rest) => ask(runPath(run, rest))),
  );
  if (run !== state.run) return;
  Object.assign(state, { forecast, curve, points: points.points, history: history.forecasts });
  showNumbers();
  await showTerms();
  showTables(state);
  showEarlierChoice();
  showTargetRange();
  redrawCurve();
  redrawPast();
  await showTarget();
}

function showNumbers() {
  const f = state.forecast, [word] = VERDICTS[f.verdict] ?? [f.verdict];
  $("verdict-word").textContent = `${word}:`;
  $("verdict-reason").textContent = f.reason;
  const lost = (f.num_lost ? `, ${f.num_lost} of lost steps left out` : "")
    + (f.num_incomplete ? `, ${f.num_incomplete} left out that lack more than 10 % of their prompts` : "");
  const end = f.end ? `; end of the budget ${rate(f.end.q50)} (90 %: ${rate(f.end.q05)} to ${rate(f.end.q95)}) at ${hours(f.end.compute)}` : "";
  $("now-note").textContent = `Now ${rate(f.pass_rate)}: ${f.unit === "steps" ? "" : atStep(f.step)}${hours(f.compute)} ${f.unit}, ${f.num_points} evaluations${lost}${end}.`;
  $("ceiling-tile").hidden = $("target-card").hidden = !f.is_described;
  if (f.is_described) showCeiling(f);
  const ceiling = hasCeiling(f) ? `Forecast ceiling ${rate(f.asymptote.q50)}, 90 percent interval ${between(f.asymptote)}. ` : "";
  $("curve-text").textContent = `Pass rate ${rate(f.pass_rate)} at ${hours(f.compute)} ${f.unit}. ${ceiling}${word}: ${f.reason}`;
}

const between = ({ q05, q95 }) => `${rate(q05)} to ${rate(q95)}`;

function showCeiling(f) {
  $("asymptote").textContent = hasCeiling(f) ? rate(f.asymptote.q50) : "none in sight";
  const then = f.ceiling_probability < SELDOM ? "" : `, then at ${between(f.asymptote)} (90 %)`;
  $("asymptote-note").textContent = hasCeiling(f)
    ? `90 %: ${between(f.asymptote)}` : `gains end with a chance of ${chance(f.ceiling_probability)}${then}`;
}

function showAdvice(advice) {
  const { unit } = state.forecast;
  $("advice").className = `advice ${ADVICE[advice.kind]}`;
  $("advice-word").textContent = advice.headline;
  $("advice-reason").textContent = advice.reason;
  $("advice-change").textContent = advice.change;
  $("price-label").textContent = `Price per ${/^[a-zA-Z-]+s$/.test(unit) ? unit.slice(0, -1) : unit}`;
  $("budget-label").textContent = advice.is_assumed ? "Total budget (assumed)" : "Total budget";
  $("budget").placeholder = hours(advice.budget);
  $("worth").placeholder = advice.worth.toFixed(3);
  $("price").placeholder = advice.price === null ? "none" : hours(advice.price);
  $("chance-tile").hidden = advice.chance === null;
  $("soon-tile").hidden = advice.soon.gain === null;
  $("chance").textContent = advice.chance === null ? "" : chance(advice.chance);
  $("chance-note").textContent = `to gain ${rate(advice.worth)} or more`;
  const rest = advice.is_assumed ? "As much compute again" : "The rest";
  $("rest-name").textContent = `${rest} ${advice.rest.gain ? "gains" : "costs"}`;
  for (const name of ["rest", "soon"]) {
    const { gain: gains, compute, money } = advice[name];
    const price = money === null ? "" : ` for ${money.toLocaleString("en", { maximumFractionDigits: 2 })}`;
    $(name).textContent = gains ? gain(gains.q50) : hours(compute);
    $(`${name}-note`).textContent = gains
      ? `90 %: ${gain(gains.q05)} to ${gain(gains.q95)}; ${hours(compute)} ${unit}${price}` : `${unit}${price}; its gain is unknown`;
  }
}

/* The advice on what the user typed in, or that of the run. */
async function showTerms() {
  const typed = ["budget", "worth", "price"].filter((name) => $(name).value !== "" && $(name).checkValidity());
  if (typed.length === 0) {
    showAdvice(state.forecast.advice);
    return;
  }
  const run = state.run, asked = ++showTerms.asked;
  const answer = await ask(runPath(run, `advice?${new URLSearchParams(typed.map((name) => [name, $(name).value]))}`));
  if (asked === showTerms.asked && run === state.run) showAdvice(answer);
}
showTerms.asked = 0;

function redrawCurve() {
  if (!state.curve) return;
  const others = [...state.compared].filter(([name]) => name !== state.forecast.run && itemOf(name)?.unit === state.forecast.unit);
  drawCurve(state, others, { log: $("log").checked, power: $("power").checked });
}

function redrawPast() {
  $("past-card").hidden = state.history.length < 2;
  const said = state.history.filter((past) => past.is_described).map((past) => past.asymptote);
  drawPast(state.history, state.earlier);
  $("past-text").textContent = said.length === 0 ? "No earlier forecast yet." :
    `Ceiling A as forecast at ${said.length} evaluations: first ${rate(said[0].q50)}, 90 percent interval ` +
    `${rate(said[0].q05)} to ${rate(said[0].q95)}; most recently ${rate(said.at(-1).q50)}, ${rate(said.at(-1).q05)} to ${rate(said.at(-1).q95)}.`;
}

function showEarlierChoice() {
  const slider = $("earlier"), atEnd = slider.value === slider.max;
  slider.max = state.history.length;
  slider.disabled = state.history.length === 0;
  if (atEnd) slider.value = slider.max;
  slider.setAttribute("aria-valuetext", atEnd ? "none" : `after ${state.history[slider.value]?.num_points} evaluations`);
}

async function showEarlier() {
  const past = state.history[Number($("earlier").value)];
  if (!past) {
    state.earlier = null;
    $("earlier-answer").textContent = "";
    $("earlier-label").textContent = "Show a forecast made earlier";
  } else {
    const asked = ++state.asked;
    const answer = await ask(runPath(state.run, `history/${past.id}`));
    if (asked !== state.asked) return;
    state.earlier = answer;
    $("earlier-label").textContent = `After ${past.num_points} evaluations (${hours(past.compute)} ${state.forecast.unit})`;
    $("earlier").setAttribute("aria-valuetext", `after ${past.num_points} evaluations`);
    const end = past.end ? `; end of the budget ${rate(past.end.q50)} (${rate(past.end.q05)} to ${rate(past.end.q95)})` : "";
    const ceiling = past.is_described ? `, ceiling ${rate(past.asymptote.q50)} (90 %: ${between(past.asymptote)})` : "";
    $("earlier-answer").textContent = `Forecast then: ${(VERDICTS[past.verdict] ?? [past.verdict])[0].toLowerCase()}${ceiling}${end}.`;
  }
  redrawCurve();
  redrawPast();
}

function showTargetRange() {
  if (state.targetTouched || !state.forecast.is_described) return;
  const { asymptote, pass_rate } = state.forecast;
  $("target").value = ((Math.max(asymptote.q50, pass_rate) + pass_rate) / 2).toFixed(3);
}

async function showTarget() {
  const value = Number($("target").value);
  $("target-value").textContent = value.toFixed(3);
  if (!state.run) return;
  const asked = ++showTarget.asked;
  if (!state.forecast.is_described) return; // the card is hidden
  const answer = await ask(runPath(state.run, `target?pass_rate=${value}`));
  if (asked !== showTarget.asked) return;
  const { compute, probability } = answer, now = state.forecast.compute;
  $("target-answer").textContent =
    compute.q50 === null ? "More likely than not, never" : `${hours(compute.q50)} ${state.forecast.unit} in all`;
  const more = compute.q50 === null ? "" : compute.q50 > now ? `${hours(compute.q50 - now)} more than now. ` : "Behind us already. ";
  const budget = answer.probability_in_budget === null ? "" : `, within the budget ${chance(answer.probability_in_budget)}`;
  $("target-note").textContent =
    `${more}90 %: ${hours(compute.q05)} to ${compute.q95 === null ? "never" : hours(compute.q95)}. Chance to reach it ever ${chance(probability)}${budget}.`;
}
showTarget.asked = 0;

function showStatus() {
  const s = state.status, isTold = (rows) => rows.some((row) => row.truncation_ratio !== null);
  $("groups-note").hidden = s.groups === "";
  $("groups-note").textContent = s.groups && `Since the trainer started ${s.groups}.`;
  $("staleness-card").hidden = !s.staleness.some((bucket) => bucket.tokens > 0);
  $("truncation-card").hidden = s.truncation_ratio === null && !isTold(s.trace) && !isTold(state.points);
  const drawn = drawStaleness(s);
  showStalenessTable(drawn);
  const longest = s.longest_group_ratio === null ? "" : `, longest group ${Math.round(100 * s.longest_group_ratio)} % of what the bound allows`;
  $("staleness-note").textContent = drawn
    ? `Share of trained tokens by staleness in steps; mean ${drawn.mean.toFixed(2)}${longest}.` : "The source reports no staleness.";
  drawTruncation(s.trace, state.points);
  const last = state.points.findLast((p) => p.truncation_ratio !== null);
  if (s.truncation_ratio !== null)
    $("truncation-note").textContent = `Now ${share(s.truncation_ratio)} of rollouts are cut by the budget, at step ${s.step ?? "?"}. Dots: at the evaluations.`;
  else if (last) $("truncation-note").textContent = `${share(last.truncation_ratio)} of rollouts were cut by the budget at step ${last.step}.`;
  else $("truncation-note").textContent = "The source reports no truncation.";
}

function redraw() {
  if (!state.curve) return;
  redrawCurve();
  redrawPast();
  if (state.status) showStatus();
}

$("run").addEventListener("change", () => {
  state.run = $("run").value;
  Object.assign(state, { drawn: "", earlier: null, targetTouched: false });
  history.replaceState(null, "", `?run=${encodeURIComponent(state.run)}`);
  $("terms").reset();
  $("earlier").value = $("earlier").max;
  showCompareChoice();
  const mine = state.runs.find((item) => item.run === state.run);
  if (mine) follow(mine).catch(() => { state.drawn = ""; });
});
$("target").addEventListener("input", () => {
  state.targetTouched = true;
  showTarget().catch(() => {});
});
$("earlier").addEventListener("input", () => showEarlier().catch(() => {}));
$("terms").addEventListener("input", () => showTerms().catch(() => {}));
$("terms").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["log", "power"]) $(id).addEventListener("change", redrawCurve);
const resized = new ResizeObserver(redraw);
for (const id of ["curve", "past", "staleness", "truncation"]) resized.observe($(id));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
poll();
