// The gallery: a card for every attacked image, with the outcome of each attack beside the original; a few at a time.

const AT_ONCE = 24;
const MOST_COLUMNS = 5; // of pictures in a card; further attacks take another row

/**
 * Prepare a gallery of outcomes, each { attack, number, label, before, state, queries, predicted, after, radius }.
 * `source`
 * returns the address of one of an outcome's pictures, or null. The returned object adds outcomes.
 */
function showGallery(section, { attacks, classes, side, random }, source) {
  const className = (number) => classes[number] ?? `class ${number}`;
  const images = new Map(); // by number: { number, label, outcomes, place, card }
  const cards = section.querySelector(".cards");
  const more = section.querySelector(".more");
  const reverse = section.querySelector(".direction");
  const choice = Object.fromEntries([...section.querySelectorAll("select")].map((select) => [select.name, select]));
  const words = attacks.length > 1
    ? { every: "fooled by every attack", some: "fooled by some attacks", none: "not fooled", unfinished: "unfinished" }
    : { every: "fooled", none: "not fooled", unfinished: "unfinished" };
  let chosen = [];
  let room = AT_ONCE;

  /** Set the options after the first, which means all. An unchanged list stays as it is, since it may be open. */
  function fill(select, values, text) {
    if (select.options.length === 1 + values.length) return;
    const chosen = select.value;
    select.replaceChildren(select.options[0], ...values.map((value) => element("option", { value }, text(value))));
    select.value = chosen;
  }

  /** Return an image as the chosen attacks leave it: its state, and the fewest queries of a success. */
  function seen(image) {
    const outcomes = image.outcomes.filter(({ attack }) => fits(choice.attack, attack));
    const fooled = outcomes.filter(({ state }) => state === "fooled");
    const unfinished = outcomes.some(({ state }) => state === "unfinished");
    const partly = fooled.length ? "some" : unfinished ? "unfinished" : "none";
    return {
      image,
      outcomes: outcomes.length,
      state: fooled.length === outcomes.length ? "every" : partly,
      queries: Math.min(...fooled.map(({ queries }) => queries)), // infinite without a success
    };
  }

  function choose() {
    chosen = [...images.values()]
      .filter((image) => fits(choice.class, image.label))
      .map(seen)
      .filter(({ outcomes, state }) => outcomes && fits(choice.state, state))
      .sort(orders[choice.sort.value]);
    if (reverse.getAttribute("aria-pressed") === "true") chosen.reverse();
    section.querySelector(".nothing").hidden = chosen.length > 0 || images.size === 0;
    section.querySelector(".count").textContent =
      `${chosen.length === images.size ? "" : `${whole(chosen.length)} of `}${whole(images.size)} images`;
    show();
  }

  function show() {
    const shown = choice.attack.value === "" ? attacks.length : 1;
    cards.style.setProperty("--columns", Math.min(MOST_COLUMNS, shown + 1));
    cards.dataset.show = choice.show.value;
    cards.replaceChildren(...chosen.slice(0, room).map(({ image }) => {
      image.card ??= cardOf(image, attacks, className, source);
      for (const tile of image.card.querySelectorAll("[data-attack]")) tile.hidden = !fits(choice.attack, tile.dataset.attack);
      return image.card;
    }));
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
  choice.attack.closest("label").hidden = attacks.length < 2;
  // Enlarged pixels stay sharp.
  cards.classList.toggle("enlarged", side < 100);
  const hint = section.querySelector(".hint");
  hint.textContent =
    `The number after a class is ${random ? "the share of draws with it" : "the model\u2019s confidence"}. ` +
    "In a perturbation, grey is no change; black and white are the largest allowed change of a channel. " +
    "Images that were not fooled come after those that were.";

  return {
    hint,
    add(more) {
      for (const outcome of more) {
        const { number, label } = outcome;
        const image = images.get(number) ?? { number, label, outcomes: [] };
        images.set(number, image);
        image.outcomes.push(outcome);
        image.outcomes.sort((a, b) => a.attack - b.attack);
        Object.assign(image, { place: outcome.place, card: null });
      }
      const labels = [...new Set([...images.values()].map((image) => image.label))].sort((a, b) => a - b);
      fill(choice.class, labels, className);
      const unfinished = [...images.values()].some(({ outcomes }) => outcomes.some(({ state }) => state === "unfinished"));
      const states = Object.keys(words).filter((state) => unfinished || state !== "unfinished");
      fill(choice.state, states, (state) => words[state]);
      choose();
    },
  };
}

const fits = (select, value) => select.value === "" || select.value === String(value);
const byNumber = (a, b) => a.image.number - b.image.number;
const orders = {
  newest: (a, b) => b.image.place - a.image.place, // in a run in progress
  queries: (a, b) => (a.queries === b.queries ? byNumber(a, b) : a.queries - b.queries),
  number: byNumber,
  label: (a, b) => a.image.label - b.image.label || byNumber(a, b),
};

function cardOf({ number, label, outcomes }, attacks, className, source) {
  const [first] = outcomes;
  const original = [pictureOf(source(first, "original"), "original", `image ${number}`)];
  const caption = element("figcaption", {}, element("span", { className: "what" }, "original"));
  caption.append(element("span", { className: "classes" }, ...predictionOf("span", className(label), first.before)));
  const tiles = element("div", { className: "tiles" }, element("figure", {}, ...original.filter(Boolean), caption));
  tiles.append(...outcomes.map((outcome) => tileOf(outcome, attacks[outcome.attack], className, source)));
  return element("li", { className: "card" }, tiles, element("p", { className: "about" }, `image ${number}`));
}

/** Return the outcome of one attack: its adversarial image or how it ended, the predicted class, the queries. */
function tileOf(outcome, attack, className, source) {
  const { state, number, predicted, queries, radius } = outcome;
  const caption = element("figcaption", {}, element("span", { className: "what" }, attack));
  const tile = element("figure", { className: state, "data-attack": outcome.attack });
  if (state === "fooled") {
    for (const what of ["adversarial", "perturbation"]) {
      const picture = pictureOf(source(outcome, what), what, `${what} of image ${number}, ${attack}`);
      if (picture) tile.append(picture);
    }
    if (predicted !== null) {
      const said = predictionOf("strong", className(predicted), outcome.after);
      caption.append(element("span", { className: "classes" }, ...said));
    }
  } else {
    const ending = state === "robust" ? "not fooled" : queries ? "unfinished" : "waiting";
    tile.append(element("p", { className: "ending" }, ending));
  }
  const count = `${whole(queries)} ${queries === 1 ? "query" : "queries"}`;
  if (queries || state !== "unfinished") caption.append(element("span", { className: "queries" }, count));
  if (radius) caption.append(element("span", { className: "radius" }, `radius ${radius}`));
  tile.append(caption);
  return tile;
}

const pictureOf = (src, className, alt) => (src ? element("img", { src, alt, className }) : null);

function predictionOf(tag, name, confidence) {
  const sure = confidence === null ? [] : [" ", element("span", { className: "confidence" }, percent(confidence))];
  return [element(tag, {}, name), ...sure];
}
