// Draws the page from the data beside it, and lets one slider say of which evaluation. Text of the user's goes in as
// textContent, never as HTML.
const NAMESPACE = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent) {
  const node = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

function html(name, className, text, parent) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function shown(value) {
  if (value === null) return "–";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size < 1e-9 || size >= 1e9) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(5, Math.ceil(Math.log10(size))), useGrouping: false });
}

// two digits of the distance to 1, as format_cms writes them
function shownCms(value) {
  const distance = Math.abs(1 - value);
  if (distance < FINEST) return "1";
  return value.toFixed(Math.min(6, Math.max(4, 1 + Math.ceil(-Math.log10(distance)))));
}

// which region is lit, section by section

function regionsOf(section) {
  let pinned = null;
  const light = (region) => {
    for (const node of section.querySelectorAll("[data-region]")) {
      node.classList.toggle("lit", region !== null && node.dataset.region === String(region));
      node.classList.toggle("off", region !== null && node.dataset.region !== String(region) && node.tagName !== "TR");
    }
  };
  const pin = (region) => {
    pinned = pinned === region ? null : region;
    for (const button of section.querySelectorAll(".regions button")) {
      button.setAttribute("aria-pressed", String(button.closest("tr").dataset.region === String(pinned)));
    }
    light(pinned);
  };
  const regions = { show: (region) => light(region === null ? pinned : region), again: () => light(pinned) };
  const regionAt = (event) => {
    const node = event.target.closest(".map [data-region], .regions [data-region]");
    return node && section.contains(node) ? Number(node.dataset.region) : null;
  };
  section.addEventListener("pointerover", (event) => {
    if (!event.target.closest(".chart")) regions.show(regionAt(event));
  });
  section.addEventListener("pointerleave", () => regions.show(null));
  section.addEventListener("focusin", (event) => { if (regionAt(event) !== null) regions.show(regionAt(event)); });
  section.addEventListener("focusout", () => regions.show(null));
  section.addEventListener("click", (event) => { if (regionAt(event) !== null) pin(regionAt(event)); });
  return regions;
}

function drawMap(place, map) {
  const picture = svg("svg", { viewBox: `0 0 ${map.width} ${map.height}`, role: "img" }, place);
  picture.setAttribute("aria-label", "map of the regions");
  for (const { region, color, path, name } of map.regions) {
    const node = svg("path", { d: path, style: `--c:${color}`, "data-region": region }, picture);
    node.setAttribute("shape-rendering", "crispEdges");
    svg("title", {}, node).textContent = name;
  }
  const size = Math.max(map.width, map.height) / 14;
  for (const { region, at } of map.regions) {
    if (!region) continue;
    const place = { x: at[0] + 0.5, y: at[1] + 0.5, dy: "0.36em", "font-size": size, "stroke-width": size / 5 };
    svg("text", place, picture).textContent = region;
  }
}

system.addEventListener("change", () => darken(system.matches));
document.querySelector(".lamp").addEventListener("click", () => darken());

// the evaluation shown: one for the whole page

const drawn = JSON.parse(document.getElementById("drawn").textContent);
const followers = []; // functions of a step

function showMoment(number) {
  const input = document.getElementById("moment"), { epoch, step } = drawn.moments[number];
  input.value = number;
  const said = `${epoch === null ? "" : `epoch ${shown(epoch)}, `}step ${step}`;
  input.setAttribute("aria-valuetext", said);
  document.querySelector(".moment output").textContent = said;
  for (const follow of followers) follow(step);
}

const showStep = (step) => {
  const number = drawn.moments.findIndex((moment) => moment.step >= step);
  if (drawn.moments.length > 1) showMoment(number < 0 ? drawn.moments.length - 1 : number);
};

const latestAt = (list, step) => list.findLast((one) => (one.step ?? 0) <= step) ?? list[0];

// a statement that not every evaluation has, where it belongs to another than the one shown
function unlike(step, shownStep) {
  if (step === shownStep || !Number.isFinite(shownStep)) return "";
  return `: the ${step < shownStep ? "last before" : "first after"} the evaluation shown`;
}

const whenOf = ({ epoch, step }, shownStep) =>
  `${epoch === null ? "" : `epoch ${shown(epoch)}, `}step ${step}${unlike(step, shownStep)}`;

function slide(figure, pictures) {
  followers.push((step) => {
    const picture = latestAt(pictures, step), { source, width } = picture, image = figure.querySelector("img");
    image.src = source;
    image.style.setProperty("--readable", `${Math.floor(0.8 * width)}px`);
    figure.querySelector("output").textContent = whenOf(picture, step);
  });
}

// the first screen: the answers of the evaluation shown, with the figure that belongs to them

function sparkline(place, answers) {
  const known = answers.filter((answer) => answer.height !== null), height = known.map((answer) => answer.height);
  const low = Math.min(...height), span = Math.max(...height) - low || 1, wide = Math.max(known.length - 1, 1);
  const points = known.map((_, i) => [4 + (112 * i) / wide, 20 - (16 * (height[i] - low)) / span]);
  place.setAttribute("viewBox", "0 0 120 24");
  svg("polyline", { points: points.map((point) => point.join(",")).join(" ") }, place);
  const dot = svg("circle", { r: 3 }, place);
  return (answer) => {
    const [x, y] = points[known.indexOf(answer)] ?? points.at(-1);
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", y);
  };
}

// rows of examples, with the place of the fault outlined on each
async function examples(place, strip, { outline, size }) {
  await strip.ready;
  const rows = new Map();
  strip.captions.forEach((caption, i) => rows.set(caption, [...(rows.get(caption) ?? []), i]));
  place.replaceChildren(...[...rows].map(([caption, numbers]) => {
    const row = html("figure", numbers.length === 1 ? "single" : "");
    html("figcaption", "", caption, row);
    const tiles = html("div", "tiles", "", row);
    for (const number of numbers) {
      const tile = html("div", "tile", "", tiles), canvas = strip.tile(number, 0, null);
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", caption);
      tile.append(canvas);
      if (outline) svg("path", { d: outline }, svg("svg", { viewBox: `0 0 ${size[1]} ${size[0]}`, "aria-hidden": true }, tile));
    }
    return row;
  }));
}

function shares(place, bar) {
  const colors = ["#0072b2", "#56b4e9", "#009e73"];
  const colorOf = (name, i) => ({ "wrong proportions": "#e69f00", "not explained": "#a8a8a8" })[name] ?? colors[i % 3];
  const line = html("div", "line"), legend = html("div", "legend");
  bar.forEach(([name, share], i) => {
    const part = html("span", "", "", line), entry = html("span", "", "", legend);
    part.style.cssText = `width:${100 * share}%;background:${colorOf(name, i)}`;
    html("span", "swatch", "", entry).style.setProperty("--c", colorOf(name, i));
    entry.append(`${name} ${Math.round(100 * share)} %`);
  });
  place.replaceChildren(...(bar.length ? [line, legend] : []));
}

for (const place of document.querySelectorAll("[data-answers]")) {
  const { answers, diagnoses } = drawn.sections[place.dataset.answers];
  const spark = place.querySelector(".spark"), mark = spark && sparkline(spark, answers);
  const strips = diagnoses.map((about) => Object.assign(new Strip(about), about));
  followers.push((step) => {
    const answer = latestAt(answers, step), strip = strips.length && latestAt(strips, step);
    const pictured = strip ? answers.find((one) => one.step === strip.step) ?? answer : answer;
    for (const node of place.querySelectorAll("[data-answer]")) {
      node.textContent = answer[node.dataset.answer] ?? "";
      node.hidden = !node.textContent;
    }
    for (const link of place.querySelectorAll("[data-link]")) {
      link.href = answer[link.dataset.link] || "#";
      link.hidden = !answer[link.dataset.link];
    }
    place.querySelector(".next").hidden = !answer.next && !answer.cause && !answer.how;
    place.querySelector(".texts").replaceChildren(...answer.texts.map((text) => html("p", "", text)));
    place.classList.toggle("fine", answer.fine === true);
    place.classList.toggle("wrong", answer.fine === false);
    if (mark) mark(answer);
    shares(place.querySelector(".shares"), pictured.bar ?? []);
    if (!strip) return;
    place.querySelector(".diagnosis > figcaption").textContent = strip.step === answer.step ? "" : `Pictures of ${whenOf(strip, step)}`;
    examples(place.querySelector(".examples"), strip, pictured);
  });
}

for (const section of document.querySelectorAll("[data-section]")) {
  const { charts, map, sliders, images, sets } = drawn.sections[section.dataset.section];
  const regions = regionsOf(section);
  if (map) drawMap(section.querySelector(".map"), map);
  for (const place of section.querySelectorAll(".chart")) {
    const chart = new Chart(place, charts[place.dataset.chart], regions, showStep);
    followers.push((step) => chart.mark(step));
  }
  if (images) {
    const gallery = new Gallery(section.querySelector(".images"), images, map, sets);
    followers.push((step) => gallery.show(step));
  }
  section.querySelectorAll(".slider").forEach((figure) => slide(figure, sliders[figure.dataset.slider].pictures));
}

for (const table of document.querySelectorAll(".scroll > table")) {
  const place = html("div", "saves copy", "");
  table.parentNode.before(place);
  addCopy(place, table.parentNode.getAttribute("aria-label"), () => cellsOf(table));
}

if (drawn.moments.length > 1) {
  const input = document.getElementById("moment");
  const choose = (number) => {
    showMoment(number);
    if (location.protocol !== "about:") history.replaceState(null, "", `#epoch=${drawn.moments[number].epoch ?? ""}`); // a notebook's frame has no address
  };
  input.addEventListener("input", () => choose(Number(input.value)));
  for (const button of document.querySelectorAll(".moment [data-by]")) button.addEventListener("click", () => {
    choose(Math.min(drawn.moments.length - 1, Math.max(0, Number(input.value) + Number(button.dataset.by))));
  });
  for (const button of document.querySelectorAll(".go")) button.addEventListener("click", () => showStep(Number(button.dataset.step)));
  document.querySelector(".moment").addEventListener("submit", (event) => event.preventDefault());
  const named = () => drawn.moments.findIndex((moment) => `#epoch=${moment.epoch}` === location.hash);
  addEventListener("hashchange", () => { if (named() >= 0) showMoment(named()); });
  showMoment(named() < 0 ? drawn.moments.length - 1 : named());
} else for (const follow of followers) follow(Infinity);
