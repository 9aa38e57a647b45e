// The report: all runs, one below the other.

/** Return a function that gives the address of a card's picture, or null. */
function embedded({ originals }) {
  return (card, what) => {
    const content = what === "original" ? originals[card.number] : card[what];
    return content ? `data:image/png;base64,${content}` : null;
  };
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
    main.append(copied); // before the plot, which needs its width
    const whiteBox = new Set(run.curves.lines.filter((line) => line.white_box).map((line) => line.name));
    for (const table of run.tables) showTable(article.querySelector(".tables"), table, whiteBox);
    showPlot(article.querySelector(".curves"), number)(run.curves);
    const gallery = showGallery(article.querySelector(".gallery"), run.gallery, embedded(run.gallery));
    gallery.add(run.gallery.cards);
    const all = new Set(run.gallery.cards.map((card) => card.number)).size;
    const without = all - Object.keys(run.gallery.originals).length;
    if (without) gallery.hint.append(` To keep the file small, ${whole(without)} of ${whole(all)} images have no pictures.`);
    showFacts(article.querySelector(".facts"), run.facts);
  });
}

document.addEventListener("DOMContentLoaded", start);
