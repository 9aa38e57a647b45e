// Shares against queries: steps with intervals, and their values at a number of queries.

/** Show one of several charts at a time, each with the heading, the hint and the lines that it brings. */
function showPlots(section, number, charts) {
  const draw = showPlot(section, number);
  const choice = section.querySelector(".which");
  const select = choice.querySelector("select");
  choice.hidden = charts.length < 2;
  select.append(...charts.map((chart, value) => element("option", { value }, chart.name)));
  select.value = charts.length - 1;
  select.addEventListener("change", () => draw(charts[select.value]));
  draw(charts.at(-1));
}

/** Prepare an empty plot and return a function that draws a chart, each time replacing the one before. */
function showPlot(section, number) {
  const plot = section.querySelector(".plot");
  const svg = plot.querySelector("svg");
  const legend = section.querySelector(".legend");
  const hidden = new Set(); // names
  let [budget, lines, rises, values] = [1, [], [], []];
  let log = false;
  let at = null; // null: at the budget
  let pointed = null; // the name that is pointed at in the legend
  let scales = null;

  function update(chart) {
    const before = lines.map((line) => line.name).join("\n");
    ({ budget, lines } = chart);
    section.querySelector("h3").textContent = chart.heading;
    section.querySelector(".hint").textContent = chart.hint;
    for (const part of section.querySelectorAll(".segments, .within, .legend, .plot")) part.hidden = !lines.length;
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
      for (const [event, now] of [["pointerenter", line.name], ["focus", line.name], ["pointerleave", null], ["blur", null]]) {
        button.addEventListener(event, () => {
          pointed = now;
          draw();
        });
      }
      legend.append(element("li", {}, button));
      return value;
    });
  }

  function draw() {
    if (!plot.clientWidth) return; // in a run that is not shown
    const shown = lines.filter((line) => line.known > 0 && !hidden.has(line.name));
    const banded = shown.filter((line) => !line.white_box && line.low !== null);
    const wide = banded.some((line) => readingOf(line, line.known).width > WIDE_INTERVAL);
    const bands = banded.filter((line) => !wide || line.name === pointed);
    scales = scalesFor(plot.clientWidth, budget, lines, log, wide ? banded.length : 0);
    svg.setAttribute("viewBox", `0 0 ${scales.width} ${scales.height}`);
    svg.replaceChildren(
      ...axes(svg, scales, ticksOf(scales).map((queries) => [scales.x(queries), whole(queries)]), "queries"),
      ...bands.map((line) => bandOf(svg, line, scales)),
      ...shown.map((line) => lineOf(svg, line, scales)),
      ...(wide ? banded.map((line, place) =>
        intervalAt(svg, line, scales.right + INTERVAL_STEP * (place + 1), readingOf(line, line.known), scales)) : []),
      ...namesAtEnds(svg, shown, scales),
      shape(svg, "g", { class: "cursor" }),
    );
    for (const drawn of svg.querySelectorAll("polyline.line")) {
      drawn.classList.toggle("faint", pointed !== null && drawn.dataset.name !== pointed && !hidden.has(pointed));
    }
    read(at);
  }

  /** Show every curve's value at a number of queries. */
  function read(queries) {
    if (!scales) return;
    at = queries === null ? null : Math.max(1, Math.min(budget, Math.round(queries)));
    const there = at ?? budget;
    const x = scales.x(there);
    const cursor = [shape(svg, "line", { x1: x, x2: x, y1: scales.top, y2: scales.bottom })];
    const said = [];
    lines.forEach((line, place) => {
      values[place].replaceChildren(...valueOf(line, there));
      if (hidden.has(line.name) || !line.known) return;
      const { rate } = readingOf(line, there);
      said.push(`${line.name} ${line.bound}${percent(rate)}`);
      if (line.white_box || there <= line.known) {
        cursor.push(coloured(shape(svg, "circle", { cx: x, cy: scales.y(rate), r: 4 }), line));
      }
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
  onWidth(plot, draw);
  return update;
}

/** Return a curve's value, as far as it is known. A white-box attack has only its final rate, drawn as a line across. */
function readingOf(line, queries) {
  let place = line.white_box ? line.queries.length - 1 : 0;
  while (!line.white_box && line.queries[place + 1] <= Math.min(queries, line.known)) place += 1;
  const [low, high] = line.low === null ? [null, null] : [line.low[place], line.high[place]];
  return { rate: line.rates[place], low, high, width: high - low };
}

/** Return the words of the legend: the value with its interval, or what is known instead. */
function valueOf(line, queries) {
  const words = [];
  const { rate, low, high } = readingOf(line, queries);
  if (line.known) words.push(line.bound + percent(rate));
  const interval = line.low === null ? "" : `${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)}`;
  const after = line.note || interval;
  if (after) words.push(element("span", { className: "interval" }, words.length ? ` ${after}` : after));
  return words;
}

/** Return the frame, and the places of queries in it; `intervals` are drawn beside it. */
function scalesFor(width, budget, lines, log, intervals) {
  const wide = width >= 640;
  const beside = INTERVAL_STEP * intervals;
  const ends = lines.filter((line) => line.known).map((line) => readingOf(line, 0).high ?? 0);
  const highest = Math.max(0, ...lines.flatMap((line) => line.high ?? line.rates), ...ends);
  const frame = frameOf(width, highest, (wide ? 130 : 10) + beside);
  const length = Math.log(Math.max(2, budget));
  const share = (queries) => (log ? Math.log(Math.max(1, queries)) / length : queries / budget);
  return {
    ...frame, wide, log, budget, beside,
    x: (queries) => frame.left + frame.span * share(queries),
    queriesAt: (x) => {
      const part = Math.max(0, Math.min(1, (x - frame.left) / frame.span));
      return log ? Math.exp(part * length) : part * budget;
    },
  };
}

function ticksOf({ log, budget, span }) {
  const most = Math.max(3, Math.floor(span / 70));
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

/** Return a path along steps, as far as they are known: each height holds until the next one. */
function steps(line, heights, scales) {
  const points = [[scales.x(0), scales.y(heights[0])]];
  for (let place = 1; place < heights.length && line.queries[place] <= line.known; place += 1) {
    const x = scales.x(line.queries[place]);
    points.push([x, points.at(-1)[1]], [x, scales.y(heights[place])]);
  }
  points.push([scales.x(line.known), points.at(-1)[1]]);
  return points.map(([x, y]) => [x.toFixed(1), y.toFixed(1)]);
}

function lineOf(svg, line, scales) {
  const last = scales.y(line.rates.at(-1));
  const points = line.white_box ? [[scales.left, last], [scales.right, last]] : steps(line, line.rates, scales);
  const dashes = { "stroke-dasharray": line.dashes.join(" ") };
  const drawn = shape(svg, "polyline", { class: "line", points: points.join(" "), ...dashes });
  drawn.dataset.name = line.name;
  return coloured(drawn, line);
}

function bandOf(svg, line, scales) {
  const points = [...steps(line, line.high, scales), ...steps(line, line.low, scales).reverse()];
  return coloured(shape(svg, "polygon", { class: "band", points: points.join(" ") }), line);
}

function namesAtEnds(svg, lines, scales) {
  if (!scales.wide) return [];
  const ends = lines.map((line) => ({ line, y: scales.y(readingOf(line, line.known).rate) + 4 }));
  const isWhole = ({ line }) => line.white_box || line.known >= scales.budget;
  return [
    ...namesAt(svg, scales.right + scales.beside + 8, ends.filter(isWhole), scales),
    ...ends.filter((end) => !isWhole(end)).flatMap((end) => namesAt(svg, scales.x(end.line.known) + 6, [end], scales)),
  ];
}
