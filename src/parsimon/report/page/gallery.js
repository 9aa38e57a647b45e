// The gallery: every attacked image under every attack. Cards are made a few at a time, as they are asked for.

const AT_ONCE = 24;

function showGallery(section, gallery) {
  const names = gallery.attacks;
  const className = (number) => gallery.classes[number] ?? `class ${number}`;
  const entries = gallery.images.flatMap((image) =>
    image.attacks.flatMap((ending, attack) => {
      if (!ending) return [];
      const [state, queries, predicted, after, perturbation, adversarial] = ending;
      return [{ ...image, attack, state, queries, predicted, after, perturbation, adversarial }];
    }),
  );
  const cards = section.querySelector(".cards");
  const more = section.querySelector(".more");
  const reverse = section.querySelector(".direction");
  const choice = Object.fromEntries([...section.querySelectorAll("select")].map((select) => [select.name, select]));
  let chosen = [];

  const unique = (values) => [...new Set(values)];
  const option = (value, text) => element("option", { value }, text);
  choice.attack.append(...names.map((name, place) => option(place, name)));
  const labels = unique(entries.map((entry) => entry.label)).sort((a, b) => a - b);
  choice.class.append(...labels.map((number) => option(number, className(number))));
  const occurs = (state) => entries.some((entry) => entry.state === state);
  const states = ["fooled", "withstood", "unfinished"].filter(occurs);
  choice.state.append(...states.map((state) => option(state, state)));

  function choose() {
    const fits = (select, value) => select.value === "" || select.value === String(value);
    chosen = entries
      .filter((entry) => fits(choice.attack, entry.attack) && fits(choice.class, entry.label))
      .filter((entry) => fits(choice.state, entry.state))
      .sort(orders[choice.sort.value]);
    if (reverse.getAttribute("aria-pressed") === "true") chosen.reverse();
    cards.replaceChildren();
    section.querySelector(".nothing").hidden = chosen.length > 0;
    section.querySelector(".count").textContent =
      `${chosen.length === entries.length ? "" : `${whole(chosen.length)} of `}${whole(entries.length)} outcomes`;
    showMore();
  }

  function showMore() {
    const begun = cards.children.length;
    const made = chosen.slice(begun, begun + AT_ONCE).map((entry) => cardOf(entry, names[entry.attack], className));
    cards.append(...made);
    const left = chosen.length - cards.children.length;
    more.hidden = left === 0;
    more.textContent = `Show ${Math.min(AT_ONCE, left)} more of ${whole(left)}`;
    return made[0];
  }

  for (const select of Object.values(choice)) select.addEventListener("change", choose);
  reverse.addEventListener("click", () => {
    reverse.setAttribute("aria-pressed", String(reverse.getAttribute("aria-pressed") !== "true"));
    choose();
  });
  more.addEventListener("click", () => {
    const first = showMore();
    first.tabIndex = -1; // reading goes on where the new cards begin
    first.focus({ preventScroll: true });
  });
  // Where pixels are shown enlarged, they stay pixels.
  cards.classList.toggle("enlarged", gallery.side < 100);
  const without = gallery.images.filter((image) => !image.original).length;
  section.querySelector(".hint").textContent =
    "Beside a class: the model\u2019s confidence in it. Perturbation: grey is no change, black and white are the most that a pixel may change, in each channel. " +
    "An image that withstood sorts behind all that were fooled." +
    (without ? ` To keep the file small, ${whole(without)} of ${whole(gallery.images.length)} have no pictures.` : "");
  choose();
}

const byNumber = (a, b) => a.number - b.number || a.attack - b.attack;
const orders = {
  queries: (a, b) => (a.state !== "fooled") - (b.state !== "fooled") || a.queries - b.queries || byNumber(a, b),
  number: byNumber,
  label: (a, b) => a.label - b.label || byNumber(a, b),
};

function cardOf(entry, attack, className) {
  const fooled = entry.state === "fooled";
  const picture = (data, what) =>
    element("figure", {},
      element("img", { src: `data:image/png;base64,${data}`, alt: `${what} of image ${entry.number}` }),
      element("figcaption", { ariaHidden: "true" }, what));
  const pictures = element("div", { className: "pictures" });
  if (entry.original) pictures.append(picture(entry.original, "original"));
  if (entry.perturbation) pictures.append(picture(entry.perturbation, "perturbation"));
  if (entry.adversarial) pictures.append(picture(entry.adversarial, "adversarial"));
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
