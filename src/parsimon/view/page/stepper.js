// A picture of one's own: it is sent to the server, which attacks it and tells every query; they are played here.

function startStepper(section, { networks, radii, largest }) {
  const at = (selector) => section.querySelector(selector);
  const [stage, trouble, slider, play] = [".stage", ".trouble", ".player input", ".play"].map(at);
  const option = (text) => element("option", {}, text);
  at("[name=network]").append(...networks.map(option));
  at("[name=radius]").append(...radii.map(option));
  at("[name=radius]").value = "8/255";
  let attack = null; // the one that is shown
  let last = null; // the picture, for another network or radius
  let sample = Math.floor(Math.random() * 1000);
  let timer = null;

  async function begin(picture, number) {
    last = [picture, number];
    attack?.stop.abort();
    pause();
    trouble.textContent = "";
    const mine = (attack = { steps: [], at: 0, scene: null, ended: null, stop: new AbortController() });
    const asked = new URLSearchParams({ network: at("[name=network]").value, radius: at("[name=radius]").value, bundled: number });
    try {
      if (picture?.size > largest) throw new Error(`the picture\u2019s file is larger than ${largest / 2 ** 20} MB`);
      const reply = await fetch(`attack?${asked}`, { method: "POST", body: picture, signal: mine.stop.signal });
      if (!reply.ok) throw new Error((await reply.json()).error);
      for await (const told of linesOf(reply.body)) take(mine, told);
    } catch (error) {
      if (error.name !== "AbortError") trouble.textContent = `This picture cannot be attacked: ${error.message}.`;
    }
  }

  function take(mine, told) {
    if (mine !== attack) return;
    if (told.error) throw new Error(told.error);
    if (told.scene) {
      mine.scene = sceneOf(told);
      Object.assign(mine, { classes: told.classes, label: told.label, before: told.confidence, budget: told.budget });
    } else if (told.ended) {
      mine.ended = told;
      if (mine.at === mine.steps.length - 1) show();
    } else {
      // A base that does not change is not told again.
      told.base = told.base ? bytesOf(told.base) : mine.steps.at(-1).base;
      mine.steps.push(told);
      slider.max = mine.steps.length - 1;
      if (mine.steps.length === 1) {
        stage.hidden = false; // not earlier: its buttons need a step
        paintOriginal();
        at(".label").textContent = `${mine.classes[mine.label]} ${percent(mine.before)}`;
        show();
        go();
      }
    }
  }

  function paintOriginal() {
    const { original, side } = attack.scene;
    paint(at(".original"), side, (place) => original[place]);
  }

  function show() {
    const { scene, steps, label, classes, budget, ended } = attack;
    const step = steps[attack.at];
    const { side } = scene;
    const raised = cornerOf(scene, step);
    paint(at(".corner"), side, (place) => (raised[place] ? scene.high : scene.low)[place], step);
    paint(at(".noise"), side, (place) => (raised[place] ? 255 : 0), step);
    const fooled = step.seen !== label;
    at(".seen").textContent = `${classes[step.seen]} ${percent(step.confidence)}`;
    at(".seen").classList.toggle("fooled", fooled);
    at(".blocks").textContent = `blocks of ${step.block} \u00d7 ${step.block}`;
    at(".told").replaceChildren(...sentenceOf(step, side, fooled, budget));
    const isLast = ended && attack.at === steps.length - 1;
    if (isLast && !fooled) at(".told").append(ended.ended === "budget" ? " The budget is gone: it withstood." : " Nothing is left to try: it withstood.");
    slider.value = attack.at;
    slider.setAttribute("aria-valuetext", `query ${step.query}`);
    plotLosses(at(".loss svg"), steps, attack.at, budget);
  }

  function sentenceOf(step, side, fooled, budget) {
    const parts = [`Query ${whole(step.query)} of at most ${whole(budget)}: `];
    if (step.flip === null) parts.push("the set as it is");
    else {
      const { channel, row, column } = placeOf(step, side);
      const way = isMember(step.base, step.flip) ? "lowered" : "raised";
      parts.push(`${CHANNELS[channel]} ${way} in row ${row + 1}, column ${column + 1}`);
    }
    parts.push(`; loss ${step.loss.toFixed(3)}. `);
    if (fooled) parts.push(element("span", { className: "kept" }, `Fooled after ${whole(step.query)} queries.`));
    else if (step.kept === step.flip && step.flip !== null) parts.push(element("span", { className: "kept" }, "Kept."));
    else if (step.kept !== null) parts.push("Not kept; the best of those before is.");
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

  for (const name of ["network", "radius"]) at(`[name=${name}]`).addEventListener("change", () => last && begin(...last));
  at(".bundled").addEventListener("click", () => begin(null, (sample = (sample + 1) % 1000)));
  at("input[type=file]").addEventListener("change", ({ target }) => target.files[0] && begin(target.files[0], 0));
  document.addEventListener("paste", ({ clipboardData }) => clipboardData.files[0] && begin(clipboardData.files[0], 0));
  // All of the page takes a picture: one that missed the field would make the browser leave the page.
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
}

/** What a stream holds, a line of JSON each, as they come. */
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
