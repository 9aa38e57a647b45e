// Your own picture: the server attacks it and streams every query, which is played here.

/** Prepare the player and return a function that offers the run's own model. */
function startStepper(section, { networks, attacks, radii, own, largest }) {
  const at = (selector) => section.querySelector(selector);
  const [stage, trouble, slider, play] = [".stage", ".trouble", ".player input", ".play"].map(at);
  const option = (text) => element("option", {}, text);
  at("[name=network]").append(...networks.map(option));
  at("[name=attack]").append(...attacks.map(option));
  at("[name=radius]").append(...radii.map(option));
  at("[name=radius]").value = "8/255";
  const menus = ["network", "attack", "radius"];
  let attack = null; // the attack that is shown
  let last = null; // its picture, for another network, attack or radius
  let sample = Math.floor(Math.random() * 1000);
  let timer = null;

  async function begin(picture, number) {
    last = [picture, number];
    attack?.stop.abort();
    pause();
    trouble.textContent = "";
    const mine = (attack = { steps: [], at: 0, pictures: null, ended: null, stop: new AbortController() });
    const asked = new URLSearchParams(menus.map((name) => [name, at(`[name=${name}]`).value]));
    asked.set("bundled", number);
    try {
      if (picture?.size > largest) throw new Error(`the picture\u2019s file is larger than ${largest / 2 ** 20} MB`);
      const reply = await fetch(`attack?${asked}`, { method: "POST", body: picture, signal: mine.stop.signal });
      if (!reply.ok) throw new Error((await reply.json()).error);
      for await (const step of linesOf(reply.body)) take(mine, step);
    } catch (error) {
      if (error.name !== "AbortError") trouble.textContent = `This picture cannot be attacked: ${error.message}.`;
    }
  }

  function take(mine, step) {
    if (mine !== attack) return;
    if (step.error) throw new Error(step.error);
    if (step.pictures) {
      mine.pictures = picturesOf(step);
      Object.assign(mine, { classes: step.classes, label: step.label, before: step.confidence, budget: step.budget });
    } else if (step.ended) {
      mine.ended = step;
      if (mine.at === mine.steps.length - 1) show();
    } else {
      // A base is sent only when it changes.
      if (step.block) step.base = step.base ? bytesOf(step.base) : mine.steps.at(-1).base;
      mine.steps.push(step);
      slider.max = mine.steps.length - 1;
      if (mine.steps.length === 1) {
        stage.hidden = false; // not before: its buttons need a step
        paintOriginal();
        at(".label").textContent = `${nameOf(mine.label)} ${percent(mine.before)}`;
        at(".by-blocks").hidden = !step.block;
        show();
        go();
      }
    }
  }

  function paintOriginal() {
    const { pictures } = attack;
    paint(at(".original"), pictures, (place) => pictures.original[place]);
  }

  const nameOf = (number) => attack.classes[number] ?? `class ${number}`;

  function show() {
    const { pictures, steps, label, budget, ended } = attack;
    const step = steps[attack.at];
    const { queried, change } = queriedOf(pictures, step);
    paint(at(".corner"), pictures, queried, step);
    paint(at(".noise"), pictures, change, step);
    const fooled = step.seen !== label;
    at(".seen").textContent = `${nameOf(step.seen)} ${percent(step.confidence)}`;
    at(".seen").classList.toggle("fooled", fooled);
    at(".blocks").textContent = step.block ? `blocks of ${step.block} \u00d7 ${step.block}` : "grey: no change";
    at(".told").replaceChildren(...sentenceOf(step, pictures.rows, fooled, budget));
    const isLast = ended && attack.at === steps.length - 1;
    if (isLast && !fooled) at(".told").append(ended.ended === "budget" ? " The budget is used up: not fooled." : " Nothing is left to try: not fooled.");
    slider.value = attack.at;
    slider.setAttribute("aria-valuetext", `query ${step.query}`);
    plotLosses(at(".loss svg"), steps, attack.at, budget);
  }

  function sentenceOf(step, side, fooled, budget) {
    const parts = [`Query ${whole(step.query)} of at most ${whole(budget)}: `];
    if (!step.block) parts.push("the picture above");
    else if (step.flip === null) parts.push("the set without a change");
    else {
      const { channel, row, column } = placeOf(step, side);
      const change = isMember(step.base, step.flip) ? "lowered" : "raised";
      parts.push(`${CHANNELS[channel]} ${change} in row ${row + 1}, column ${column + 1}`);
    }
    parts.push(`; loss ${step.loss.toFixed(3)}. `);
    if (fooled) parts.push(element("span", { className: "kept" }, `Fooled after ${whole(step.query)} queries.`));
    else if (!step.block) return parts;
    else if (step.kept === step.flip && step.flip !== null) parts.push(element("span", { className: "kept" }, "Kept."));
    else if (step.kept !== null) parts.push("Not kept; an earlier block is.");
    else if (step.flip !== null) parts.push("Not kept.");
    return parts;
  }

  function move(steps) {
    if (!attack?.steps.length) return;
    attack.at = Math.max(0, Math.min(attack.steps.length - 1, attack.at + steps));
    show();
  }

  function go() {
    pause();
    play.textContent = "Pause";
    let owed = 0;
    let then = performance.now();
    const tick = (now) => {
      owed += ((now - then) / 1000) * at(".speed").value;
      then = now;
      if (owed >= 1) move(Math.floor(owed));
      owed %= 1;
      const over = attack.ended && attack.at === attack.steps.length - 1;
      if (over) pause();
      else timer = requestAnimationFrame(tick);
    };
    timer = requestAnimationFrame(tick);
  }

  function pause() {
    cancelAnimationFrame(timer);
    timer = null;
    play.textContent = "Play";
  }

  play.addEventListener("click", () => {
    if (timer !== null) return pause();
    if (attack.ended && attack.at === attack.steps.length - 1) attack.at = 0;
    return go();
  });
  const by = (steps) => () => { pause(); move(steps); };
  at(".back").addEventListener("click", by(-1));
  at(".forward").addEventListener("click", by(1));
  slider.addEventListener("input", () => { pause(); move(slider.value - attack.at); });
  new ResizeObserver(() => attack?.steps.length && (paintOriginal(), show())).observe(stage);

  for (const name of menus) at(`[name=${name}]`).addEventListener("change", () => last && begin(...last));
  at(".bundled").addEventListener("click", () => begin(null, (sample = (sample + 1) % 1000)));
  at("input[type=file]").addEventListener("change", ({ target }) => target.files[0] && begin(target.files[0], 0));
  document.addEventListener("paste", ({ clipboardData }) => clipboardData.files[0] && begin(clipboardData.files[0], 0));
  // The whole page accepts a drop: a browser opens a file that misses the field.
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    section.classList.add("over");
  });
  document.addEventListener("dragleave", () => section.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    section.classList.remove("over");
    if (event.dataTransfer.files[0]) begin(event.dataTransfer.files[0], 0);
  });
  return (model) => at("[name=network]").prepend(element("option", { value: own }, `${model} (this run)`));
}

/** Yield the lines of a stream of JSON as they arrive. */
async function* linesOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}
