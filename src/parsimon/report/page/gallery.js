// The gallery: every attacked image under every attack. Cards are made a few at a time, as they are asked for.

const AT_ONCE = 24;

/**
 * A gallery of outcomes, each { number, label, before, attack, state, queries, predicted, after }. `source` gives the
 * address of one of an outcome's pictures, or null. What is returned adds outcomes; cards that are there stay as they are.
 */
function showGallery(section, { attacks, classes, side }, source) {
  const className = (number) => classes[number] ?? `class ${number}`;
  const entries = [];
  const cards = section.querySelector(".cards");
  const more = section.querySelector(".more");
  const reverse = section.querySelector(".direction");
  const choice = Object.fromEntries([...section.querySelectorAll("select")].map((select) => [select.name, select]));
  let chosen = [];
  let room = AT_ONCE;

  /** The options behind the first, which stands for all. A list that is open is left alone unless it changes. */
  function fill(select, values, text) {
    if (select.options.length === 1 + values.length) return;
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...values.map((value) => element("option", { value }, text(value))));
    select.value = chosen;
  }

  function choose() {
    const fits = (select, value) => select.value === "" || select.value === String(value);
    chosen = entries
      .filter((entry) => fits(choice.attack, entry.attack) && fits(choice.class, entry.label))
      .filter((entry) => fits(choice.state, entry.state))
      .sort(orders[choice.sort.value]);
    if (reverse.getAttribute("aria-pressed") === "true") chosen.reverse();
    section.querySelector(".nothing").hidden = chosen.length > 0 || entries.length === 0;
    section.querySelector(".count").textContent =
      `${chosen.length === entries.length ? "" : `${whole(chosen.length)} of `}${whole(entries.length)} outcomes`;
    show();
  }

  function show() {
    for (const entry of chosen.slice(0, room)) entry.card ??= cardOf(entry, attacks[entry.attack], className, source);
    cards.replaceChildren(...chosen.slice(0, room).map((entry) => entry.card));
    const left = Math.max(0, chosen.length - room);
    more.hidden = left === 0;
    more.textContent = `Show ${Math.min(AT_ONCE, left)} more of ${whole(left)}`;
  }

  function chooseAnew() {
    room = AT_ONCE;
    choose();
  }

  for (const select of Object.values(choice)) select.addEventListener("change", chooseAnew);
  reverse.addEventListener("click", () => {
    reverse.setAttribute("aria-pressed", String(reverse.getAttribute("aria-pressed") !== "true"));
    chooseAnew();
  });
  more.addEventListener("click", () => {
    const first = room;
    room += AT_ONCE;
    show();
    cards.children[first].tabIndex = -1; // reading goes on where the new cards begin
    cards.children[first].focus({ preventScroll: true });
  });
  fill(choice.attack, attacks.map((_, place) => place), (place) => attacks[place]);
  // Where pixels are shown enlarged, they stay pixels.
  cards.classList.toggle("enlarged", side < 100);
  const hint = section.querySelector(".hint");
  hint.textContent =
    "Beside a class: the model\u2019s confidence in it. Perturbation: grey is no change, black and white are the most that a pixel may change, in each channel. " +
    "An image that withstood sorts behind all that were fooled.";

  return {
    hint,
    add(more) {
      entries.push(...more);
      const labels = [...new Set(entries.map((entry) => entry.label))].sort((a, b) => a - b);
      fill(choice.class, labels, className);
      const occurs = (state) => entries.some((entry) => entry.state === state);
      fill(choice.state, ["fooled", "withstood", "unfinished"].filter(occurs), (state) => state);
      choose();
    },
  };
}

const byNumber = (a, b) => a.number - b.number || a.attack - b.attack;
const orders = {
  newest: (a, b) => b.place - a.place, // of a run in progress: when it ended
  queries: (a, b) => (a.state !== "fooled") - (b.state !== "fooled") || a.queries - b.queries || byNumber(a, b),
  number: byNumber,
  label: (a, b) => a.label - b.label || byNumber(a, b),
};

function cardOf(entry, attack, className, source) {
  const fooled = entry.state === "fooled";
  const pictures = element("div", { className: "pictures" });
  for (const what of ["original", "perturbation", "adversarial"]) {
    const src = source(entry, what);
    if (!src) continue;
    const picture = element("img", { src, alt: `${what} of image ${entry.number}` });
    pictures.append(element("figure", {}, picture, element("figcaption", { ariaHidden: "true" }, what)));
  }
  const ending = { withstood: "not fooled", unfinished: "unfinished" }[entry.state];
  if (ending) pictures.append(element("p", { className: "ending" }, ending));

  const seen = (tag, number, confidence) => [
    element(tag, {}, className(number)),
    ...(confidence === null ? [] : [" ", element("span", { className: "confidence" }, percent(confidence))]),
  ];
  const classes = element("p", { className: "classes" }, ...seen("span", entry.label, entry.before));
  if (fooled && entry.predicted !== null) {
    const arrow = element("span", { className: "arrow", role: "img", ariaLabel: "taken for" }, "\u2192");
    classes.append(" ", arrow, " ", ...seen("strong", entry.predicted, entry.after));
  }
  const queries = `${whole(entry.queries)} ${entry.queries === 1 ? "query" : "queries"}`;
  const about = element("p", { className: "about" }, element("span", { className: "queries" }, queries));
  about.append(` \u00b7 ${attack} \u00b7 image ${entry.number}`);
  return element("li", { className: `card ${entry.state}` }, pictures, classes, about);
}
