// The live page: asks for /api/runs, which answers when something has changed, and redraws that.

import { askAdvice, showAdvice, showEnd } from "./advice.js";
import { chooseEarlier, saidOfTheEnd, showEarlierChoice } from "./earlier.js";
import { chooseTarget, drawPast, forgetTarget, showStatus, showTarget } from "./evidence.js";
import { drawFigure } from "./figure.js";
import { $, ask, runPath, state } from "./state.js";
import { followSamples } from "./samples.js";
import { showTables } from "./tables.js";
import { atStep, between, hasCeiling, hours, rate, verdictWord } from "./words.js";

const WAIT_SECONDS = 5;
const PAUSE_MILLISECONDS = 250;
const RETRY_MILLISECONDS = 2000;
const MAX_COMPARED = 3;
let numShown = 0;

async function poll() {
  let pause = PAUSE_MILLISECONDS;
  try {
    if (document.hidden) await new Promise((shown) => document.addEventListener("visibilitychange", shown, { once: true }));
    const answer = await ask(`api/runs?after=${state.version}&wait_seconds=${WAIT_SECONDS}`);
    state.runs = answer.runs;
    showSource(answer);
    showRunChoice();
    const mine = itemOf(state.run);
    if (mine) await follow(mine);
    else wait("No forecast yet", "The first forecast follows the first evaluation after the run's start. This page updates itself.");
    $("waiting").hidden = Boolean(mine);
    $("content").hidden = !mine; // once shown, its charts have a size, and are drawn
    state.version = answer.version;
  } catch (error) {
    pause = RETRY_MILLISECONDS;
    state.version = "";
    $("source").className = "away";
    $("source").textContent = `The forecaster is not responding (${error.message}). Showing the last known values.`;
    wait("Not connected", "The forecaster is not responding. This page keeps trying.");
  }
  setTimeout(poll, pause);
}

/* What is shown as long as no run is. */
function wait(word, note) {
  $("waiting-word").textContent = word;
  $("waiting-note").textContent = note;
}

async function follow(mine) {
  const key = `${mine.run} ${mine.sequence} ${mine.updated_at}`, isNew = key !== state.drawn;
  if (isNew) await load(mine);
  const status = await ask(runPath(mine.run, "status"));
  if (mine.run !== state.run) return; // another one was chosen meanwhile
  state.drawn = key;
  const isStatusNew = JSON.stringify(status) !== JSON.stringify(state.status);
  state.status = status;
  if (isNew || isStatusNew) showStatus();
  const stale = [...state.compared].filter(([name, { sequence }]) => ![sequence, undefined].includes(itemOf(name)?.sequence));
  for (const [name] of stale) state.compared.set(name, await other(name));
  if (stale.length) redrawFigure();
}

const itemOf = (name) => state.runs.find((item) => item.run === name);

async function load(forecast) {
  const run = forecast.run;
  const [points, history] = await Promise.all(["points", "history"].map((rest) => ask(runPath(run, rest))));
  if (run !== state.run) return;
  Object.assign(state, { forecast, points: points.points, history: history.forecasts });
  showEarlierChoice();
  await Promise.all([showTerms(), showTarget()]);
  drawPast();
  await followSamples();
}

/* Everything that depends on the terms which the user may type in. */
async function showTerms() {
  const shown = ++numShown, run = state.run;
  const isCurrent = () => shown === numShown && run === state.run;
  const advice = await askAdvice();
  if (!isCurrent() || advice === null) return;
  const { forecast } = state;
  const curve = await ask(runPath(run, `curve?until=${Math.max(advice.budget, forecast.compute)}`));
  if (!isCurrent() || forecast !== state.forecast) return;
  Object.assign(state, { advice, curve });
  showAdvice();
  showEnd();
  showNow();
  showTables(state);
  const said = await saidOfTheEnd();
  if (!isCurrent() || advice !== state.advice) return;
  state.said = said;
  redrawFigure();
}

function showNow() {
  const { forecast: f } = state;
  const lost = f.num_lost ? `, ${f.num_lost} of lost steps left out` : "";
  const incomplete = f.num_incomplete ? `, ${f.num_incomplete} left out that lack more than 10 % of their prompts` : "";
  const step = f.unit === "steps" ? "" : atStep(f.step);
  const made = `${f.num_points} ${f.num_points === 1 ? "evaluation" : "evaluations"}${f.num_at_start ? ` (${f.num_at_start} at step 0)` : ""}`;
  const now = `${step}${hours(f.compute)} ${f.unit}`;
  $("now-note").textContent = `Now ${rate(f.pass_rate)}: ${now}, ${made}${lost}${incomplete}.${f.has_forecast ? "" : " Nothing is forecast beyond now."}`;
  const ceiling = hasCeiling(f) ? `Forecast ceiling ${rate(f.asymptote.q50)}, 90 percent interval ${between(f.asymptote)}. ` : "";
  const end = $("end-tile").hidden ? "" : `At the end of the budget ${$("end").textContent}, ${$("end-note").textContent}. `;
  $("curve-text").textContent = `Pass rate ${rate(f.pass_rate)} at ${hours(f.compute)} ${f.unit}. ${end}${ceiling}${verdictWord(f.verdict)}: ${f.reason}`;
}

function showSource({ source, now }) {
  const age = Math.max(0, Math.round(now - source.read_at));
  $("source").className = source.up ? "up" : "away";
  const live = { ok: "live", "the run has ended": "the run has ended" }[source.message] ?? `live; ${source.message}`;
  const text = source.up ? live : `source away${source.read_at ? ` for ${age} s` : ""}: ${source.message}`;
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
  redrawFigure();
}

async function other(name) {
  const { sequence } = itemOf(name) ?? {};
  const [curve, points] = await Promise.all([ask(runPath(name, "curve")), ask(runPath(name, "points"))]);
  return { sequence, curve, points: points.points };
}

function redrawFigure() {
  if (!state.curve) return;
  drawFigure([...state.compared].filter(([name]) => name !== state.forecast.run && itemOf(name)?.unit === state.forecast.unit));
}

async function showEarlier() {
  if (!await chooseEarlier()) return;
  redrawFigure();
  drawPast();
}

function redraw() {
  if (!state.curve) return;
  redrawFigure();
  drawPast();
  if (state.status) showStatus();
}

$("run").addEventListener("change", () => {
  state.run = $("run").value;
  Object.assign(state, { drawn: "", earlier: null, said: [] });
  forgetTarget();
  delete $("log").dataset.touched;
  history.replaceState(null, "", `?run=${encodeURIComponent(state.run)}`);
  $("terms").reset();
  $("earlier").value = $("earlier").max;
  showCompareChoice();
  const mine = itemOf(state.run);
  if (mine) follow(mine).catch(() => { state.drawn = ""; });
});
$("target").addEventListener("input", () => chooseTarget().catch(() => {}));
$("earlier").addEventListener("input", () => showEarlier().catch(() => {}));
$("terms").addEventListener("input", () => showTerms().catch(() => {}));
$("terms").addEventListener("submit", (event) => event.preventDefault());
$("log").addEventListener("change", () => {
  $("log").dataset.touched = "true";
  redrawFigure();
});
const resized = new ResizeObserver(redraw);
for (const id of ["curve", "past", "staleness", "truncation"]) resized.observe($(id));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
poll();
