// The gallery: a card for every attacked image and attack, a few at a time.

const AT_ONCE = 24;

/**
 * Prepare a gallery of outcomes, each { attack, number, label, before, state, queries, predicted, after }. `source`
 * returns the address of one of an outcome's pictures, or null. The returned object adds outcomes and keeps old cards.
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

  /** Set the options after the first, which means all. An unchanged list stays as it is, since it may be open. */
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

  function chooseFromStart() {
    room = AT_ONCE;
    choose();
  }

  for (const select of Object.values(choice)) select.addEventListener("change", chooseFromStart);
  reverse.addEventListener("click", () => {
    reverse.setAttribute("aria-pressed", String(reverse.getAttribute("aria-pressed") !== "true"));
    chooseFromStart();
  });
  more.addEventListener("click", () => {
    const first = room;
    room += AT_ONCE;
    show();
    cards.children[first].tabIndex = -1; // continue reading at the first new card
    cards.children[first].focus({ preventScroll: true });
  });
  fill(choice.attack, attacks.map((_, place) => place), (place) => attacks[place]);
  // Enlarged pixels stay sharp.
  cards.classList.toggle("enlarged", side < 100);
  const hint = section.querySelector(".hint");
  hint.textContent =
    "The number after a class is the model\u2019s confidence. In a perturbation, grey is no change; black and white are the " +
    "largest allowed change of a channel. Images that were not fooled come after those that were.";

  return {
    hint,
    add(more) {
      entries.push(...more);
      const labels = [...new Set(entries.map((entry) => entry.label))].sort((a, b) => a - b);
      fill(choice.class, labels, className);
      const occurs = (state) => entries.some((entry) => entry.state === state);
      fill(choice.state, ["fooled", "robust", "unfinished"].filter(occurs), (state) => state);
      choose();
    },
  };
}

const byNumber = (a, b) => a.number - b.number || a.attack - b.attack;
const orders = {
  newest: (a, b) => b.place - a.place, // in a run in progress
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
  const ending = { robust: "not fooled", unfinished: "unfinished" }[entry.state];
  if (ending) pictures.append(element("p", { className: "ending" }, ending));

  const seen = (tag, number, confidence) => [
    element(tag, {}, className(number)),
    ...(confidence === null ? [] : [" ", element("span", { className: "confidence" }, percent(confidence))]),
  ];
  const classes = element("p", { className: "classes" }, ...seen("span", entry.label, entry.before));
  if (fooled && entry.predicted !== null) {
    const arrow = element("span", { className: "arrow", role: "img", ariaLabel: "predicted as" }, "\u2192");
    classes.append(" ", arrow, " ", ...seen("strong", entry.predicted, entry.after));
  }
  const queries = `${whole(entry.queries)} ${entry.queries === 1 ? "query" : "queries"}`;
  const about = element("p", { className: "about" }, element("span", { className: "queries" }, queries));
  about.append(` \u00b7 ${attack} \u00b7 image ${entry.number}`);
  return element("li", { className: `card ${entry.state}` }, pictures, classes, about);
}
