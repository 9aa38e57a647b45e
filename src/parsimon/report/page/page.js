// The report: what several runs have in common, then one run at a time.

/** Return a function that gives the address of an outcome's picture, or null. */
function embedded({ originals }) {
  return (outcome, what) => {
    const content = what === "original" ? originals[outcome.number] : outcome[what];
    return content ? `data:image/png;base64,${content}` : null;
  };
}

/** Add an article to a place, with what overviews and runs share, and return it. */
function addArticle(place, template, content, id) {
  place.append(document.getElementById(template).content.cloneNode(true)); // before plots, which need its width
  const article = place.lastElementChild;
  const name = article.querySelector(".name");
  name.textContent = content.name;
  name.id = id;
  article.setAttribute("aria-labelledby", id);
  article.querySelector(".sentence").textContent = content.sentence;
  showHeadlines(article, content);
  const whiteBox = new Set(content.white_box);
  for (const table of content.tables) showTable(article.querySelector(".tables"), table, whiteBox);
  showFacts(article.querySelector(".facts"), content.facts);
  return article;
}

function addClosest(article, chart) {
  const section = article.querySelector(".closest");
  if (chart) showClosest(section)(chart);
  else section.remove();
}

function addOverview(place, overview) {
  const article = addArticle(place, "overview", overview, "overview-name");
  const radii = article.querySelector(".radii");
  if (overview.radii) showRadii(radii, overview.radii);
  else radii.remove();
  showPlots(article.querySelector(".curves"), "overview", overview.curves);
  addClosest(article, overview.closest);
}

function addRun(place, run, number) {
  const article = addArticle(place, "run", run, `run-${number}`);
  showPlots(article.querySelector(".curves"), number, [run.curves]);
  addClosest(article, run.closest);
  const gallery = showGallery(article.querySelector(".gallery"), run.gallery, embedded(run.gallery));
  gallery.add(run.gallery.cards);
  const all = new Set(run.gallery.cards.map((card) => card.number)).size;
  const without = all - Object.keys(run.gallery.originals).length;
  if (without) gallery.hint.append(` To keep the file small, ${whole(without)} of ${whole(all)} images have no pictures.`);
  return article;
}

function start() {
  const { title, overview, runs } = JSON.parse(document.getElementById("data").textContent);
  document.title = `${title} \u2013 parsimon report`;
  if (overview) addOverview(document.getElementById("together"), overview);
  const [chosen, choice] = ["chosen", "choose"].map((id) => document.getElementById(id));
  const select = choice.querySelector("select");
  const articles = []; // each is made when it is first chosen
  const show = (number) => {
    articles[number] ??= addRun(chosen, runs[number], number);
    articles.forEach((article, place) => (article.hidden = place !== number));
  };
  select.append(...runs.map((run, value) => element("option", { value }, run.name)));
  select.addEventListener("change", () => show(Number(select.value)));
  choice.hidden = runs.length < 2;
  if (runs.length) show(0);
}

document.addEventListener("DOMContentLoaded", start);
