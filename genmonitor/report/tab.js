// One or two panes, each with the page of a run in a frame and, above it, which run that is.
const SECONDS_BETWEEN_LOOKS = 5;
const KEPT = "genmonitor runs";

function element(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

// TensorBoard says on its body which theme it wears; frames take over the color scheme of what they are in.
function followTheme() {
  const above = window.parent.document.body;
  const wear = () => document.documentElement.classList.toggle("dark", above.classList.contains("dark-mode"));
  new MutationObserver(wear).observe(above, { attributeFilter: ["class"] });
  wear();
}

class Pane {
  constructor(changed, ...buttons) {
    this.select = element("select", { onchange: changed });
    this.written = element("output", {});
    this.link = element("a", { textContent: "Open alone", target: "_blank", rel: "noopener" });
    this.frame = element("iframe", { onload: () => { this.loaded = true; } });
    const bar = element("div", { className: "bar" }, element("label", {}, "Run", this.select), this.written, this.link);
    bar.append(...buttons);
    this.node = element("section", { className: "pane" }, bar, this.frame);
  }

  offer(names) {
    if ([...this.select.options].map((option) => option.value).join("\n") === names.join("\n")) return;
    this.select.replaceChildren(...names.map((name) => new Option(name, name)));
  }

  show({ name, written }) {
    this.select.value = name;
    this.written.textContent = `written at ${new Date(1000 * written).toLocaleTimeString()}`;
    if (this.name !== name) {
      const address = `page?run=${encodeURIComponent(name)}`;
      this.link.href = this.frame.src = address;
      this.frame.title = `Report of ${name}`;
      [this.name, this.shown, this.loaded] = [name, written, false];
    } else if (this.shown !== written && this.loaded) {
      [this.shown, this.loaded] = [written, false];
      this.frame.contentWindow.postMessage("reload", "*"); // its origin is opaque
    }
  }
}

class Tab {
  constructor() {
    this.empty = element("p", { className: "empty", hidden: true });
    this.add = element("button", { textContent: "Compare with another run", onclick: () => this.pick(this.first.name, true) });
    const close = element("button", { textContent: "Close", onclick: () => this.pick(this.first.name, false) });
    const changed = () => this.pick(this.first.select.value, !this.second.node.hidden && this.second.select.value);
    this.first = new Pane(changed, this.add);
    this.second = new Pane(changed, close);
    const heading = element("h1", { className: "unseen", textContent: "Reports of the runs" });
    document.body.append(element("main", {}, heading, this.empty, this.first.node, this.second.node));
    this.runs = [];
    this.picked = JSON.parse(sessionStorage.getItem(KEPT)) ?? [null, false];
  }

  // the second is a run's name, true for whichever is the latest, or false for none
  pick(first, second) {
    this.picked = [first, second];
    this.draw();
  }

  async look() {
    try {
      const { runs, logdir } = await (await fetch("runs")).json();
      this.runs = runs;
      this.empty.textContent = `There is no report below ${logdir || "the log directory"} yet. A monitor writes one at each `
        + "evaluation: <run>/genmonitor/report.html. This tab looks for it every few seconds.";
      this.draw();
    } catch (error) { // TensorBoard was stopped: what is shown stays, and the next look may find it again
      this.first.written.textContent = "no answer from TensorBoard";
    }
  }

  draw() {
    const names = this.runs.map((run) => run.name).sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    this.empty.hidden = names.length > 0;
    if (!names.length) return;
    const named = (name) => this.runs.find((run) => run.name === name);
    const latest = (runs) => runs.reduce((a, b) => (b.written > a.written ? b : a));
    const first = named(this.picked[0]) ?? latest(this.runs);
    const others = this.runs.filter((run) => run !== first);
    const second = this.picked[1] && others.length ? named(this.picked[1]) ?? latest(others) : null;
    for (const pane of [this.first, this.second]) pane.offer(names);
    this.first.show(first);
    if (second) this.second.show(second);
    this.second.node.hidden = !second;
    this.add.hidden = Boolean(second) || !others.length;
    this.picked = [first.name, second ? second.name : false];
    sessionStorage.setItem(KEPT, JSON.stringify(this.picked));
  }
}

export async function render() {
  document.documentElement.lang = "en";
  document.title = "genmonitor";
  document.head.append(element("link", { rel: "stylesheet", href: "tab.css" }));
  followTheme();
  const tab = new Tab();
  await tab.look();
  // neither while the browser shows another page nor while TensorBoard shows another tab
  setInterval(() => { if (!document.hidden && window.innerWidth) tab.look(); }, 1000 * SECONDS_BETWEEN_LOOKS);
}
