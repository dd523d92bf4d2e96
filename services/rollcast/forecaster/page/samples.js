// What the model wrote at an evaluation: an answer as text, an episode turn by turn with its tokens.
// Every text comes from a model or an environment, and is only ever set as text.

import { $, ask, runPath, state } from "./state.js";

const SURPRISES = [[0.1, "u3"], [0.5, "u2"], [0.8, "u1"]]; // probabilities below which a token is marked
const ENDS = {
  answered: "the model answered", done: "the environment ended it", tokens: "out of tokens", turns: "out of turns",
  seconds: "out of time", failed: "the environment failed", running: "it did not end",
};
const shown = { run: null, evaluations: [], folder: "", recorded: [] };

/* Asks again if the samples are open: an evaluation has come, or another run was chosen. */
export async function followSamples() {
  if (!$("samples").open) return;
  const run = state.run;
  const { evaluations, run_folder: folder, recorded_steps: recorded } = await ask(runPath(run, "samples"));
  if (run !== state.run) return;
  const isNewest = shown.run !== run || $("sampled-evaluation").selectedIndex <= 0;
  const key = $("sampled-evaluation").value;
  Object.assign(shown, { run, evaluations, folder, recorded });
  $("samples-part").hidden = evaluations.length === 0;
  $("samples-note").hidden = evaluations.length > 0;
  $("samples-note").textContent = "No samples yet, or this forecaster does not have the run's folder.";
  if (!evaluations.length) return;
  choose("sampled-evaluation", evaluations.map((item) => [keyOf(item), `${item.dataset}, step ${item.step}`]), isNewest ? null : key);
  showPrompts();
}

const keyOf = (item) => `${item.incarnation} ${item.step} ${item.dataset}`;
const evaluation = () => shown.evaluations.find((item) => keyOf(item) === $("sampled-evaluation").value);

/* `wanted`: the value that stays chosen if there is one. */
function choose(id, options, wanted) {
  $(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  if (options.some(([value]) => value === wanted)) $(id).value = wanted;
}

function showPrompts() {
  const wanted = $("sampled-prompt").value;
  choose("sampled-prompt", evaluation().samples.map((sample, place) => [String(place), `${place + 1}: ${verdictOf(sample)}`]), wanted);
  showSample();
}

const verdictOf = (sample) => (["ok", "wrong"].includes(sample.status) ? `reward ${number(sample.reward)}` : `no verdict (${sample.status})`);
const number = (value) => (value === null ? "unknown" : String(Math.round(1000 * value) / 1000));
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const seconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;

/* The last recorded step that is part of the weights which wrote the sample, with the command that replays it. */
function showRecorded(step) {
  const recorded = shown.recorded.filter((item) => item <= step).at(-1);
  $("sample-recorded").hidden = recorded === undefined;
  if (recorded === undefined) return;
  const which = recorded === step ? "The step that made these weights is recorded" : `Of the steps before, ${recorded} is the last that is recorded`;
  $("sample-recorded").firstElementChild.textContent = `${which}; compute it again with `;
  $("sample-replay").textContent = `rollcast replay ${shown.folder} --step ${recorded}`;
}

function showSample() {
  const sample = evaluation().samples[Number($("sampled-prompt").value)], { episode } = sample;
  $("sample-summary").textContent = episode ? wordsOf(sample, episode) : `${verdictOf(sample)}, ${plural(sample.num_tokens, "token")}${sample.truncated ? ", cut off" : ""}`;
  showRecorded(evaluation().step);
  $("sample-legend").hidden = $("token-readout").hidden = !episode;
  const blocks = episode ? blocksOf(episode) : [block("Answer", [], [part("", sample.completion)])];
  $("sample").replaceChildren(block("Prompt", [], [part("given", sample.prompt)], "read"), ...blocks);
}

function wordsOf(sample, episode) {
  const calls = episode.turns.reduce((sum, turn) => sum + turn.tool_calls, 0);
  const restarts = episode.restarts ? `, begun again ${plural(episode.restarts, "time")}` : "";
  const reason = episode.reason ? `: ${episode.reason}` : "";
  return `${episode.environment}: ${verdictOf(sample)}, ${plural(episode.num_turns, "turn")}, ${plural(calls, "call")}, `
    + `${ENDS[episode.end] ?? episode.end}${reason}; environment ${seconds(episode.environment_seconds)}, `
    + `sampling ${seconds(episode.sampling_seconds)}${restarts}`;
}

function blocksOf(episode) {
  const blocks = [];
  let version = "", before = 0;
  for (const turn of episode.turns) {
    if (turn.number > before + 1) blocks.push(note(`${plural(turn.number - before - 1, "turn")} left out`));
    before = turn.number;
    const parts = turn.prompt ? [part("given", turn.prompt)] : [];
    for (const leg of turn.legs) {
      if (leg.version && leg.version !== version) parts.push(part("version", leg.version));
      version = leg.version || version;
      parts.push(...partsOf(leg));
    }
    blocks.push(block(`Turn ${turn.number}`, marksOf(turn), parts, turn.malformed_calls ? "bad" : ""));
  }
  return blocks;
}

/* What is said next to a turn's number: [words, class]. */
function marksOf(turn) {
  const marks = [];
  if (turn.prompt) marks.push(["its tokens do not extend those before: a sequence of its own", "warn"]);
  if (turn.tool_calls) marks.push([plural(turn.tool_calls, "call"), ""]);
  if (turn.malformed_calls) marks.push([`${turn.malformed_calls} malformed`, "bad"]);
  if (turn.environment_seconds) marks.push([`environment ${seconds(turn.environment_seconds)}`, ""]);
  if (turn.reward) marks.push([`reward of the turn ${number(turn.reward)}`, ""]);
  return marks;
}

function partsOf(leg) {
  if (leg.num_left_out) return [part("left-out", ` … ${plural(leg.num_left_out, "token")} … `)];
  return leg.tokens.map((text, place) => {
    const logprob = leg.logprobs[place] ?? null;
    if (leg.kind === "given") return token(part("given", text), `given, version ${leg.version || "unknown"}`);
    if (!leg.is_trained) return token(part("masked", text), `forced (${leg.kind}), no loss, version ${leg.version}`);
    const probability = logprob === null ? 1 : Math.exp(logprob);
    const [, surprise] = SURPRISES.find(([below]) => probability < below) ?? [1, ""];
    return token(part(surprise, text), `log-prob ${logprob === null ? "unknown" : logprob.toFixed(3)}, version ${leg.version}`);
  });
}

function part(name, text) {
  const node = document.createElement("span");
  node.className = name;
  node.textContent = text;
  return node;
}

function token(node, words) {
  node.dataset.said = node.title = words;
  return node;
}

function note(words) {
  const node = document.createElement("p");
  node.className = "note";
  node.textContent = words;
  return node;
}

function block(title, marks, parts, kind = "") {
  const node = document.createElement("section"), heading = document.createElement("h3"), text = document.createElement("div");
  node.className = `turn ${kind}`;
  heading.append(title, ...marks.map(([words, name]) => part(`mark ${name}`, words)));
  text.className = "tokens";
  text.append(...parts);
  node.append(heading, text);
  return node;
}

$("samples").addEventListener("toggle", () => followSamples().catch(() => {})); // poll reports a forecaster that is away
$("sampled-evaluation").addEventListener("change", showPrompts);
$("sampled-prompt").addEventListener("change", showSample);
$("sample").addEventListener("mouseover", ({ target }) => {
  if (target.dataset.said) $("token-readout").textContent = `${JSON.stringify(target.textContent.slice(0, 60))}: ${target.dataset.said}`;
});
