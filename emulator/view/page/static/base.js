// What charts share: colours, units, axes. All scripts become one function of the page (render.py).

// Draws into a width, by kind: (data, width, label) -> SVG. Colours are variables of the style sheet, so that light and
// dark need no drawing.
const charts = {};

const colour = (name) => `var(--${name}, var(--other))`;
const QUIET = "var(--quiet)";
const TIMES = [
  ["ps", 1],
  ["ns", 1e3],
  ["µs", 1e6],
  ["ms", 1e9],
  ["s", 1e12],
  ["min", 6e13],
  ["h", 3.6e15],
];
const MIB = 2 ** 20;
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// The largest unit of which the longest time holds at least two, as [name, ps].
const timeUnit = (longestPs) => TIMES.findLast(([, ps]) => longestPs >= 2 * ps) ?? TIMES[0];
const timeText = (ps) => {
  const [unit, size] = TIMES.findLast(([, each]) => ps >= each) ?? TIMES[0];
  return `${d3.format(".3~r")(ps / size)} ${unit}`;
};
const percent = (share) => `${d3.format(".1f")(100 * share)} %`;
const power = (exponent) =>
  `2${exponent < 0 ? "⁻" : ""}${[...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[digit]).join("")}`;

// Whole numbers from 0 to below `count`, as many as there is room for.
const wholeTicks = (count, width, each = 34) => {
  const step = Math.max(1, Math.ceil((count * each) / width));
  return d3.range(0, count, step);
};

// 1, 2 and 5 times powers of ten; the powers alone where that would be many.
function roundRates(least, most) {
  const powers = d3.range(Math.floor(Math.log10(least)), Math.ceil(Math.log10(most)) + 1);
  const steps = most / least > 300 ? [1] : [1, 2, 5];
  return powers.flatMap((power) => steps.map((step) => step * 10 ** power)).filter((d) => d >= least && d <= most);
}

// The range of an axis of devices or links; where they are few, with room beside them, so that bars are not too wide.
const places = (count) => {
  const beside = Math.max(0, 5 - count) / 2 + 0.5;
  return [-beside, count - 1 + beside];
};

// The range of some values, of which some may be no numbers, and at least `least` wide.
function spread(values, least) {
  const [low = 0, high = 0] = d3.extent(values.filter(Number.isFinite));
  const more = Math.max(0, least - (high - low)) / 2;
  return [low - more, high + more];
}

// Dashes with which lines that coincide show in turn; none for a line that no other one hides. `key` says what a line is.
function apart(lines, key) {
  const keys = lines.map(key);
  return keys.map((own, i) => {
    const before = keys.slice(0, i).filter((other) => other === own).length;
    const count = keys.filter((other) => other === own).length;
    return count < 2 ? {} : { strokeDasharray: `6 ${6 * (count - 1)}`, strokeDashoffset: -6 * before };
  });
}

const plot = (width, height, label, options) =>
  Plot.plot({
    width,
    height,
    marginLeft: 48,
    marginRight: 12,
    marginTop: 22,
    marginBottom: 36,
    ariaLabel: label,
    style: { fontSize: "12px", fontFamily: "inherit", background: "none", color: "var(--ink)" },
    ...options,
  });
const grid = () => Plot.gridY({ stroke: "var(--line)", strokeOpacity: 1 });
const TIP = { fontSize: 12, lineHeight: 1.3, lineWidth: 34, stroke: QUIET };
const tip = (data, options) => Plot.tip(data, { ...TIP, ...options });
const axes = { x: { labelAnchor: "center", labelArrow: "none" }, y: { labelArrow: "none" } };
