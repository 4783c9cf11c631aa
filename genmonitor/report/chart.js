// One chart: its curves or areas, its baselines, the values under the pointer, and the evaluation that the page shows.

function linePath(points) {
  let path = "", open = false; // a gap where a value is missing
  for (const [x, y] of points) {
    if (y === null) { open = false; continue; }
    path += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    open = true;
  }
  return path;
}

// what is on top of what in a stacked chart; an evaluation without any of it is a gap, not zero
function stacked(series) {
  const sums = series[0].values.map((_, i) => (series.every((curve) => curve.values[i] === null) ? null : 0));
  return series.map((curve) => ({
    ...curve,
    floor: [...sums],
    top: curve.values.map((value, i) => (sums[i] === null ? null : (sums[i] += value ?? 0))),
  }));
}

// the evaluations without a gap between them, as lists of their numbers
function unbroken(values) {
  const runs = [];
  values.forEach((value, i) => {
    if (value === null) return;
    if (i && values[i - 1] !== null) runs.at(-1).push(i); else runs.push([i]);
  });
  return runs;
}

// dark or light text, whichever stands out more from a color #rrggbb
function readableOn(color) {
  const parts = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16) / 255);
  const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

class Chart {
  constructor(place, spec, regions, showStep) {
    Object.assign(this, { place, spec, regions, showStep, at: null, now: spec.x.length - 1 });
    const head = html("div", "head", "", place);
    html("h3", "", spec.title, head);
    this.download(head);
    this.canvas = svg("svg", { role: "img", "aria-label": spec.title }, place);
    this.tip = html("div", "tip", "", place);
    this.tip.setAttribute("role", "status");
    this.tip.hidden = true;
    if (spec.note) html("div", "faint", spec.note, place);
    if (spec.series.length > 1 && spec.series.some((curve) => curve.region === null)) this.legend(); // the map has the regions
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", `Chart: ${spec.title}${spec.by ? "; arrow keys go through the evaluations" : ""}`);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("click", () => { if (this.at !== null) this.choose(this.at); });
    place.addEventListener("blur", () => this.leave());
    place.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  legend() {
    const legend = html("div", "legend", "", this.place);
    for (const curve of this.spec.series.filter((c) => c.region === null)) {
      const entry = html("span", "", "", legend);
      html("span", "swatch", "", entry).style.setProperty("--c", curve.color);
      entry.append(curve.line ? `${curve.label} (${curve.line})` : curve.label);
    }
  }

  // buttons that save what the chart shows
  download(head) {
    const { spec } = this, name = spec.title.replace(/[^A-Za-z0-9]+/g, "_").toLowerCase(), place = html("span", "saves", "", head);
    for (const [kind, make] of Object.entries(FILES)) {
      const button = html("button", "save", kind, place);
      button.type = "button";
      button.setAttribute("aria-label", `Download ${spec.title} as ${kind}`);
      button.addEventListener("click", async () => save(`${name}.${kind.toLowerCase()}`, await make(spec, this.canvas)));
    }
    addCopy(place, spec.title, () => valuesOf(spec, "\t"));
  }

  draw() {
    const { spec, canvas } = this;
    const width = Math.max(this.place.clientWidth, 200);
    const alone = !spec.by; // images that were compared, without epochs: the bars are all there is
    const bars = spec.series.filter((c) => alone || (c.region !== null && c.band));
    const height = bars.length ? Math.min(340, 0.5 * width + 120) : width > 480 ? 250 : 190;
    const slot = bars.length ? Math.min(alone ? 90 : 24, ((alone ? 0.75 : 0.3) * width) / bars.length) : 0;
    const left = 58, right = alone ? left : width - 12 - slot * bars.length - (slot ? 8 : 0), top = 8, bottom = height - 22;
    const end = alone ? left + 16 + slot * bars.length : right;
    const series = spec.kind === "stack" ? stacked(spec.series) : spec.series;
    const values = series.flatMap((c) => [...(c.top ?? c.values), ...(c.band ?? [])]).filter((v) => v !== null);
    const scale = scaleOf(spec, spec.rule ? [...values, spec.rule] : values);
    const first = spec.x[0], last = spec.x.at(-1);
    this.x = (v) => (last > first ? left + 4 + ((v - first) / (last - first)) * (right - left - 8) : (left + right) / 2);
    this.y = (v) => bottom - ((scale.place(v) - scale.low) / (scale.high - scale.low)) * (bottom - top);
    canvas.replaceChildren();
    canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    for (const tick of scale.ticks) {
      const y = this.y(tick);
      if (y < top - 1 || y > bottom + 1) continue;
      svg("line", { x1: left, x2: end, y1: y, y2: y, class: "rule" }, canvas);
      svg("text", { x: left - 5, y: y + 4, "text-anchor": "end" }, canvas).textContent = tickText(spec, tick);
    }
    if (spec.rule) svg("line", { x1: left, x2: end, y1: this.y(spec.rule), y2: this.y(spec.rule), class: "level" }, canvas);
    if (!alone) this.epochs(left, right, top, bottom, height);
    this.bands(series, left, end);
    if (!alone) this.curves(series);
    bars.forEach((curve, i) => this.bar(curve, right + 8 + (i + 0.5) * slot, slot));
    this.box = { left, right, top, bottom, width };
    this.shown = svg("g", {}, canvas);
    this.pointed = svg("g", {}, canvas);
    this.drawNow();
    this.regions.again();
    if (this.at !== null) this.cursor(this.at);
  }

  // the axis, and when there were alerts
  epochs(left, right, top, bottom, height) {
    const { spec, canvas } = this, first = spec.x[0], last = spec.x.at(-1);
    for (const tick of wholeTicks(first, last, (right - left) / 45)) {
      svg("line", { x1: this.x(tick), x2: this.x(tick), y1: bottom, y2: bottom + 4, class: "tick" }, canvas);
      svg("text", { x: this.x(tick), y: height - 5, "text-anchor": "middle" }, canvas).textContent = tick;
    }
    svg("text", { x: left - 5, y: height - 5, "text-anchor": "end" }, canvas).textContent = spec.by;
    for (const { x } of spec.alerts.filter((alert) => alert.x >= first && alert.x <= last)) {
      svg("line", { x1: this.x(x), x2: this.x(x), y1: top, y2: bottom, class: "alarm" }, canvas);
    }
  }

  tag(node, curve) {
    if (curve.region !== null) node.dataset.region = curve.region;
    node.style.setProperty("--c", curve.color);
    return node;
  }

  // of a lit region, or of a chart without regions: its baseline, across the chart
  bands(series, left, right) {
    for (const curve of series.filter((c) => c.band)) {
      const [low, , high] = curve.band, y = this.y(high);
      const box = { x: left, width: right - left, y, height: Math.max(this.y(low) - y, 1.5), class: "bar band" };
      const node = this.tag(svg("rect", box, this.canvas), curve);
      if (curve.region === null) node.classList.add("alone");
    }
  }

  curves(series) {
    for (const curve of series) {
      const at = (values) => this.spec.x.map((x, i) => [this.x(x), values[i] === null ? null : this.y(values[i])]);
      if (curve.top) {
        for (const run of unbroken(curve.top)) {
          const along = (points) => run.flatMap((i) => (run.length > 1 ? [points[i]] : [-4, 4].map((by) => [points[i][0] + by, points[i][1]])));
          const outline = [...along(at(curve.top)), ...along(at(curve.floor)).reverse()];
          this.tag(svg("path", { d: `${linePath(outline)}z`, class: "area" }, this.canvas), curve);
        }
        continue;
      }
      this.tag(svg("path", { d: linePath(at(curve.values)), class: `curve ${curve.line}`.trim() }, this.canvas), curve);
      if (this.spec.x.length > 60) continue;
      for (const [x, y] of at(curve.values)) {
        if (y !== null) this.tag(svg("circle", { cx: x, cy: y, r: 2.5, class: "dot" }, this.canvas), curve);
      }
    }
  }

  bar(curve, x, slot) {
    const group = this.tag(svg("g", {}, this.canvas), curve), latest = curve.values.findLast((v) => v !== null);
    if (curve.band) {
      const [low, median, high] = curve.band, y = this.y(high), wide = 0.8 * slot;
      svg("rect", { x: x - wide / 2, width: wide, y, height: Math.max(this.y(low) - y, 1.5), class: "bar" }, group);
      if (latest !== undefined) {
        svg("line", { x1: x, x2: x, y1: this.y(latest), y2: this.y(median), class: "curve" }, group);
      }
    }
    if (latest === undefined) return;
    svg("circle", { cx: x, cy: this.y(latest), r: Math.min(8, slot / 2), class: "disc" }, group);
    const ink = readableOn(curve.color);
    svg("text", { x, y: this.y(latest) + 4, style: `fill:${ink}` }, group).textContent = curve.region || "";
  }

  point(event) {
    const frame = this.canvas.getBoundingClientRect();
    const x = ((event.clientX - frame.left) * this.box.width) / frame.width, y = event.clientY - frame.top;
    const distances = this.spec.x.map((v) => Math.abs(this.x(v) - x));
    this.cursor(distances.indexOf(Math.min(...distances)), y);
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const last = this.spec.x.length - 1;
    const at = Math.min(last, Math.max(0, (this.at ?? this.now - by) + by));
    this.choose(at);
    this.cursor(at);
  }

  // what the slider of the page shows too
  choose(at) {
    if (this.spec.steps[at] !== null) this.showStep(this.spec.steps[at]);
  }

  // the last evaluation at a step or before it
  mark(step) {
    this.now = Math.max(0, this.spec.steps.findLastIndex((at) => (at ?? 0) <= step));
    this.drawNow();
  }

  drawNow() {
    const { spec, box, now } = this;
    if (!box) return;
    this.shown.replaceChildren();
    const said = spec.series.filter((c) => c.values[now] !== null).map((c) => `${c.label} ${valueText(spec, c.values[now])}`);
    const when = spec.by ? `, ${spec.by} ${spec.x[now]}` : "";
    this.canvas.setAttribute("aria-label", `${spec.title}${when}: ${said.join(", ")}`);
    if (!spec.by || spec.x.length < 2) return;
    const x = this.x(spec.x[now]);
    svg("line", { x1: x, x2: x, y1: box.top, y2: box.bottom, class: "now" }, this.shown);
  }

  // the values of one evaluation; at a height, also the region whose curve is nearest to it
  cursor(at, height) {
    this.at = at;
    const { spec, box } = this, x = this.x(spec.x[at]);
    this.pointed.replaceChildren();
    if (spec.by) svg("line", { x1: x, x2: x, y1: box.top, y2: box.bottom, class: "cursor" }, this.pointed);
    const known = spec.series.filter((c) => c.values[at] !== null);
    const lit = height === undefined ? null : this.nearest(at, height);
    this.regions.show(lit);
    this.tip.replaceChildren();
    if (spec.by) html("div", "faint", `${spec.by} ${spec.x[at]}`, this.tip);
    for (const curve of [...known].sort((a, b) => b.values[at] - a.values[at])) {
      const row = html("div", lit !== null && curve.region === lit ? "lit" : "", "", this.tip);
      const name = html("span", "", "", row);
      html("span", "swatch", "", name).style.setProperty("--c", curve.color);
      name.append(curve.label);
      html("span", "", valueText(spec, curve.values[at]), row);
    }
    for (const alert of spec.alerts.filter((a) => a.x === spec.x[at])) html("div", "said", alert.text, this.tip);
    this.tip.hidden = false;
    const room = this.place.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x > box.width / 2 ? x - this.tip.offsetWidth - 12 : x + 12))}px`;
  }

  nearest(at, height) {
    const series = this.spec.kind === "stack" ? stacked(this.spec.series) : this.spec.series;
    if (this.spec.kind === "stack") {
      const inside = series.find((c) => c.top[at] !== null && height <= this.y(c.floor[at]) && height >= this.y(c.top[at]));
      return inside ? inside.region : null;
    }
    const near = series
      .filter((c) => c.region !== null && c.values[at] !== null)
      .map((c) => [Math.abs(this.y(c.values[at]) - height), c.region])
      .sort((a, b) => a[0] - b[0]);
    return near.length && near[0][0] < 20 ? near[0][1] : null;
  }

  leave() {
    this.at = null;
    this.tip.hidden = true;
    this.pointed?.replaceChildren();
    this.regions.show(null);
  }
}
