// What the page knows, and how it asks the forecaster.

const TIMEOUT_MILLISECONDS = 30000;

export const $ = (id) => document.getElementById(id);

export const state = {
  version: "",
  runs: [],
  run: null, // the name of the one that is shown
  drawn: "", // which of its forecasts
  forecast: null,
  advice: null, // on the terms that the user typed in, or on the run's own
  curve: null, // until the end of the advice's budget
  points: [],
  history: [],
  said: [], // earlier forecasts of the end of the budget, oldest first: {share, reading}
  status: null,
  earlier: null, // the earlier forecast that is drawn over the present one
  compared: new Map(),
};

export async function ask(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS) });
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail ?? `status ${response.status}`);
  return body;
}

export const runPath = (run, rest) => `api/runs/${encodeURIComponent(run)}/${rest}`;

export const column = (rows, name) => rows.map((row) => row[name]);
