// One chart: a description of its bands, lines, points, bars and rules becomes a uPlot in the page's colours.
/* global uPlot */

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const LABEL_LINE = 16; // pixels of a line of labels above the plot
const drawn = new Map();

/* A colour of the style sheet, as it is in the present colour scheme; opacity 0 to 1. */
function colour(name, opacity = 1) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
}

/* spec: {x: {range, log, label, format, incrs, space}, y: {range, format, hidden}, labelLines,
   bands: [{xs, low, high, colour, opacity}], lines: [{xs, ys, colour, width, dash}],
   points: [{xs, ys, colour, spans: [{low, high, width, opacity}]}], bars: {xs, ys, colour},
   rules: [{x | y, text, dash}], onHover(x | null)}
   A format gets the distance of the ticks as well: (value, distance) -> text.
   Texts of rules at an x are above the plot, on as many lines as they need; labelLines keeps room for at least so many. */
export function drawChart(holder, spec) {
  clearChart(holder);
  const width = holder.clientWidth, height = holder.clientHeight;
  if (!width || !height) return;
  const { tables, series, bands } = content(spec);
  const numLines = Math.max(spec.labelLines ?? 0, (spec.rules ?? []).some(({ x }) => x !== undefined) ? 1 : 0);
  const options = {
    width, height, series, bands,
    padding: [10 + LABEL_LINE * numLines, roomForLastTick(spec.x), spec.x.label ? 0 : 4, spec.y.hidden ? 10 : 0],
    legend: { show: false },
    cursor: { show: Boolean(spec.onHover), y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { time: false, distr: spec.x.log ? 3 : 1, range: () => spec.x.range },
      y: { range: () => spec.y.range },
    },
    axes: [
      axis(spec.x, { grid: { show: false }, size: 28, space: spec.x.space ?? 64, border: { show: true, stroke: colour("line"), width: 1 } }),
      axis(spec.y, {
        show: !spec.y.hidden, grid: { stroke: colour("grid"), width: 1 }, size: 48, space: height < 200 ? 28 : 44,
      }),
    ],
    hooks: {
      drawAxes: [(chart) => drawRules(chart, spec.rules ?? [])], // below the data, which no rule may hide
      draw: [(chart) => drawSpans(chart, spec.points ?? [])],
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
    ...(wanted.log ? { splits: logTicks, filter: (_, splits) => splits } : {}),
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

/* Ticks at 1, 2, 5 ... 10, 20, 50: as many in each decade as have room for their text. */
function logTicks(chart, _, min, max) {
  const room = chart.bbox.width / devicePixelRatio / Math.log10(max / min);
  const digits = room > 400 ? [1, 2, 3, 5, 7] : room > 160 ? [1, 2, 5] : room > 80 ? [1, 3] : [1];
  const ticks = [];
  for (let decade = Math.floor(Math.log10(min)); decade <= Math.log10(max); decade += 1) {
    ticks.push(...digits.map((digit) => digit * 10 ** decade).filter((value) => value >= min && value <= max));
  }
  return ticks;
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

/* Intervals of points: standard errors, quantiles. */
function drawSpans(chart, points) {
  inside(chart, (ctx, _, ratio) => {
    for (const { xs, spans = [], colour: name } of points) {
      for (const { low, high, width = 1, opacity = 0.55 } of spans) {
        ctx.lineWidth = width * ratio;
        ctx.strokeStyle = colour(name, opacity);
        ctx.beginPath();
        xs.forEach((at, place) => {
          if (!(high[place] > low[place])) return;
          const x = chart.valToPos(at, "x", true);
          ctx.moveTo(x, chart.valToPos(low[place], "y", true));
          ctx.lineTo(x, chart.valToPos(high[place], "y", true));
        });
        ctx.stroke();
      }
    }
  });
}

function drawRules(chart, rules) {
  inside(chart, (ctx, box, ratio) => {
    ctx.lineWidth = ratio;
    ctx.strokeStyle = colour("muted");
    for (const { x, y, dash = [2, 3] } of rules) {
      ctx.setLineDash(dash.map((length) => length * ratio));
      ctx.beginPath();
      if (x === undefined) {
        const at = chart.valToPos(y, "y", true);
        ctx.moveTo(box.left, at);
        ctx.lineTo(box.left + box.width, at);
      } else {
        const at = Math.min(chart.valToPos(x, "x", true), box.left + box.width - ratio);
        ctx.moveTo(at, box.top);
        ctx.lineTo(at, box.top + box.height);
      }
      ctx.stroke();
    }
  });
  writeRules(chart, rules);
}

function writeRules(chart, rules) {
  const { ctx, bbox: box } = chart, ratio = devicePixelRatio;
  ctx.save();
  ctx.font = `${12 * ratio}px ${FONT}`;
  ctx.fillStyle = colour("muted");
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  const lines = []; // where the text of each line above the plot ends
  for (const { x, y, text } of rules) {
    const width = ctx.measureText(text).width;
    if (x === undefined) {
      const at = chart.valToPos(y, "y", true);
      const isAtTop = at - box.top < 18 * ratio; // a text above would be cut, and on the left one below would hide points
      ctx.fillText(text, isAtTop ? box.left + box.width - width - 6 * ratio : box.left + 6 * ratio, isAtTop ? at + 15 * ratio : at - 5 * ratio);
      continue;
    }
    const middle = chart.valToPos(x, "x", true) - width / 2;
    const left = Math.min(Math.max(middle, box.left), box.left + box.width - width);
    const isFree = (end) => end + 12 * ratio < left;
    const line = [...lines.keys(), lines.length].find((place) => place === lines.length || isFree(lines[place]));
    lines[line] = left + width;
    ctx.fillText(text, left, box.top - (5 + LABEL_LINE * line) * ratio);
  }
  ctx.restore();
}
