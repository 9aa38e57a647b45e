// Robust accuracy against radius: one line per model, and a dashed one for what white-box attacks leave.

function showRadii(section, { radii, lines }) {
  const plot = section.querySelector(".plot");
  const svg = plot.querySelector("svg");
  const models = lines.filter((line) => !line.white_box);
  section.querySelector(".legend").append(...lines.map((line) =>
    element("li", { className: "key" }, swatch(svg, line), element("span", {}, line.name))));
  plot.setAttribute("aria-label", models.map((line) => `${line.name}: ${line.points.map((point) =>
    `${percent(point.rate)} at ${radii[point.place].text}`).join(", ")}`).join("; "));

  function draw() {
    const wide = plot.clientWidth >= 640;
    const highest = Math.max(...lines.flatMap((line) => line.points.map((point) => point.high ?? point.rate)));
    const frame = frameOf(plot.clientWidth, highest, wide ? 130 : 20);
    const largest = radii.at(-1).eps;
    const x = (place) => frame.left + (frame.span * radii[place].eps) / largest;
    // Models stand a little beside each other, so that their intervals do not hide one another.
    const aside = (line) => (models.length < 2 ? 0 : INTERVAL_STEP * (line.model - (models.length - 1) / 2));
    const at = (line, point) => [Math.max(frame.left, x(point.place) + (point.place ? aside(line) : 0)), frame.y(point.rate)];
    const paths = lines.map((line) => {
      const points = line.points.map((point) => at(line, point).map((each) => each.toFixed(1)));
      const dashes = { "stroke-dasharray": line.dashes.join(" ") };
      const drawn = shape(svg, "polyline", { class: "line", points: points.join(" "), ...dashes });
      drawn.dataset.name = line.name;
      return coloured(drawn, line);
    });
    const intervals = lines.flatMap((line) => line.points.filter((point) => point.low !== null)
      .map((point) => intervalAt(svg, line, at(line, point)[0], point, frame)));
    const ends = lines.map((line) => ({ line, y: frame.y(line.points.at(-1).rate) + 4 }));
    svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    svg.replaceChildren(
      ...axes(svg, frame, radii.map(({ text }, place) => [x(place), text]), "radius"),
      ...paths,
      ...intervals,
      ...(wide ? namesAt(svg, frame.right + 14, ends, frame) : []),
    );
  }

  onWidth(plot, draw);
}
