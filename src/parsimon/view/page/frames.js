// A step of an attack, drawn: the blocks of a grid that are raised or lowered, or the queried picture itself.

const CHANNELS = ["red", "green", "blue"];
const FRAMES = ["#ff3b30", "#23c552", "#3d7bff"]; // of the block that is tried, by channel
const bytesOf = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** Return the three pictures as bytes: row by row, red, green and blue of each pixel. */
function picturesOf({ pictures, rows, columns, eps }) {
  const [original, low, high] = [pictures.original, pictures.low, pictures.high].map(bytesOf);
  return { original, low, high, rows, columns, eps };
}

/** Return the queried picture of a step, and its perturbation with grey for no change. */
function queriedOf(pictures, step) {
  if (step.frame) {
    step.bytes ??= bytesOf(step.frame);
    const change = (place) => 127.5 * (1 + (step.bytes[place] - pictures.original[place]) / pictures.eps);
    return { queried: (place) => step.bytes[place], change };
  }
  const raised = cornerOf(pictures, step);
  return {
    queried: (place) => (raised[place] ? pictures.high : pictures.low)[place],
    change: (place) => (raised[place] ? 255 : 0),
  };
}

/** Return whether a block is raised. Blocks are numbered by row, then column, then channel. */
const isMember = (base, block) => (base[block >> 3] >> (7 - (block & 7))) & 1;

/** Return for each byte of the picture whether it is raised in the queried corner. */
function cornerOf({ rows: side }, { block, base, flip }) {
  const across = side / block;
  const raised = new Uint8Array(3 * side * side);
  for (let place = 0; place < raised.length; place += 1) {
    const [channel, pixel] = [place % 3, Math.floor(place / 3)];
    const [row, column] = [Math.floor(pixel / side / block), Math.floor((pixel % side) / block)];
    const number = (row * across + column) * 3 + channel;
    raised[place] = isMember(base, number) ^ (number === flip ? 1 : 0);
  }
  return raised;
}

/** Draw a picture enlarged, with sharp pixels; with a step of blocks, also its blocks and the block that is tried. */
function paint(canvas, { rows, columns }, valueAt, step) {
  const scale = Math.max(1, Math.round((canvas.clientWidth * devicePixelRatio) / columns));
  [canvas.width, canvas.height] = [columns * scale, rows * scale];
  const pen = canvas.getContext("2d");
  const small = new ImageData(columns, rows);
  for (let pixel = 0; pixel < rows * columns; pixel += 1) {
    for (let channel = 0; channel < 3; channel += 1) small.data[4 * pixel + channel] = valueAt(3 * pixel + channel);
    small.data[4 * pixel + 3] = 255;
  }
  const sheet = new OffscreenCanvas(columns, rows);
  sheet.getContext("2d").putImageData(small, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(sheet, 0, 0, canvas.width, canvas.height);
  if (!step?.block) return;
  const size = step.block * scale;
  pen.strokeStyle = "rgb(128 128 128 / 60%)";
  pen.lineWidth = Math.max(1, Math.round(scale / 12));
  pen.beginPath();
  for (let at = size; at < canvas.width; at += size) {
    pen.moveTo(at, 0);
    pen.lineTo(at, canvas.height);
    pen.moveTo(0, at);
    pen.lineTo(canvas.width, at);
  }
  pen.stroke();
  if (step.flip === null) return;
  const { row, column, channel } = placeOf(step, rows);
  for (const [colour, width] of [["black", 6], [FRAMES[channel], 3]]) {
    pen.strokeStyle = colour;
    pen.lineWidth = Math.max(2, (width * scale) / 10);
    pen.strokeRect(column * size, row * size, size, size);
  }
}

function placeOf({ block, flip }, side) {
  const across = side / block;
  const cell = Math.floor(flip / 3);
  return { channel: flip % 3, row: Math.floor(cell / across), column: cell % across };
}

/** Plot the losses: all as dots, the highest so far as a line, and the current query. */
function plotLosses(svg, steps, now, budget) {
  const [width, height, left, bottom] = [svg.clientWidth, svg.clientHeight, 42, svg.clientHeight - 22];
  const losses = steps.map((step) => step.loss).sort((a, b) => a - b);
  // Cut off the lowest percent: the loss of a set's complement is far below the rest.
  const [low, high] = [losses[Math.floor(losses.length / 100)], losses.at(-1)];
  const last = Math.min(budget, Math.max(20, steps.length));
  const x = (query) => left + ((width - left - 8) * query) / last;
  const y = (loss) => bottom - ((bottom - 10) * Math.max(0, loss - low)) / Math.max(1e-9, high - low);
  const every = Math.ceil(steps.length / 600); // more dots than that overlap
  const dots = steps.flatMap((step, place) =>
    place % every ? [] : [shape(svg, "circle", { class: "tried", cx: x(step.query), cy: y(step.loss), r: 1.5 })]);
  let best = -Infinity;
  const points = steps.slice(0, now + 1).map((step) => `${x(step.query)},${y((best = Math.max(best, step.loss)))}`);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(
    shape(svg, "line", { class: "axis", x1: left, x2: width - 8, y1: bottom, y2: bottom }),
    ...[low, high].map((loss) => label(svg, loss.toFixed(2), { x: left - 6, y: y(loss) + 4, "text-anchor": "end" })),
    label(svg, "loss", { x: 4, y: (bottom + 10) / 2 + 4 }),
    ...[0, last].map((query) => label(svg, whole(query), { x: x(query), y: height - 5, "text-anchor": query ? "end" : "middle" })),
    label(svg, "queries", { x: (left + width) / 2, y: height - 5, "text-anchor": "middle" }),
    ...dots,
    shape(svg, "polyline", { class: "line", points: points.join(" ") }),
    shape(svg, "line", { class: "now", x1: x(steps[now].query), x2: x(steps[now].query), y1: 8, y2: bottom }),
  );
}
