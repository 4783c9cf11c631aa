// Real images beside generated ones, one by one: whole or one region alone, and the nearest real image of each sample.

// the images of a strip below each other, each as a canvas; at its right half may be the nearest real ones
class Strip {
  constructor({ source, height, nearest }) {
    Object.assign(this, { height, sides: nearest ? 2 : 1, picture: new Image() });
    this.picture.src = source;
    this.ready = this.picture.decode();
  }

  get count() { return Math.floor(this.picture.naturalHeight / this.height); }
  get width() { return this.picture.naturalWidth / this.sides; }

  // side 1 is the nearest real image; outside of a region an image is faint, and what is around it is cut off
  tile(number, side, region) {
    const { width, height } = this, canvas = document.createElement("canvas");
    const { x, y, w, h, path, sx, sy } = region ? region.at(width, height) : { x: 0, y: 0, w: width, h: height };
    const times = region ? Math.max(1, Math.ceil(64 / Math.max(w, h))) : 1;
    Object.assign(canvas, { width: w * times, height: h * times });
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    const draw = () => context.drawImage(this.picture, side * width + x, number * height + y, w, h, 0, 0, w * times, h * times);
    if (!path) { draw(); return canvas; }
    context.globalAlpha = 0.2;
    draw();
    context.globalAlpha = 1;
    context.scale(times, times);
    context.translate(-x, -y);
    context.scale(sx, sy);
    context.clip(path);
    context.resetTransform();
    draw();
    return canvas;
  }
}

// where a region of the map is in an image of some size
class Zoom {
  constructor(map, region) {
    this.map = map;
    this.path = new Path2D(region.path);
    const runs = [...region.path.matchAll(/M(\d+) (\d+)h(\d+)/g)].map((match) => match.slice(1).map(Number));
    this.left = Math.min(...runs.map(([x]) => x));
    this.right = Math.max(...runs.map(([x, , wide]) => x + wide));
    this.top = Math.min(...runs.map(([, y]) => y));
    this.bottom = Math.max(...runs.map(([, y]) => y + 1));
  }

  at(width, height) {
    const sx = width / this.map.width, sy = height / this.map.height;
    const x = Math.floor(this.left * sx), y = Math.floor(this.top * sy);
    const w = Math.ceil(this.right * sx) - x, h = Math.ceil(this.bottom * sy) - y;
    return { x, y, w, h, path: this.path, sx, sy };
  }
}

class Gallery {
  constructor(place, images, map, sets) {
    Object.assign(this, { place: place.querySelector(".sides"), images, sets, zoom: null, step: Infinity, strips: new Map() });
    const choices = place.querySelector(".choices");
    if (map) this.choice(choices, "Show", [["whole images", null], ...map.regions.map((r) => [`${r.name} alone`, r])],
      (region) => { this.zoom = region && new Zoom(map, region); });
    const nearest = images.strips.some((strip) => strip.nearest);
    this.pairs = false;
    if (nearest) this.choice(choices, "Compare with", [["real images", false], ["the nearest real image of each", true]],
      (pairs) => { this.pairs = pairs; });
  }

  choice(place, name, options, set) {
    const label = html("label", "", `${name} `, place), select = html("select", "", "", label);
    options.forEach(([text], i) => { html("option", "", text, select).value = i; });
    select.addEventListener("change", () => { set(options[select.value][1]); this.show(this.step); });
  }

  strip(about) {
    if (!this.strips.has(about)) this.strips.set(about, new Strip(about));
    return this.strips.get(about);
  }

  // the images of the last evaluation that has some at a step; before the first one the first
  async show(step) {
    this.step = step;
    const { real, strips, other, captions, of } = this.images;
    const about = strips.findLast((strip) => (strip.step ?? 0) <= step) ?? strips[0];
    const some = strips.length < of ? `${strips.length} of ${of} evaluations are shown; the others are in the run's folder.` : "";
    const when = about.epoch === null ? "" : `, epoch ${about.epoch}${unlike(about.step, step)}`;
    const pairs = this.pairs ? "At the right of each is its nearest real image, the closest pair first. " : "";
    const shown = [{
      about, title: `${this.sets[0] ?? "Generated images"}${when}`, note: `${pairs}${some}`, captions, pairs: this.pairs,
    }];
    if (other.length) shown.push({ about: other[0], title: this.sets[1], note: "", captions, pairs: this.pairs });
    if (real.length && !this.pairs) shown.unshift({ about: real[0], title: "Real images", note: "", captions: [], pairs: false });
    const parts = await Promise.all(shown.map((part) => this.part(part)));
    if (this.step === step) this.place.replaceChildren(...parts);
  }

  async part({ about, title, note, captions, pairs }) {
    const strip = this.strip(about), part = html("div", pairs ? "side pairs" : "side", "");
    html("h4", "", title, part);
    if (note) html("p", "faint", note, part);
    await strip.ready;
    const tiles = html("div", "tiles", "", part);
    tiles.style.setProperty("--side", `${Math.min(96, Math.max(44, strip.width))}px`);
    const order = [...Array(strip.count).keys()];
    if (pairs) order.sort((a, b) => (about.distances[a] ?? 0) - (about.distances[b] ?? 0));
    for (const number of order) {
      const tile = html("figure", "", "", tiles), said = [captions[number]];
      if (pairs) said.push(about.distances[number] === undefined ? "" : `${about.distances[number].toFixed(2)} × usual`);
      for (const side of pairs && about.nearest ? [0, 1] : [0]) {
        const canvas = strip.tile(number, side, this.zoom);
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${side ? "nearest real image of " : ""}${title}, number ${number + 1}`);
        tile.append(canvas);
      }
      const text = said.filter(Boolean).join(", ");
      if (text) html("figcaption", "", text, tile).title = text;
    }
    return part;
  }
}
