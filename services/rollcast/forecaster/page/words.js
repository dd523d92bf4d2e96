// Numbers and verdicts as the page says them.

export const VERDICTS = {
  too_early: ["Too early to tell", "warn"],
  forecastable: ["Forecastable", "good"],
  saturated: ["Saturated", "good"],
  not_sigmoid: ["Not a sigmoid", "bad"],
  regime_change: ["Regime change", "bad"],
};

const told = (value) => value !== null && value !== undefined;
export const rate = (value) => (told(value) ? value.toFixed(3) : "–");
export const share = (value) => (told(value) ? `${(100 * value).toFixed(1)} %` : "–");
export const hours = (value) => (told(value) ? compute(value) : "not reached");
export const chance = (p) => (p > 0.99 ? "over 99 %" : p < 0.01 ? "under 1 %" : `${Math.round(100 * p)} %`);

/* Device-hours with three digits. */
export function compute(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 8) });
}
