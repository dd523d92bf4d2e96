// Small charts as SVG: bands, lines, points with error bars, bars, rules. Colours come from the page's style sheet.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

export function formatCompute(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 8) });
}

function linearTicks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const ticks = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high * (1 + 1e-9); place += 1) ticks.push(place * step);
  return ticks;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  const factors = decades < 1.2 ? [1, 1.5, 2, 3, 5, 7] : decades < 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((decades * factors.length) / (count * 1.6)));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  return ticks.filter((_, place) => place % every === 0);
}

function scale([low, high], [from, to], isLog) {
  const map = isLog ? Math.log : (value) => value;
  const start = map(low), span = map(high) - map(low) || 1;
  const forward = (value) => from + ((map(value) - start) / span) * (to - from);
  forward.invert = (pixel) => {
    const place = start + ((pixel - from) / (to - from)) * span;
    return isLog ? Math.exp(place) : place;
  };
  return forward;
}

/* spec: {x: {domain, log, label, format}, y: {domain, format, ticks}, bands: [{x, low, high, style}],
   lines: [{x, y, style}], points: [{x, y, error, style, title}], bars: [{x, width, height}],
   rules: [{x | y, text}], onHover(x | null)} */
export function drawChart(holder, spec) {
  const width = holder.clientWidth, height = holder.clientHeight;
  if (!width || !height) return;
  const margin = { left: 44, right: 12, top: 10, bottom: spec.x.label ? 40 : 22 };
  const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const x = scale(spec.x.domain, [margin.left, width - margin.right], spec.x.log);
  const y = scale(spec.y.domain, [height - margin.bottom, margin.top], false);
  const clip = `clip-${holder.id}`;
  const defs = element("defs"), clipPath = element("clipPath", { id: clip });
  clipPath.append(element("rect", {
    x: margin.left - 5, y: margin.top - 4, width: Math.max(width - margin.left - margin.right + 10, 1),
    height: Math.max(height - margin.top - margin.bottom + 8, 1),
  }));
  defs.append(clipPath);
  svg.append(defs);

  for (const tick of linearTicks(...spec.y.domain, spec.y.ticks ?? 5)) {
    svg.append(element("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: margin.left - 8, y: y(tick) + 4, "text-anchor": "end" }, spec.y.format(tick)));
  }
  const wanted = Math.max(2, Math.floor(width / 80));
  const ticks = spec.x.log ? logTicks(...spec.x.domain, wanted) : linearTicks(...spec.x.domain, wanted);
  for (const tick of ticks)
    svg.append(element("text", { x: x(tick), y: height - margin.bottom + 16, "text-anchor": "middle" }, spec.x.format(tick)));
  const base = height - margin.bottom;
  svg.append(element("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: base, y2: base }));
  if (spec.x.label)
    svg.append(element("text", { x: (margin.left + width - margin.right) / 2, y: height - 4, "text-anchor": "middle" }, spec.x.label));

  const area = element("g", { "clip-path": `url(#${clip})` });
  const path = (xs, ys) => xs.map((value, place) => `${x(value).toFixed(1)},${y(ys[place]).toFixed(1)}`);
  for (const { xs, low, high, style } of spec.bands ?? []) {
    const outline = [...path(xs, high), ...path(xs, low).reverse()].join("L");
    area.append(element("path", { class: `band ${style}`, d: `M${outline}Z` }));
  }
  for (const { at, width: wide, height: tall } of spec.bars ?? [])
    area.append(element("rect", {
      class: "bar", x: x(at - wide / 2), width: Math.max(x(at + wide / 2) - x(at - wide / 2), 1), y: y(tall), height: Math.max(base - y(tall), 0),
    }));
  for (const rule of spec.rules ?? []) {
    const [x1, x2, y1, y2] = rule.x === undefined
      ? [margin.left, width - margin.right, y(rule.y), y(rule.y)] : [x(rule.x), x(rule.x), margin.top, base];
    area.append(element("line", { class: "rule", x1, x2, y1, y2 }));
    const left = rule.x === undefined || x1 > width / 2;
    area.append(element("text", rule.x === undefined
      ? { x: margin.left + 6, y: y1 - 5 }
      : { x: x1 + (left ? -6 : 6), y: base - 8, "text-anchor": left ? "end" : "start" }, rule.text));
  }
  for (const { xs, ys, style } of spec.lines ?? [])
    area.append(element("path", { class: `line ${style}`, d: `M${path(xs, ys).join("L")}` }));
  for (const point of spec.points ?? []) {
    const left = x(point.x), group = element("g");
    if (point.error)
      group.append(element("line", { class: "error", x1: left, x2: left, y1: y(point.y - point.error), y2: y(point.y + point.error) }));
    group.append(element("circle", { class: `point ${point.style ?? ""}`, cx: left, cy: y(point.y), r: spec.points.length > 80 ? 2.5 : 3.5 }));
    if (point.title) group.append(element("title", {}, point.title));
    area.append(group);
  }
  svg.append(area);

  if (spec.onHover) {
    const cursor = element("line", { class: "cursor", y1: margin.top, y2: base, visibility: "hidden" });
    svg.append(cursor);
    svg.addEventListener("pointermove", (event) => {
      const pixel = event.clientX - svg.getBoundingClientRect().left;
      const inside = pixel >= margin.left && pixel <= width - margin.right;
      cursor.setAttribute("visibility", inside ? "visible" : "hidden");
      cursor.setAttribute("x1", pixel);
      cursor.setAttribute("x2", pixel);
      spec.onHover(inside ? x.invert(pixel) : null);
    });
    svg.addEventListener("pointerleave", () => {
      cursor.setAttribute("visibility", "hidden");
      spec.onHover(null);
    });
  }
  holder.replaceChildren(svg);
}

export function legendItem(style, kind, text) {
  const item = document.createElement("li"), svg = element("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" });
  if (kind === "band") svg.append(element("rect", { class: `band ${style}`, x: 0, y: 1, width: 26, height: 12 }));
  if (kind === "line") svg.append(element("path", { class: `line ${style}`, d: "M0,7L26,7" }));
  if (kind === "point") {
    svg.append(element("line", { class: "error", x1: 13, x2: 13, y1: 0, y2: 14 }));
    svg.append(element("circle", { class: `point ${style}`, cx: 13, cy: 7, r: 3.5 }));
  }
  item.append(svg, text);
  return item;
}
