// The axes of charts, and their ticks.
const FINEST = 1e-6; // float32 sums cannot tell a CMS above 1 - 1e-6 from 1

function linearScale(values) {
  let low = Math.min(...values), high = Math.max(...values);
  const fromZero = low >= 0 && low < 0.5 * high; // what is far from zero would be flat beside it
  if (fromZero) low = 0;
  if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { high += low ? 0.5 : 1; low -= low ? 0.5 : 0; }
  const margin = 0.06 * (high - low);
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-9 * step; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return { low: low === 0 ? 0 : low - margin, high: high + margin, place: (v) => v, ticks };
}

// the distance to 1 on a log scale: 0.9, 0.99 and 0.999 are equal steps
function cosineScale(values) {
  const place = (v) => -Math.log10(Math.max(1 - v, FINEST));
  const places = values.map(place);
  const low = Math.min(...places) - 0.1, high = Math.max(...places, low + 0.9) + 0.1;
  const all = [];
  for (let power = 0; power <= 6; power++) for (const step of [1, 0.5, 0.2]) all.push(1 - step * 10 ** -power);
  let ticks = all.filter((v) => place(v) > low && place(v) < high);
  if (ticks.length > 8) ticks = ticks.filter((v, i) => all.indexOf(v) % 3 === 0);
  return { low, high, place, ticks: ticks.map((v) => Number(v.toFixed(7))) };
}

// 1, 2 and 5 times the powers of 10, or where these are too many the powers alone; what is not above 0 is at the bottom
function logScale(values) {
  const above = values.filter((v) => v > 0), least = above.length ? Math.min(...above) : 0.1;
  const place = (v) => Math.log10(Math.max(v, least));
  const low = place(least) - 0.1, high = Math.max(place(Math.max(least, ...above)), low + 0.7) + 0.1;
  const all = [];
  for (let power = Math.floor(low); power <= high; power++) for (const step of [1, 2, 5]) all.push(step * 10 ** power);
  let ticks = all.filter((v) => place(v) > low && Math.log10(v) > low && Math.log10(v) < high);
  if (ticks.length > 7) ticks = ticks.filter((v, i) => all.indexOf(v) % 3 === 0);
  return { low, high, place, ticks: ticks.map((v) => Number(v.toPrecision(12))) };
}

// as a log scale on either side of 0, and linear between
function signedScale(values) {
  const place = (v) => Math.sign(v) * Math.log10(1 + Math.abs(v));
  const low = Math.min(0, ...values.map(place)) - 0.1, high = Math.max(0.3, ...values.map(place)) + 0.1;
  const all = [0, 2, 10, 100, 1000, 10000].flatMap((v) => (v ? [-v, v] : [v]));
  return { low, high, place, ticks: all.filter((v) => place(v) > low && place(v) < high) };
}

const cosineTick = (tick) => (1 - tick < 1.5 * FINEST ? "1" : String(tick));

function wholeTicks(first, last, count) {
  const rough = Math.max((last - first) / count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= rough);
  const ticks = [];
  for (let tick = Math.ceil(first / step) * step; tick <= last; tick += step) ticks.push(tick);
  return ticks;
}

const SCALES = { cms: cosineScale, log: logScale, signed: signedScale, linear: linearScale };
const STACK = { low: 0, place: (v) => v, ticks: [0, 0.25, 0.5, 0.75, 1] };
const ALONE = { cms: [0.9], log: [1], signed: [0], linear: [0] }; // what an axis shows without a value

function scaleOf(spec, values) {
  if (spec.kind === "stack") return { ...STACK, high: Math.max(...values, 0.01) };
  return SCALES[spec.scale](values.length ? values : ALONE[spec.scale]);
}

function tickText(spec, tick) {
  if (spec.kind === "stack") return `${100 * tick} %`;
  return spec.scale === "cms" ? cosineTick(tick) : shown(tick);
}

function valueText(spec, value) {
  if (spec.kind === "stack") return `${(100 * value).toFixed(1)} %`;
  return spec.scale === "cms" ? shownCms(value) : shown(value);
}
