// The median radius of label-only attacks against queries, on logarithmic axes.

const LEAST_RADIUS = 1e-4; // the lowest that is drawn

/** Prepare an empty plot and return a function that draws a chart, each time replacing the one before. */
function showClosest(section) {
  const plot = section.querySelector(".plot");
  const svg = plot.querySelector("svg");
  const legend = section.querySelector(".legend");
  let chart = null;

  function update(next) {
    chart = next;
    legend.replaceChildren(...chart.lines.map((line) => element("li", { className: "key" },
      swatch(svg, line), element("span", {}, line.name), element("span", { className: "value" }, lastOf(line)))));
    plot.setAttribute("aria-label", chart.lines.map((line) => `${line.name}: ${lastOf(line)}`).join("; "));
    draw();
  }

  function draw() {
    if (!chart || !plot.clientWidth) return;
    const { budget, eps } = chart;
    const drawn = chart.lines.filter((line) => line.radii.length);
    const frame = radiusFrame(plot.clientWidth, budget, [...(eps ? [eps] : []), ...drawn.flatMap((line) => line.radii)]);
    const ends = drawn.map((line) => ({ line, y: frame.y(line.radii.at(-1)) + 4 }));
    svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    svg.replaceChildren(
      ...frame.ticks.flatMap((radius) => heightOf(svg, frame, radius)),
      ...bottomOf(svg, frame, ticksOf({ log: true, budget, span: frame.span }).map((each) => [frame.x(each), whole(each)]), "queries"),
      ...(eps ? epsOf(svg, frame, eps) : []),
      ...drawn.map((line) => fallOf(svg, frame, line)),
      ...(frame.wide ? namesAt(svg, frame.right + 8, ends, frame) : []),
    );
  }

  onWidth(plot, draw);
  return update;
}

/** Return the last median of a line, or what is known instead. */
function lastOf(line) {
  const last = line.radii.length ? line.radii.at(-1).toFixed(4) : "no median yet";
  return line.note ? `${last}, ${line.note}` : last;
}

/** Return the frame, the places of queries and radii in it, and the ticks of the upright axis. */
function radiusFrame(width, budget, radii) {
  const wide = width >= 640;
  const height = Math.round(Math.max(240, Math.min(420, width * 0.55)));
  const [left, right, top, bottom] = [58, width - (wide ? 130 : 10), 10, height - 44];
  const all = [];
  for (let power = -4; power <= 0; power += 1) all.push(...[1, 2, 5].map((step) => Number(`${step}e${power}`)));
  const shown = radii.map((radius) => Math.max(LEAST_RADIUS, radius));
  const lowest = all.findLast((tick) => tick <= Math.min(...shown)) ?? LEAST_RADIUS;
  const highest = all.find((tick) => tick >= Math.max(...shown, 2 * lowest)) ?? 1;
  const share = (radius) => Math.log(Math.max(lowest, radius) / lowest) / Math.log(highest / lowest);
  return {
    wide, width, height, left, right, top, bottom, span: right - left,
    ticks: all.filter((tick) => tick >= lowest && tick <= highest),
    x: (queries) => left + ((right - left) * Math.log(Math.max(1, queries))) / Math.log(Math.max(2, budget)),
    y: (radius) => bottom - (bottom - top) * share(radius),
  };
}

function heightOf(svg, frame, radius) {
  const y = frame.y(radius);
  return [
    shape(svg, "line", { class: "grid", x1: frame.left, x2: frame.right, y1: y, y2: y }),
    label(svg, String(radius), { x: frame.left - 8, y: y + 4, "text-anchor": "end" }),
  ];
}

function epsOf(svg, frame, eps) {
  const y = frame.y(eps);
  return [
    shape(svg, "line", { class: "axis eps", x1: frame.left, x2: frame.right, y1: y, y2: y, "stroke-dasharray": "6 4" }),
    label(svg, "eps", { x: frame.left + 6, y: y - 5 }),
  ];
}

/** Return a line of steps, as far as it is known. */
function fallOf(svg, frame, line) {
  const points = [];
  line.radii.forEach((radius, place) => {
    const x = frame.x(line.queries[place]);
    if (place) points.push([x, points.at(-1)[1]]);
    points.push([x, frame.y(radius)]);
  });
  points.push([frame.x(line.known), points.at(-1)[1]]);
  const places = points.map(([x, y]) => [x.toFixed(1), y.toFixed(1)]).join(" ");
  const drawn = shape(svg, "polyline", { class: "line", points: places, "stroke-dasharray": line.dashes.join(" ") });
  drawn.dataset.name = line.name;
  return coloured(drawn, line);
}
