// What a chart shows as a file: its values, or its drawing with the styles that the page gives it. Charts and tables are
// also copied as cells, which a spreadsheet takes.

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "fill-opacity", "font-size", "font-family", "text-anchor", "color"];

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function valuesOf(spec, between = ",") {
  const cell = (text) => (/[",\n]/.test(text) && between === "," ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = spec.x.map((x, i) => [...(spec.by ? [x] : []), ...spec.series.map((c) => c.values[i] ?? "")]);
  const lines = [[...(spec.by ? [spec.by] : []), ...spec.series.map((c) => cell(c.label))], ...rows];
  return `${lines.map((row) => row.join(between)).join("\n")}\n`;
}

const cellsOf = (table) => [...table.rows].map((row) =>
  [...row.cells].map((cell) => cell.textContent.trim().replace(/\s+/g, " ")).join("\t")).join("\n");

// a button that copies a text, also in a frame that has no clipboard
function addCopy(place, title, make) {
  const button = html("button", "save", "Copy", place);
  button.type = "button";
  button.setAttribute("aria-label", `Copy ${title}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(make());
    } catch {
      const area = html("textarea", "", make(), document.body);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

// a color as every program reads it: browsers give those that are mixed as oklab
function inRgb(color) {
  if (!/^(oklab|oklch|lab|color)\(/.test(color)) return color;
  const dot = document.createElement("canvas").getContext("2d");
  dot.fillStyle = color;
  dot.fillRect(0, 0, 1, 1);
  const [red, green, blue] = dot.getImageData(0, 0, 1, 1).data;
  return `rgb(${red}, ${green}, ${blue})`;
}

// a drawing that looks the same without the page
function drawingOf(picture) {
  const { width, height } = picture.viewBox.baseVal, alone = picture.cloneNode(true);
  const copies = alone.querySelectorAll("*");
  picture.querySelectorAll("*").forEach((node, i) => {
    const style = getComputedStyle(node);
    copies[i].setAttribute("style", STYLES.map((key) => `${key}:${inRgb(style.getPropertyValue(key))}`).join(";"));
  });
  const paper = svg("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor });
  alone.prepend(paper);
  for (const [name, value] of Object.entries({ xmlns: NAMESPACE, width, height })) alone.setAttribute(name, value);
  return new XMLSerializer().serializeToString(alone);
}

// a drawing as pixels, three for each of the page's
async function pixelsOf(drawing) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(drawing)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 3 * image.width;
  canvas.height = 3 * image.height;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

const FILES = {
  CSV: (spec) => new Blob([valuesOf(spec)], { type: "text/csv" }),
  SVG: (spec, picture) => new Blob([drawingOf(picture)], { type: "image/svg+xml" }),
  PNG: (spec, picture) => pixelsOf(drawingOf(picture)),
};
