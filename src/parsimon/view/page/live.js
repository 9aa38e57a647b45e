// The run: the page asks again and again how far it is, and changes only what is new.

const EVERY = { waiting: 1000, running: 1000, paused: 3000, finished: 3000, away: 3000 }; // milliseconds
const TITLES = { waiting: "Waiting to begin", running: "Running", paused: "Paused", finished: "Finished" };

const settings = JSON.parse(document.getElementById("data").textContent);
const picture = (entry, what) =>
  what === "original" || entry.state === "fooled" ? `picture/${what}/${entry.attack}/${entry.number}` : null;

function watch() {
  const at = (selector) => document.querySelector(selector);
  const draw = showPlot(at(".curves"), 0);
  let [run, known, gallery, tables] = [null, 0, null, ""];
  let whiteBox = new Set();
  const looks = []; // the last few: when, and how many queries there were
  at("select[name=sort]").prepend(element("option", { value: "newest" }, "newest"));
  at("select[name=sort]").value = "newest";

  async function look() {
    let state = "away";
    try {
      const reply = await fetch(`state?after=${known}`);
      const told = await reply.json();
      if (reply.ok) show(told);
      else say("away", "This cannot be shown", told.error);
      state = told.state ?? "away";
    } catch {
      say("away", "The page\u2019s server has ended", "What is shown here is what it told last.");
    }
    setTimeout(look, EVERY[state]);
  }

  function say(state, title, words) {
    if (at(".state").textContent !== title) at(".state").textContent = title; // else it would be read aloud again
    at(".state").dataset.state = state;
    at(".words").textContent = words;
  }

  function show(told) {
    if (run !== null && told.run !== run) return location.reload(); // another run has taken its place
    at(".name").textContent = told.name;
    say(told.state, TITLES[told.state], told.words);
    document.title = `${TITLES[told.state]} \u2013 ${told.name} \u2013 parsimon`;
    if (told.state === "waiting") return undefined;
    if (run === null) begin(told);
    known = told.ended;
    told.attacks.forEach(showAttack);
    showPace(told);
    if (told.curves) {
      draw(told.curves);
      whiteBox = new Set(told.curves.lines.filter((line) => line.white_box).map((line) => line.name));
    }
    if (told.entries.length) gallery.add(told.entries);
    const text = JSON.stringify(told.tables);
    if (text !== tables) {
      at(".tables").replaceChildren();
      for (const table of told.tables ?? []) showTable(at(".tables"), table, whiteBox);
      tables = text;
    }
    return undefined;
  }

  function begin(told) {
    run = told.run;
    at(".sentence").textContent = told.sentence;
    for (const hidden of document.querySelectorAll("[data-begun]")) hidden.hidden = false;
    const names = told.attacks.map((attack) => attack.name);
    gallery = showGallery(at(".gallery"), { attacks: names, classes: told.classes, side: told.side }, picture);
    gallery.add([]);
    showFacts(at(".facts"), told.facts);
    at(".attacks").append(...names.map(barOf));
  }

  function showAttack({ images, ended, fooled, queries }, place) {
    const row = at(".attacks").children[place];
    const bar = row.querySelector(".bar");
    bar.setAttribute("aria-valuemax", images);
    bar.setAttribute("aria-valuenow", ended);
    bar.children[0].style.width = `${(100 * fooled) / images}%`;
    bar.children[1].style.width = `${(100 * (ended - fooled)) / images}%`;
    row.querySelector(".counts").textContent =
      `${whole(ended)} of ${whole(images)} images \u00b7 ${whole(fooled)} fooled (${percent(fooled / images)}) \u00b7 ` +
      `${whole(ended - fooled)} withstood \u00b7 ${whole(queries)} queries`;
  }

  /** Queries a second, over the last few looks. */
  function showPace(told) {
    const queries = told.attacks.reduce((sum, attack) => sum + attack.queries, 0);
    const now = performance.now();
    looks.push([now, queries]);
    if (looks.length > 6) looks.shift();
    const [[began, had]] = looks;
    const pace = Math.round((1000 * (queries - had)) / Math.max(1, now - began));
    at(".pace").textContent = told.state === "running" && pace > 0 ? `${whole(pace)} queries a second` : "";
  }

  look();
}

function barOf(name) {
  const bar = element("div", { className: "bar", role: "progressbar", ariaLabel: `${name}: images ended` });
  bar.setAttribute("aria-valuemin", 0);
  bar.append(element("span", { className: "fooled" }), element("span", { className: "withstood" }));
  const about = element("p", { className: "about" }, element("strong", {}, name), element("span", { className: "counts" }));
  return element("li", {}, about, bar);
}

document.addEventListener("DOMContentLoaded", () => {
  history.replaceState(null, "", location.pathname + location.hash); // the token need not stay in the address
  watch();
  startStepper(document.querySelector(".stepper"), settings);
});
