"use strict";
// Shared by the pages. Text from a run is only ever inserted as text, never as markup.

/** Return an element with properties and children; strings become text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const whole = (number) => number.toLocaleString("en");
const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;

function showTable(place, table, whiteBox) {
  place.append(document.getElementById("table").content.cloneNode(true));
  const section = place.lastElementChild;
  section.querySelector("h3").textContent = table.heading;
  const holder = section.querySelector("table");
  holder.caption.textContent = table.title;
  // Explicit roles: a narrow screen shows rows as blocks, which browsers no longer treat as rows.
  const headers = table.headers.map((text) => element("th", { scope: "col", role: "columnheader" }, text));
  holder.append(element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...headers)));
  for (const group of table.groups) {
    const rows = group.map((row) => element("tr", { role: "row" }, ...row.map(cellOf(table.headers))));
    const apart = whiteBox.has(group[0][0].text); // white-box attacks form their own group
    holder.append(element("tbody", { role: "rowgroup", className: apart ? "white-box" : "" }, ...rows));
  }
  section.querySelector(".notes").append(...table.notes.map((note) => element("li", {}, note)));
  for (const button of section.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => copy(table[button.dataset.copy], button, section.querySelector(".status")));
  }
}

function cellOf(headers) {
  return (cell, column) => {
    const kind = column ? { role: "cell" } : { role: "rowheader", scope: "row" };
    const made = element(column ? "td" : "th", { ...kind, "data-header": headers[column] });
    made.append(element(cell.best ? "strong" : "span", { className: "value" }, cell.text));
    if (cell.interval) made.append(" ", element("span", { className: "interval" }, cell.interval.join(" to ")));
    return made;
  };
}

async function copy(text, button, status) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A file may not be allowed to use the clipboard; the old method still works.
    const area = element("textarea", { value: text, className: "unseen" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  status.textContent = `Copied the table as ${button.dataset.copy === "latex" ? "LaTeX" : "Markdown"}.`;
  setTimeout(() => (status.textContent = ""), 4000);
}

function showFacts(section, facts) {
  for (const { title, rows } of facts) {
    const list = element("dl");
    for (const [name, value] of rows) list.append(element("dt", {}, name), element("dd", {}, value));
    section.append(element("div", {}, element("h3", {}, title), list));
  }
}
