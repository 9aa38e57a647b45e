// The success curves: steps with bands, and their values at a number of queries.

/** Prepare an empty plot and return a function that draws curves, each time replacing those before. */
function showPlot(section, number) {
  const plot = section.querySelector(".plot");
  const svg = plot.querySelector("svg");
  const legend = section.querySelector(".legend");
  const hidden = new Set(); // names
  let [budget, lines, rises, values] = [1, [], [], []];
  let log = false;
  let at = null; // null: at the budget
  let scales = null;

  function update(curves) {
    const before = lines.map((line) => line.name).join("\n");
    ({ budget, lines } = curves);
    rises = [...new Set([1, ...lines.filter((line) => !line.white_box).flatMap((line) => line.queries), budget])]
      .filter((queries) => queries > 0)
      .sort((a, b) => a - b);
    if (lines.map((line) => line.name).join("\n") !== before) name();
    draw();
  }

  function name() {
    legend.replaceChildren();
    values = lines.map((line) => {
      const value = element("span", { className: "value" });
      const name = element("span", { className: line.white_box ? "white-box" : "" }, line.name);
      const button = element("button", { type: "button" }, swatch(svg, line), name, value);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        hidden.has(line.name) ? hidden.delete(line.name) : hidden.add(line.name);
        button.setAttribute("aria-pressed", String(!hidden.has(line.name)));
        draw();
      });
      legend.append(element("li", {}, button));
      return value;
    });
  }

  function draw() {
    const shown = lines.filter((line) => !hidden.has(line.name));
    scales = scalesFor(plot.clientWidth, budget, lines, log);
    svg.setAttribute("viewBox", `0 0 ${scales.width} ${scales.height}`);
    svg.replaceChildren(
      ...axes(svg, scales),
      ...shown.filter((line) => !line.white_box).map((line) => bandOf(svg, line, scales)),
      ...shown.map((line) => lineOf(svg, line, scales)),
      ...namesAtEnds(svg, shown, scales),
      shape(svg, "g", { class: "cursor" }),
    );
    read(at);
  }

  /** Show every curve's value at a number of queries. */
  function read(queries) {
    at = queries === null ? null : Math.max(1, Math.min(budget, Math.round(queries)));
    const there = at ?? budget;
    const x = scales.x(there);
    const cursor = [shape(svg, "line", { x1: x, x2: x, y1: scales.top, y2: scales.bottom })];
    const said = [];
    lines.forEach((line, place) => {
      const { rate, low, high } = readingOf(line, there);
      const interval = ` ${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)}`;
      values[place].replaceChildren(percent(rate), element("span", { className: "interval" }, interval));
      if (hidden.has(line.name)) return;
      said.push(`${line.name} ${percent(rate)}`);
      cursor.push(coloured(shape(svg, "circle", { cx: x, cy: scales.y(rate), r: 4 }), line));
    });
    svg.querySelector(".cursor").replaceChildren(...cursor);
    section.querySelector(".within").textContent = `Within ${whole(there)} ${there === 1 ? "query" : "queries"}`;
    plot.setAttribute("aria-valuemin", 1);
    plot.setAttribute("aria-valuemax", budget);
    plot.setAttribute("aria-valuenow", there);
    plot.setAttribute("aria-valuetext", `${whole(there)} queries: ${said.join(", ")}`);
  }

  const readThere = (event) => read(scales.queriesAt(event.clientX - svg.getBoundingClientRect().left));
  plot.addEventListener("pointermove", readThere);
  plot.addEventListener("pointerdown", readThere);
  plot.addEventListener("pointerleave", () => read(null));
  plot.addEventListener("keydown", (event) => {
    const now = at ?? budget;
    const next = () => rises.find((queries) => queries > now) ?? budget;
    const previous = () => rises.findLast((queries) => queries < now) ?? 1;
    const moves = {
      ArrowRight: next, ArrowUp: next, ArrowLeft: previous, ArrowDown: previous,
      PageUp: () => now + budget / 10, PageDown: () => now - budget / 10, Home: () => 1, End: () => null,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    read(moves[event.key]());
  });
  for (const radio of section.querySelectorAll("input[type=radio]")) {
    radio.name = `scale-${number}`; // one group for each plot
    radio.addEventListener("change", () => {
      log = radio.value === "log";
      plot.dataset.scale = radio.value;
      draw();
    });
  }
  let width = 0;
  new ResizeObserver(() => {
    if (plot.clientWidth !== width && plot.clientWidth) draw();
    width = plot.clientWidth;
  }).observe(plot);
  return update;
}

/** Return a curve's value. A white-box attack has only its final rate, drawn as a line across. */
function readingOf(line, queries) {
  let place = line.white_box ? line.queries.length - 1 : 0;
  while (!line.white_box && line.queries[place + 1] <= queries) place += 1;
  return { rate: line.fooled[place] / line.images, low: line.low[place], high: line.high[place] };
}

function scalesFor(width, budget, lines, log) {
  const wide = width >= 640;
  const [left, right, top] = [42, wide ? 130 : 10, 10];
  const height = Math.round(Math.max(240, Math.min(420, width * 0.55)));
  const bottom = height - 44;
  const highest = Math.max(0.2, ...lines.map((line) => line.high.at(-1)));
  const ceiling = Math.ceil(highest * 5 - 1e-9) / 5;
  const span = width - left - right;
  const length = Math.log(Math.max(2, budget));
  const share = (queries) => (log ? Math.log(Math.max(1, queries)) / length : queries / budget);
  return {
    width, height, left, top, bottom, wide, log, budget, ceiling,
    right: width - right,
    x: (queries) => left + span * share(queries),
    y: (rate) => bottom - ((bottom - top) * rate) / ceiling,
    queriesAt: (x) => {
      const part = Math.max(0, Math.min(1, (x - left) / span));
      return log ? Math.exp(part * length) : part * budget;
    },
  };
}

function axes(svg, scales) {
  const parts = [];
  for (let rate = 0; rate <= scales.ceiling + 1e-9; rate += scales.ceiling > 0.4 ? 0.2 : 0.1) {
    const y = scales.y(rate);
    parts.push(shape(svg, "line", { class: rate ? "grid" : "axis", x1: scales.left, x2: scales.right, y1: y, y2: y }));
    parts.push(label(svg, `${Math.round(100 * rate)} %`, { x: scales.left - 8, y: y + 4, "text-anchor": "end" }));
  }
  for (const queries of ticksOf(scales)) {
    const x = scales.x(queries);
    parts.push(shape(svg, "line", { class: "axis", x1: x, x2: x, y1: scales.bottom, y2: scales.bottom + 5 }));
    parts.push(label(svg, whole(queries), { x, y: scales.bottom + 19, "text-anchor": "middle" }));
  }
  const middle = (scales.left + scales.right) / 2;
  parts.push(label(svg, "queries", { x: middle, y: scales.height - 6, "text-anchor": "middle" }));
  return parts;
}

function ticksOf({ log, budget, right, left }) {
  const most = Math.max(3, Math.floor((right - left) / 70));
  const ticks = [];
  if (log) {
    const decades = Math.log10(Math.max(2, budget));
    const within = decades * 3 <= most ? [1, 2, 5] : [1];
    for (let power = 1; power <= budget; power *= 10) ticks.push(...within.map((step) => step * power));
  } else {
    const rough = budget / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, power * [1, 2, 5, 10].find((each) => each * power >= rough));
    for (let queries = 0; queries <= budget; queries += step) ticks.push(queries);
  }
  return ticks.filter((queries) => queries <= budget);
}

/** Return a path along steps: each height holds until the next one. */
function steps(line, heights, scales) {
  const points = [[scales.x(0), scales.y(heights[0])]];
  for (let place = 1; place < heights.length; place += 1) {
    const x = scales.x(line.queries[place]);
    points.push([x, points.at(-1)[1]], [x, scales.y(heights[place])]);
  }
  points.push([scales.right, points.at(-1)[1]]);
  return points.map(([x, y]) => [x.toFixed(1), y.toFixed(1)]);
}

function lineOf(svg, line, scales) {
  const rates = line.fooled.map((fooled) => fooled / line.images);
  const points = line.white_box
    ? [[scales.left, scales.y(rates.at(-1))], [scales.right, scales.y(rates.at(-1))]]
    : steps(line, rates, scales);
  const dashes = { "stroke-dasharray": line.dashes.join(" ") };
  const drawn = shape(svg, "polyline", { class: "line", points: points.join(" "), ...dashes });
  drawn.dataset.name = line.name;
  return coloured(drawn, line);
}

function bandOf(svg, line, scales) {
  const points = [...steps(line, line.high, scales), ...steps(line, line.low, scales).reverse()];
  return coloured(shape(svg, "polygon", { class: "band", points: points.join(" ") }), line);
}

/** Return the names at the ends of the lines, moved apart where they overlap. */
function namesAtEnds(svg, lines, scales) {
  if (!scales.wide) return [];
  const ends = lines.map((line) => ({ line, y: scales.y(line.fooled.at(-1) / line.images) + 4 }));
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, place) => { if (place) end.y = Math.max(end.y, ends[place - 1].y + 16); });
  const excess = ends.length ? Math.max(0, ends.at(-1).y - scales.bottom) : 0;
  return ends.map(({ line, y }) => {
    const name = line.name.length > 16 ? `${line.name.slice(0, 15)}\u2026` : line.name;
    return coloured(label(svg, name, { class: "end", x: scales.right + 8, y: y - excess }), line);
  });
}

function swatch(svg, line) {
  const made = shape(svg, "svg", { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" });
  const dashes = { "stroke-dasharray": line.dashes.join(" ") };
  made.append(shape(svg, "line", { class: "line", x1: 1, x2: 25, y1: 5, y2: 5, ...dashes }));
  return coloured(made, line);
}

function shape(svg, tag, attributes) {
  const made = document.createElementNS(svg.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function label(svg, text, attributes) {
  const made = shape(svg, "text", attributes);
  made.textContent = text;
  return made;
}

function coloured(drawn, line) {
  if (line.colour) drawn.style.setProperty("--colour", line.colour);
  return drawn;
}
