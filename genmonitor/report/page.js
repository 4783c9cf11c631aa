// Draws the charts and maps from the data beside it. Text of the user's goes in as textContent, never as HTML.
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
  return size >= 1e5 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(5)));
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
  const regions = {
    show: (region) => light(region === null ? pinned : region),
    pin: (region) => { pinned = pinned === region ? null : region; light(pinned); },
    again: () => light(pinned),
  };
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
  section.addEventListener("click", (event) => { if (regionAt(event) !== null) regions.pin(regionAt(event)); });
  return regions;
}

function drawMap(place, map) {
  const picture = svg("svg", { viewBox: `0 0 ${map.width} ${map.height}`, role: "img" }, place);
  picture.setAttribute("aria-label", "map of the regions");
  for (const { region, color, path } of map.regions) {
    const node = svg("path", { d: path, style: `--c:${color}`, "data-region": region }, picture);
    node.setAttribute("shape-rendering", "crispEdges");
    svg("title", {}, node).textContent = region ? `cluster ${region}` : "constant";
  }
  const size = Math.max(map.width, map.height) / 14;
  for (const { region, at } of map.regions) {
    if (!region) continue;
    const place = { x: at[0] + 0.5, y: at[1] + 0.5, dy: "0.36em", "font-size": size, "stroke-width": size / 5 };
    svg("text", place, picture).textContent = region;
  }
}

function slide(figure, pictures) {
  const input = figure.querySelector("input"), output = figure.querySelector("output");
  const show = () => {
    const { epoch, step, source } = pictures[input.value];
    figure.querySelector("img").src = source;
    output.textContent = `epoch ${epoch}, step ${step}`;
  };
  input.hidden = pictures.length < 2;
  input.addEventListener("input", show);
  show();
}

const drawn = JSON.parse(document.getElementById("drawn").textContent);
for (const section of document.querySelectorAll("[data-section]")) {
  const { charts, map, sliders } = drawn[section.dataset.section];
  const regions = regionsOf(section);
  if (map) drawMap(section.querySelector(".map"), map);
  for (const place of section.querySelectorAll(".chart")) new Chart(place, charts[place.dataset.chart], regions);
  section.querySelectorAll(".slider").forEach((figure, i) => slide(figure, sliders[i].pictures));
}
