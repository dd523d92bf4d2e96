// Numbers and verdicts as the page says them.

export const VERDICTS = {
  too_few: "Too few evaluations",
  too_early: "Too early",
  forecastable: "Forecastable",
  saturated: "Saturated",
  no_learning: "No learning",
  broken: "Broken",
  not_sigmoid: "Not a sigmoid",
  regime_change: "Regime change",
};

export const verdictWord = (verdict) => VERDICTS[verdict] ?? verdict;

const LOOKS = { stop: "bad", continue: "good", wait: "warn" };
/* The look of the advice; its headline says the same in a word, so that nothing depends on colour. Nothing is green that
   no law supports. */
export const look = (advice, forecast) => (advice.kind === "continue" && !forecast.is_described ? "warn" : LOOKS[advice.kind]);

const SAYS_NOTHING_AHEAD = ["too_few", "broken"];
/* Whether an earlier forecast said anything of later evaluations. */
export const lookedAhead = (past) => !SAYS_NOTHING_AHEAD.includes(past.verdict);

const LATEST_STEP = 1e8;
/* A step that is a time stamp is not shown. */
export const atStep = (step) => (step < LATEST_STEP ? `step ${step.toLocaleString("en")}, ` : "");

/* Whether gains will more likely than not end within sight. If not, A is that of the few trajectories in which they do. */
export const hasCeiling = (forecast) => forecast.is_described && forecast.ceiling_probability >= 0.5;

const isKnown = (value) => value !== null && value !== undefined;
export const rate = (value) => (isKnown(value) ? value.toFixed(3) : "–");
export const between = ({ q05, q95 }) => `${rate(q05)} to ${rate(q95)}`;
/* A difference of pass rates: of less than 0.001 the first digit that is not 0. */
export const gain = (value) => (isKnown(value) && Math.abs(value) >= 1e-6 && Math.abs(value) < 0.001
  ? String(Number(value.toFixed(-Math.floor(Math.log10(Math.abs(value)))))) : rate(value));
export const share = (value) => (isKnown(value) ? `${(100 * value).toFixed(1)} %` : "–");
export const hours = (value) => (isKnown(value) ? compute(value) : "not reached");
export const chance = (p) => (p > 0.99 ? "over 99 %" : p < 0.01 ? "under 1 %" : `${Math.round(100 * p)} %`);
export const singular = (unit) => (/^[a-zA-Z-]+s$/.test(unit) ? unit.slice(0, -1) : unit);

const MILLIONS = 1e7; // from here on as 4.2B: tokens are counted in billions, and no digit beyond the third is known

/* An amount of compute with three digits. */
export function compute(value) {
  if (value === 0) return "0";
  if (value >= MILLIONS) return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 8) });
}
