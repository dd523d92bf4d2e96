// One chart: a description of its bands, lines, points, bars and rules becomes a uPlot in the page's colours.
/* global uPlot */

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const drawn = new Map();

/* A colour of the style sheet, as it is in the present colour scheme; opacity 0 to 1. */
function colour(name, opacity = 1) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
}

/* spec: {x: {range, log, label, format, incrs}, y: {range, format}, bands: [{xs, low, high, colour, opacity}],
   lines: [{xs, ys, colour, width, dash}], points: [{xs, ys, errors, colour}], bars: {xs, ys, colour},
   rules: [{x | y, text}], onHover(x | null)}
   A format gets the distance of the ticks as well: (value, distance) -> text. */
export function drawChart(holder, spec) {
  clearChart(holder);
  const width = holder.clientWidth, height = holder.clientHeight;
  if (!width || !height) return;
  const { tables, series, bands } = content(spec);
  const options = {
    width, height, series, bands,
    padding: [10, roomForLastTick(spec.x), spec.x.label ? 0 : 4, 0],
    legend: { show: false },
    cursor: { show: Boolean(spec.onHover), y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { time: false, distr: spec.x.log ? 3 : 1, range: () => spec.x.range },
      y: { range: () => spec.y.range },
    },
    axes: [
      axis(spec.x, { grid: { show: false }, size: 28, space: 64, border: { show: true, stroke: colour("line"), width: 1 } }),
      axis(spec.y, { grid: { stroke: colour("grid"), width: 1 }, size: 48, space: height < 200 ? 28 : 44 }),
    ],
    hooks: {
      draw: [(chart) => drawErrors(chart, spec.points ?? []), (chart) => drawRules(chart, spec.rules ?? [])],
      setCursor: spec.onHover
        ? [({ cursor, posToVal }) => spec.onHover(cursor.left >= 0 ? posToVal(cursor.left, "x") : null)] : [],
    },
  };
  drawn.set(holder, new uPlot(options, uPlot.join(tables), holder));
}

export function clearChart(holder) {
  drawn.get(holder)?.destroy();
  drawn.delete(holder);
}

/* The data over a shared x, and how each column of it looks. */
function content(spec) {
  const tables = [], series = [{}], bands = [];
  const quiet = { spanGaps: true, points: { show: false } };
  for (const band of spec.bands ?? []) {
    tables.push([band.xs, band.high, band.low]);
    bands.push({ series: [series.length, series.length + 1], fill: colour(band.colour, band.opacity) });
    series.push({ ...quiet, width: 0 }, { ...quiet, width: 0 });
  }
  if (spec.bars) {
    tables.push([spec.bars.xs, spec.bars.ys]);
    series.push({ ...quiet, width: 0, fill: colour(spec.bars.colour, 0.75), paths: uPlot.paths.bars({ size: [0.8, 90] }) });
  }
  for (const line of spec.lines ?? []) {
    tables.push([line.xs, line.ys]);
    series.push({ ...quiet, stroke: colour(line.colour), width: line.width ?? 2, dash: line.dash });
  }
  for (const points of spec.points ?? []) {
    tables.push([points.xs, points.ys]);
    const look = { show: true, size: points.xs.length > 80 ? 5 : 7, width: 1, fill: colour(points.colour), stroke: colour("surface") };
    series.push({ paths: () => null, points: look });
  }
  return { tables, series, bands };
}

function axis(wanted, look) {
  return {
    stroke: colour("muted"), font: `12px ${FONT}`, ticks: { show: false }, gap: 6,
    label: wanted.label, labelFont: `12px ${FONT}`, labelSize: 20, labelGap: 0,
    ...(wanted.incrs ? { incrs: wanted.incrs } : {}),
    ...(wanted.log ? { filter: logTicks } : {}),
    values: (_, splits, place, space, distance) => splits.map((value) => (value === null ? "" : wanted.format(value, distance))),
    ...look,
  };
}

/* A tick at the very end stands half beyond the plot. */
function roomForLastTick({ range, format }) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `12px ${FONT}`;
  return Math.max(14, Math.ceil(pen.measureText(format(range[1], range[1])).width / 2) + 2);
}

/* As many of the ticks 1, 2, 3 ... 10, 20 as have room for their text; the others become null. */
function logTicks(chart, splits) {
  const { min, max } = chart.scales.x, room = chart.bbox.width / devicePixelRatio / Math.log10(max / min);
  const kept = room > 400 ? [1, 2, 3, 5, 7] : room > 160 ? [1, 2, 5] : room > 80 ? [1, 3] : [1];
  const isKept = (value) => kept.some((digit) => Math.abs(value / 10 ** Math.floor(Math.log10(value) + 1e-9) - digit) < 1e-6);
  return splits.map((value) => (isKept(value) ? value : null));
}

/* Within the plot, on canvas pixels. */
function inside(chart, draw) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, bbox, devicePixelRatio);
  ctx.restore();
}

function drawErrors(chart, points) {
  inside(chart, (ctx, _, ratio) => {
    ctx.lineWidth = ratio;
    for (const { xs, ys, errors, colour: name } of points) {
      if (!errors) continue;
      ctx.strokeStyle = colour(name, 0.55);
      ctx.beginPath();
      errors.forEach((error, place) => {
        if (!error) return;
        const x = chart.valToPos(xs[place], "x", true);
        ctx.moveTo(x, chart.valToPos(ys[place] - error, "y", true));
        ctx.lineTo(x, chart.valToPos(ys[place] + error, "y", true));
      });
      ctx.stroke();
    }
  });
}

function drawRules(chart, rules) {
  inside(chart, (ctx, box, ratio) => {
    ctx.strokeStyle = ctx.fillStyle = colour("muted");
    ctx.lineWidth = ratio;
    ctx.font = `${12 * ratio}px ${FONT}`;
    ctx.textBaseline = "alphabetic";
    for (const { x, y, text } of rules) {
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath();
      if (x === undefined) {
        const at = chart.valToPos(y, "y", true);
        ctx.moveTo(box.left, at);
        ctx.lineTo(box.left + box.width, at);
        const isAtTop = at - box.top < 18 * ratio; // a text above would be cut, and on the left one below would hide points
        ctx.textAlign = isAtTop ? "right" : "left";
        ctx.fillText(text, isAtTop ? box.left + box.width - 6 * ratio : box.left + 6 * ratio, isAtTop ? at + 15 * ratio : at - 5 * ratio);
      } else {
        const at = chart.valToPos(x, "x", true), onRight = at > box.left + box.width / 2;
        ctx.moveTo(at, box.top);
        ctx.lineTo(at, box.top + box.height);
        ctx.textAlign = onRight ? "right" : "left";
        ctx.fillText(text, at + (onRight ? -6 : 6) * ratio, box.top + box.height - 8 * ratio);
      }
      ctx.stroke();
    }
  });
}
