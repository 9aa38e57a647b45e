// The report: every run one below the other, from the data block.

const embedded = (entry, what) => entry[what] && `data:image/png;base64,${entry[what]}`;

function entriesOf({ images }) {
  return images.flatMap((image) =>
    image.attacks.flatMap((ending, attack) => {
      if (!ending) return [];
      const [state, queries, predicted, after, perturbation, adversarial] = ending;
      return [{ ...image, attack, state, queries, predicted, after, perturbation, adversarial }];
    }),
  );
}

function start() {
  const { runs } = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("runs");
  const contents = document.getElementById("contents");
  document.title = `${runs.map((run) => run.name).join(", ")} \u2013 parsimon report`;
  contents.hidden = runs.length < 2;
  runs.forEach((run, number) => {
    const copied = document.getElementById("run").content.cloneNode(true);
    const article = copied.querySelector("article");
    const name = article.querySelector(".name");
    name.textContent = run.name;
    name.id = `run-${number}`;
    article.setAttribute("aria-labelledby", name.id);
    article.querySelector(".sentence").textContent = run.sentence;
    contents.querySelector("ul").append(element("li", {}, element("a", { href: `#${name.id}` }, run.name)));
    main.append(copied); // before the plot is drawn, which asks how wide it is
    const whiteBox = new Set(run.curves.lines.filter((line) => line.white_box).map((line) => line.name));
    for (const table of run.tables) showTable(article.querySelector(".tables"), table, whiteBox);
    showPlot(article.querySelector(".curves"), number)(run.curves);
    const gallery = showGallery(article.querySelector(".gallery"), run.gallery, embedded);
    gallery.add(entriesOf(run.gallery));
    const without = run.gallery.images.filter((image) => !image.original).length;
    const all = run.gallery.images.length;
    if (without) gallery.hint.append(` To keep the file small, ${whole(without)} of ${whole(all)} have no pictures.`);
    showFacts(article.querySelector(".facts"), run.facts);
  });
}

document.addEventListener("DOMContentLoaded", start);
