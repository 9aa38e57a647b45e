// What the charts share: their frame, their axes, and shapes in a line's colour.

const WIDE_INTERVAL = 0.15; // intervals wider than this are drawn at the ends of lines: overlapping bands hide everything
const INTERVAL_STEP = 7; // pixels between two such intervals

/** Return the frame of a chart: places in pixels, and the height of a share. */
function frameOf(width, highest, roomAtRight) {
  const height = Math.round(Math.max(240, Math.min(420, width * 0.55)));
  const [left, right, top, bottom] = [46, width - roomAtRight, 10, height - 44];
  const ceiling = Math.min(1, Math.ceil(Math.max(0.2, highest) * 5 - 1e-9) / 5);
  const y = (share) => bottom - ((bottom - top) * share) / ceiling;
  return { width, height, left, right, top, bottom, ceiling, y, span: right - left };
}

/** Return grid lines, and the ticks of the horizontal axis, each a place and a text. */
function axes(svg, frame, ticks, title) {
  const parts = [];
  for (let share = 0; share <= frame.ceiling + 1e-9; share += frame.ceiling > 0.4 ? 0.2 : 0.1) {
    const y = frame.y(share);
    parts.push(shape(svg, "line", { class: share ? "grid" : "axis", x1: frame.left, x2: frame.right, y1: y, y2: y }));
    parts.push(label(svg, `${Math.round(100 * share)} %`, { x: frame.left - 8, y: y + 4, "text-anchor": "end" }));
  }
  return [...parts, ...bottomOf(svg, frame, ticks, title)];
}

/** Return the ticks of the horizontal axis, each a place and a text, and its title. */
function bottomOf(svg, frame, ticks, title) {
  const parts = [];
  for (const [x, text] of ticks) {
    parts.push(shape(svg, "line", { class: "axis", x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 5 }));
    parts.push(label(svg, text, { x, y: frame.bottom + 19, "text-anchor": "middle" }));
  }
  const middle = (frame.left + frame.right) / 2;
  parts.push(label(svg, title, { x: middle, y: frame.height - 6, "text-anchor": "middle" }));
  return parts;
}

/** Return an interval as a thin upright line with its value. */
function intervalAt(svg, line, x, { rate, low, high }, frame) {
  const made = shape(svg, "g", { class: "ends" });
  const cap = Math.min(frame.ceiling, high);
  made.append(
    shape(svg, "line", { x1: x, x2: x, y1: frame.y(low), y2: frame.y(cap) }),
    shape(svg, "circle", { cx: x, cy: frame.y(rate), r: 2.5 }),
  );
  return coloured(made, line);
}

/** Return names at the ends of lines, each { line, y }, moved apart where they overlap. */
function namesAt(svg, x, ends, frame) {
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, place) => { if (place) end.y = Math.max(end.y, ends[place - 1].y + 16); });
  const excess = ends.length ? Math.max(0, ends.at(-1).y - frame.bottom) : 0;
  return ends.map(({ line, y }) => {
    const name = line.name.length > 16 ? `${line.name.slice(0, 15)}\u2026` : line.name;
    return coloured(label(svg, name, { class: "end", x, y: y - excess }), line);
  });
}

function swatch(svg, line) {
  const made = shape(svg, "svg", { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" });
  const dashes = { "stroke-dasharray": line.dashes.join(" ") };
  made.append(shape(svg, "line", { class: "line", x1: 1, x2: 25, y1: 5, y2: 5, ...dashes }));
  return coloured(made, line);
}

/** Call a function whenever the width of an element changes, and now if it has one. */
function onWidth(place, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth !== width && place.clientWidth) draw();
    width = place.clientWidth;
  }).observe(place);
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
