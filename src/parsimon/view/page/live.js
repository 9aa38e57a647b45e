// The run: the page polls its state and updates what changed.

const EVERY = { waiting: 1000, running: 1000, paused: 3000, finished: 3000, away: 3000 }; // milliseconds
const TITLES = { waiting: "Waiting to start", running: "Running", paused: "Paused", finished: "Finished" };

const settings = JSON.parse(document.getElementById("data").textContent);
const picture = (entry, what) =>
  what === "original" || entry.state === "fooled" ? `picture/${what}/${entry.attack}/${entry.number}` : null;

/** Show the run; `offer` takes the name of its own model, if pictures can be attacked on it. */
function watch(offer) {
  const at = (selector) => document.querySelector(selector);
  const draw = showPlot(at(".curves"), 0);
  const drawClosest = showClosest(at(".closest"));
  let [run, known, gallery, tables] = [null, 0, null, ""];
  let whiteBox = new Set();
  at(".closest").hidden = true;
  const polls = []; // the last few: time and number of queries
  at("select[name=sort]").prepend(element("option", { value: "newest" }, "newest"));
  at("select[name=sort]").value = "newest";

  async function poll() {
    let state = "away";
    try {
      const reply = await fetch(`state?after=${known}`);
      const update = await reply.json();
      if (reply.ok) show(update);
      else say("away", "This cannot be shown", update.error);
      state = update.state ?? "away";
    } catch {
      say("away", "The page\u2019s server has ended", "The page shows the last known state.");
    }
    setTimeout(poll, EVERY[state]);
  }

  function say(state, title, words) {
    if (at(".state").textContent !== title) at(".state").textContent = title; // a screen reader would repeat it
    at(".state").dataset.state = state;
    at(".words").textContent = words;
  }

  function show(update) {
    if (run !== null && update.run !== run) return location.reload(); // another run is in its place
    at(".name").textContent = update.name;
    say(update.state, TITLES[update.state], update.words);
    document.title = `${TITLES[update.state]} \u2013 ${update.name} \u2013 parsimon`;
    if (update.state === "waiting") return undefined;
    if (run === null) begin(update);
    known = update.ended;
    showHeadlines(document, update.top);
    update.attacks.forEach(showAttack);
    showPace(update);
    if (update.curves) {
      draw(update.curves);
      at(".closest").hidden = !update.closest; // only label-only attacks have radii
      if (update.closest) drawClosest(update.closest);
      whiteBox = new Set(update.curves.lines.filter((line) => line.white_box).map((line) => line.name));
    }
    if (update.entries.length) gallery.add(update.entries);
    const text = JSON.stringify(update.tables);
    if (text !== tables) {
      at(".tables").replaceChildren();
      for (const table of update.tables ?? []) showTable(at(".tables"), table, whiteBox);
      tables = text;
    }
    return undefined;
  }

  function begin(update) {
    run = update.run;
    at(".sentence").textContent = update.sentence;
    for (const hidden of document.querySelectorAll("[data-begun]")) hidden.hidden = false;
    const names = update.attacks.map((attack) => attack.name);
    const { classes, side, random } = update;
    gallery = showGallery(at(".gallery"), { attacks: names, classes, side, random }, picture);
    gallery.add([]);
    showFacts(at(".facts"), update.facts);
    if (update.own) offer(update.own);
    at(".attacks").append(...names.map(barOf));
  }

  function showAttack({ started, images, ended, fooled, queries }, place) {
    const row = at(".attacks").children[place];
    const bar = row.querySelector(".bar");
    bar.setAttribute("aria-valuemax", images);
    bar.setAttribute("aria-valuenow", ended);
    bar.children[0].style.width = `${(100 * fooled) / images}%`;
    bar.children[1].style.width = `${(100 * (ended - fooled)) / images}%`;
    const rate = ended === images ? ` (${percent(fooled / images)})` : ""; // unknown before
    row.querySelector(".counts").textContent = started
      ? `${whole(ended)} of ${whole(images)} images \u00b7 ${whole(fooled)} fooled${rate} \u00b7 ` +
        `${whole(ended - fooled)} not fooled \u00b7 ${whole(queries)} queries`
      : "waiting";
  }

  /** Show the queries per second over the last few polls. */
  function showPace(update) {
    const queries = update.attacks.reduce((sum, attack) => sum + attack.queries, 0);
    const now = performance.now();
    polls.push([now, queries]);
    if (polls.length > 6) polls.shift();
    const [[began, had]] = polls;
    const pace = Math.round((1000 * (queries - had)) / Math.max(1, now - began));
    at(".pace").textContent = update.state === "running" && pace > 0 ? `${whole(pace)} queries per second` : "";
  }

  poll();
}

function barOf(name) {
  const bar = element("div", { className: "bar", role: "progressbar", ariaLabel: `${name}: images ended` });
  bar.setAttribute("aria-valuemin", 0);
  bar.append(element("span", { className: "fooled" }), element("span", { className: "robust" }));
  const about = element("p", { className: "about" }, element("strong", {}, name), element("span", { className: "counts" }));
  return element("li", {}, about, bar);
}

document.addEventListener("DOMContentLoaded", () => {
  history.replaceState(null, "", location.pathname + location.hash); // remove the token from the address
  watch(startStepper(document.querySelector(".stepper"), settings));
});
