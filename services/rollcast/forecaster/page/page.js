// The live page: asks for /api/runs every two seconds and draws anew what changed.

import { drawChart, formatCompute, legendItem } from "./chart.js";

const POLL_MILLISECONDS = 2000;
const VERDICTS = {
  too_early: ["Too early to tell", "warn"],
  forecastable: ["Forecastable", "good"],
  saturated: ["Saturated", "good"],
  not_sigmoid: ["Not a sigmoid", "bad"],
  regime_change: ["Regime change", "bad"],
};
const $ = (id) => document.getElementById(id);
const rate = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
const hours = (value) => (value === null || value === undefined ? "not reached" : formatCompute(value));
const state = {
  runs: [], run: null, drawn: "", forecast: null, curve: null, points: [], history: [], status: null,
  earlier: null, compared: new Map(), targetTouched: false, asked: 0,
};

async function ask(path) {
  const response = await fetch(path, { cache: "no-store" });
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? `status ${response.status}`);
  return body;
}
const runPath = (run, rest) => `api/runs/${encodeURIComponent(run)}/${rest}`;

async function poll() {
  try {
    const answer = await ask("api/runs");
    state.runs = answer.runs;
    showSource(answer);
    showRunChoice();
    const mine = answer.runs.find((item) => item.run === state.run);
    $("waiting").hidden = Boolean(mine);
    $("content").hidden = !mine;
    if (mine) {
      const key = `${mine.run} ${mine.sequence}`;
      if (key !== state.drawn) await load(mine);
      state.drawn = key;
      state.status = await ask(runPath(mine.run, "status"));
      drawStatus();
    }
  } catch (error) {
    $("source").className = "away";
    $("source").textContent = `the forecaster does not answer (${error.message}); shown is what it said last`;
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

function showSource({ source, now }) {
  const age = Math.max(0, Math.round(now - source.read_at));
  $("source").className = source.up ? "up" : "away";
  const text = source.up ? "live" : `source away${source.read_at ? ` for ${age} s` : ""}: ${source.message}`;
  if ($("source").textContent !== text) $("source").textContent = text;
}

function showRunChoice() {
  const names = state.runs.map((item) => item.run);
  const select = $("run");
  if (!names.includes(state.run)) state.run = new URLSearchParams(location.search).get("run") ?? names[0] ?? null;
  if (!names.includes(state.run)) state.run = names[0] ?? null;
  if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    showCompareChoice(names);
  }
  if (state.run) select.value = state.run;
}

function showCompareChoice(names) {
  const others = names.filter((name) => name !== state.run).slice(0, 12);
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
  else if (state.compared.size >= 3) box.checked = false;
  else {
    const [curve, points] = await Promise.all([ask(runPath(name, "curve")), ask(runPath(name, "points"))]);
    state.compared.set(name, { curve, points: points.points });
  }
  drawCurve();
}

async function load(forecast) {
  const run = forecast.run;
  const [curve, points, history] = await Promise.all(
    ["curve", "points", "history"].map((rest) => ask(runPath(run, rest))),
  );
  Object.assign(state, { forecast, curve, points: points.points, history: history.forecasts });
  showNumbers();
  showEarlierChoice();
  showTargetRange();
  drawCurve();
  drawPast();
  await showTarget();
}

function showNumbers() {
  const f = state.forecast;
  const [word, tone] = VERDICTS[f.verdict] ?? [f.verdict, "warn"];
  $("verdict").className = `verdict ${tone}`;
  $("verdict-word").textContent = word;
  $("verdict-reason").textContent = f.reason;
  $("now").textContent = rate(f.pass_rate);
  const lost = f.num_lost ? `, ${f.num_lost} of lost steps left out` : "";
  $("now-note").textContent = `step ${f.step}, ${hours(f.compute)} device-hours, ${f.num_points} evaluations${lost}`;
  $("asymptote").textContent = rate(f.asymptote.q50);
  $("asymptote-note").textContent = `90 %: ${rate(f.asymptote.q05)} to ${rate(f.asymptote.q95)}`;
  $("headroom").textContent = rate(f.headroom.q50);
  $("headroom-note").textContent = `90 %: ${rate(f.headroom.q05)} to ${rate(f.headroom.q95)}`;
  $("end").textContent = f.end ? rate(f.end.q50) : "–";
  $("end-note").textContent = f.end
    ? `90 %: ${rate(f.end.q05)} to ${rate(f.end.q95)} at ${hours(f.end.compute)} device-hours; gain from now ${rate(f.end.gain.mean)}`
    : "the run tells no budget";
  $("curve-text").textContent =
    `Pass rate ${rate(f.pass_rate)} at ${hours(f.compute)} device-hours. Forecast ceiling ${rate(f.asymptote.q50)}, ` +
    `90 percent interval ${rate(f.asymptote.q05)} to ${rate(f.asymptote.q95)}. ${word}: ${f.reason}`;
  const rows = [["A", f.asymptote, rate], ["B", f.exponent, rate], ["C_mid (device-hours)", f.midpoint, hours], ["Headroom", f.headroom, rate]];
  fill("parameters", rows.map(([name, q, show]) => [name, show(q.q05), show(q.q50), show(q.q95)]));
  fill("points", state.points.map((p) => [`${p.incarnation}.${p.step}`, hours(p.compute), rate(p.pass_rate), rate(p.standard_error), share(p.truncation_ratio)]));
}

function fill(id, rows) {
  $(id).tBodies[0].replaceChildren(...rows.map((cells) => {
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

function drawCurve() {
  const { curve, forecast: f, points } = state;
  if (!curve) return;
  const isLog = $("log").checked;
  const style = (place) => `run-${place + 1}`;
  const others = [...state.compared.entries()].filter(([name]) => name !== f.run);
  const drawn = points.filter((p) => !isLog || p.compute > 0);
  const values = [[f.asymptote.q50], curve.q05, curve.q95, ...others.map(([, o]) => o.curve.q50)].flat().concat(points.map((p) => p.pass_rate));
  const low = Math.max(0, Math.floor(Math.min(...values) * 10 - 0.2) / 10), high = Math.min(1, Math.ceil(Math.max(...values) * 10 + 0.2) / 10);
  const stop = Math.max(curve.compute.at(-1), ...others.map(([, o]) => o.curve.compute.at(-1)));
  const lines = [], bands = [], marks = [];
  bands.push({ xs: curve.compute, low: curve.q05, high: curve.q95, style: "fit" });
  bands.push({ xs: curve.compute, low: curve.q25, high: curve.q75, style: "fit inner" });
  if (state.earlier) {
    const past = state.earlier;
    bands.push({ xs: past.compute, low: past.q05, high: past.q95, style: "earlier" });
    lines.push({ xs: past.compute, ys: past.q50, style: "earlier" });
  }
  if ($("power").checked) lines.push({ xs: curve.compute, ys: curve.power_law, style: "power" });
  others.forEach(([, other], place) => {
    lines.push({ xs: other.curve.compute, ys: other.curve.law, style: style(place) });
    for (const p of other.points) if (!isLog || p.compute > 0) marks.push({ x: p.compute, y: p.pass_rate, style: style(place) });
  });
  lines.push({ xs: curve.compute, ys: curve.law, style: "fit" });
  for (const p of drawn)
    marks.push({
      x: p.compute, y: p.pass_rate, error: p.standard_error,
      title: `step ${p.step}: ${rate(p.pass_rate)} ± ${rate(p.standard_error)} at ${hours(p.compute)} device-hours`,
    });
  const rules = [{ y: f.asymptote.q50, text: `ceiling A ${rate(f.asymptote.q50)}` }];
  if (f.end) rules.push({ x: f.end.compute, text: "end of budget" });
  drawChart($("curve"), {
    x: { domain: [isLog ? curve.compute[0] : 0, stop], log: isLog, label: "compute (device-hours)", format: formatCompute },
    y: { domain: [low, high], format: (v) => v.toFixed(1) },
    bands, lines, points: marks, rules, onHover: showReadout,
  });
  showReadout(null);
  $("legend").replaceChildren(
    legendItem("", "point", "evaluation ± standard error"),
    legendItem("fit", "line", "the law"),
    legendItem("fit inner", "band", "50 % of readings"),
    legendItem("fit", "band", "90 % of readings"),
    ...($("power").checked ? [legendItem("power", "line", "power law")] : []),
    ...(state.earlier ? [legendItem("earlier", "line", "said earlier")] : []),
    ...others.map(([name], place) => legendItem(style(place), "line", name)),
  );
}

function showReadout(compute) {
  const { curve } = state;
  if (compute === null) {
    $("readout").textContent = "";
    return;
  }
  const place = curve.compute.reduce((best, value, i) => (Math.abs(value - compute) < Math.abs(curve.compute[best] - compute) ? i : best), 0);
  $("readout").textContent = `at ${hours(curve.compute[place])} device-hours: ${rate(curve.q50[place])}, 90 % ${rate(curve.q05[place])} to ${rate(curve.q95[place])}`;
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
    $("earlier-label").textContent = `After ${past.num_points} evaluations (${hours(past.compute)} device-hours)`;
    $("earlier").setAttribute("aria-valuetext", `after ${past.num_points} evaluations`);
    const end = past.end ? `; end of the budget ${rate(past.end.q50)} (${rate(past.end.q05)} to ${rate(past.end.q95)})` : "";
    $("earlier-answer").textContent =
      `It said: ${(VERDICTS[past.verdict] ?? [past.verdict])[0].toLowerCase()}, ceiling ${rate(past.asymptote.q50)} ` +
      `(90 %: ${rate(past.asymptote.q05)} to ${rate(past.asymptote.q95)})${end}.`;
  }
  drawCurve();
  drawPast();
}

function drawPast() {
  const past = state.history;
  if (past.length === 0) {
    $("past").replaceChildren();
    return;
  }
  const xs = past.map((p) => p.compute), pick = (q) => past.map((p) => p.asymptote[q]);
  const wide = past.length === 1 ? [0, 2 * xs[0]] : [Math.min(...xs), Math.max(...xs)];
  drawChart($("past"), {
    x: { domain: wide, label: "", format: formatCompute },
    y: { domain: [Math.max(0, Math.min(...pick("q05")) - 0.05), 1], format: (v) => v.toFixed(1), ticks: 3 },
    bands: [{ xs, low: pick("q05"), high: pick("q95"), style: "fit" }, { xs, low: pick("q25"), high: pick("q75"), style: "fit inner" }],
    lines: [{ xs, ys: pick("q50"), style: "fit" }],
    rules: state.earlier ? [{ x: state.earlier.forecast.compute, text: "shown above" }] : [],
    points: past.map((p) => ({ x: p.compute, y: p.asymptote.q50, title: `after ${p.num_points} evaluations: A = ${rate(p.asymptote.q50)}` })),
  });
}

function showTargetRange() {
  if (state.targetTouched) return;
  const { asymptote, pass_rate } = state.forecast;
  $("target").value = ((Math.max(asymptote.q50, pass_rate) + pass_rate) / 2).toFixed(3);
}

async function showTarget() {
  const value = Number($("target").value);
  $("target-value").textContent = value.toFixed(3);
  if (!state.run) return;
  const asked = ++showTarget.asked;
  const answer = await ask(runPath(state.run, `target?pass_rate=${value}`));
  if (asked !== showTarget.asked) return;
  const { compute, probability } = answer, now = state.forecast.compute;
  const percent = (p) => (p > 0.99 ? "over 99 %" : p < 0.01 ? "under 1 %" : `${Math.round(100 * p)} %`);
  $("target-answer").textContent =
    compute.q50 === null ? "More likely than not, never" : `${hours(compute.q50)} device-hours in all`;
  const more = compute.q50 === null ? "" : compute.q50 > now ? `${hours(compute.q50 - now)} more than now. ` : "Behind us already. ";
  const budget = answer.probability_in_budget === null ? "" : `, within the budget ${percent(answer.probability_in_budget)}`;
  $("target-note").textContent =
    `${more}90 %: ${hours(compute.q05)} to ${compute.q95 === null ? "never" : hours(compute.q95)}. Chance to reach it ever ${percent(probability)}${budget}.`;
}
showTarget.asked = 0;

function drawStatus() {
  const s = state.status;
  const buckets = s.staleness.filter((b) => b.steps !== null), total = s.staleness.reduce((sum, b) => sum + b.tokens, 0);
  if (total > 0) {
    const used = buckets.filter((b) => b.tokens > 0).map((b) => b.steps);
    const last = Math.max(s.max_staleness ?? 0, ...used);
    const shown = buckets.filter((b) => b.steps <= last), shares = shown.map((b) => b.tokens / total);
    drawChart($("staleness"), {
      x: { domain: [-0.6, last + 0.6], format: (v) => (Number.isInteger(v) ? String(v) : "") },
      y: { domain: [0, Math.max(...shares, 0.01) * 1.1], format: (v) => `${Math.round(100 * v)} %`, ticks: 3 },
      bars: shown.map((b, place) => ({ at: b.steps, width: 0.8, height: shares[place] })),
      rules: s.max_staleness === null ? [] : [{ x: s.max_staleness, text: "bound k" }],
    });
    const mean = buckets.reduce((sum, b) => sum + b.steps * b.tokens, 0) / total;
    $("staleness-note").textContent = `Share of trained tokens by staleness in steps; mean ${mean.toFixed(2)}` +
      (s.longest_group_ratio === null ? "." : `, longest group ${Math.round(100 * s.longest_group_ratio)} % of what the bound allows.`);
  } else {
    $("staleness").replaceChildren();
    $("staleness-note").textContent = "The source tells no staleness.";
  }
  drawTruncation(s);
}

function drawTruncation(s) {
  const trace = s.trace.filter((p) => p.truncation_ratio !== null);
  const known = state.points.filter((p) => p.truncation_ratio !== null);
  const steps = [...trace, ...known].map((p) => p.step), ratios = [...trace, ...known].map((p) => p.truncation_ratio);
  if (Math.max(...steps) > Math.min(...steps)) {
    drawChart($("truncation"), {
      x: { domain: [Math.min(...steps), Math.max(...steps)], format: (v) => (Number.isInteger(v) ? String(v) : "") },
      y: { domain: [0, Math.max(0.12, ...ratios) * 1.1], format: (v) => `${Math.round(100 * v)} %`, ticks: 3 },
      lines: trace.length > 1 ? [{ xs: trace.map((p) => p.step), ys: trace.map((p) => p.truncation_ratio), style: "fit" }] : [],
      points: known.map((p) => ({ x: p.step, y: p.truncation_ratio, title: `evaluation at step ${p.step}: ${share(p.truncation_ratio)} cut off` })),
      rules: [{ y: 0.1, text: "10 %: often unstable beyond" }],
    });
  } else $("truncation").replaceChildren();
  if (s.truncation_ratio !== null)
    $("truncation-note").textContent = `Now ${share(s.truncation_ratio)} of rollouts are cut by the budget, at step ${s.step ?? "?"}. Dots: at the evaluations.`;
  else if (known.length)
    $("truncation-note").textContent = `${share(known.at(-1).truncation_ratio)} of rollouts were cut by the budget at step ${known.at(-1).step}.`;
  else $("truncation-note").textContent = "The source tells no truncation.";
}

function drawAll() {
  if (!state.curve) return;
  drawCurve();
  drawPast();
  if (state.status) drawStatus();
}

$("run").addEventListener("change", () => {
  state.run = $("run").value;
  Object.assign(state, { drawn: "", earlier: null, targetTouched: false });
  state.compared.delete(state.run);
  history.replaceState(null, "", `?run=${encodeURIComponent(state.run)}`);
  $("earlier").value = $("earlier").max;
  showCompareChoice(state.runs.map((item) => item.run));
  const mine = state.runs.find((item) => item.run === state.run);
  if (mine) load(mine).catch(() => { state.drawn = ""; });
});
$("target").addEventListener("input", () => {
  state.targetTouched = true;
  showTarget().catch(() => {});
});
$("earlier").addEventListener("input", () => showEarlier().catch(() => {}));
for (const id of ["log", "power"]) $(id).addEventListener("change", drawCurve);
new ResizeObserver(drawAll).observe($("content"));
poll();
