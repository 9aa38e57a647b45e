// The headline: the robust accuracy, how it was obtained, and what to mind.

/** Show an unfinished run's banner, the headlines and the warnings, each time replacing those before. */
function showHeadlines(place, { banner, headlines, warnings }) {
  const top = place.querySelector(".banner");
  top.hidden = !banner;
  if (top.textContent !== banner) top.textContent = banner; // a screen reader would repeat it
  place.querySelector(".headlines").replaceChildren(...headlines.map(headlineOf));
  const box = place.querySelector(".warnings");
  box.hidden = warnings.length === 0;
  box.querySelector("ul").replaceChildren(...warnings.map((warning) => element("li", {}, warning)));
}

function headlineOf({ name, what, value, interval, kind, about }) {
  const figure = element("p", { className: "figure" }, element("strong", { className: "number" }, value));
  if (interval) figure.append(" ", element("span", { className: "interval" }, interval));
  const title = element("p", { className: "what" }, name ? `${name}: ${what.toLowerCase()}` : what);
  return element("li", { className: "headline" }, title, figure, element("p", { className: "about" }, about), element("p", { className: "kind" }, kind));
}
