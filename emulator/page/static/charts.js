"use strict";

// Draws every figure into the width that it has, and again when that changes. Colours are variables of the style sheet,
// so that light and dark need no drawing.
(() => {
  const colour = (name) => `var(--${name}, var(--other))`;
  const QUIET = "var(--quiet)";
  const TIMES = [["ps", 1], ["ns", 1e3], ["µs", 1e6], ["ms", 1e9], ["s", 1e12], ["min", 6e13], ["h", 3.6e15]];
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

  // The range of some values, of which some may be no numbers, and at least `least` wide.
  function spread(values, least) {
    const [low = 0, high = 0] = d3.extent(values.filter(Number.isFinite));
    const more = Math.max(0, least - (high - low)) / 2;
    return [low - more, high + more];
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
  const tip = (data, options) => Plot.tip(data, { fontSize: 12, lineHeight: 1.3, ...options });
  const axes = { x: { labelAnchor: "center", labelArrow: "none" }, y: { labelArrow: "none" } };

  const charts = {
    // Lines over epochs or virtual time.
    curves(data, width, label) {
      const byTime = data.over === "virtual_time_ps";
      const isShare = data.measure === "accuracy";
      const longest = d3.max(data.curves, (curve) => d3.max(curve.x));
      const [unit, size] = byTime ? timeUnit(longest) : ["epoch", 1];
      const points = data.curves.flatMap((curve) =>
        curve.x.map((x, i) => ({ x: x / size, y: curve.y[i] === null ? NaN : curve.y[i] * (isShare ? 100 : 1), curve })),
      );
      const end = longest / size;
      const said = (d) => {
        const at = byTime ? timeText(d.x * size) : `epoch ${d.x}`;
        return `${d.curve.run}, ${d.curve.kind}\n${at}: ${isShare ? percent(d.y / 100) : d3.format(".4f")(d.y)}`;
      };
      const epochTicks = d3.ticks(1, end, Math.min(end, width / 55)).filter(Number.isInteger);
      return plot(width, 260, label, {
        x: {
          ...axes.x,
          label: byTime ? `virtual time, ${unit}` : "epoch",
          domain: byTime ? [0, end * 1.02] : [Math.min(1, end) - (end === 1 ? 0.5 : 0), end + (end === 1 ? 0.5 : 0)],
          ...(byTime ? { ticks: Math.max(3, width / 90) } : { ticks: epochTicks, tickFormat: "d" }),
        },
        y: { ...axes.y, label: isShare ? "accuracy, %" : "loss", domain: spread(points.map((d) => d.y), isShare ? 2 : 0.05), nice: true, ticks: 6 },
        marks: [
          grid(),
          ...data.curves.map((curve) =>
            Plot.line(points.filter((d) => d.curve === curve), {
              x: "x",
              y: "y",
              stroke: colour(curve.colour),
              strokeWidth: 2,
              strokeDasharray: curve.dashed ? "4 4" : undefined,
            }),
          ),
          Plot.dot(points.filter((d) => !d.curve.dashed), {
            x: "x", y: "y", r: d3.max(data.curves, (curve) => curve.x.length) > 40 ? 0.1 : 3, fill: (d) => colour(d.curve.colour),
          }),
          tip(points, Plot.pointer({ x: "x", y: "y", title: said })),
        ],
      });
    },

    // Busy shares: devices beside one another where their numbers have room, otherwise below one another.
    heat(data, width, label) {
      const devices = d3.max(data.cells, (cell) => cell.device) + 1;
      const across = (width - 80) / devices >= 40;
      const ofDevice = { label: "device", tickSize: 0, padding: 0.04, domain: d3.range(devices) };
      const ofColumn = { label: null, tickSize: 0, padding: 0.04, domain: data.columns };
      const [x, y] = across ? ["device", "of"] : ["of", "device"];
      const filled = data.cells.filter((cell) => cell.share !== null);
      const row = across ? 34 : devices > 40 ? 18 : 26;
      return plot(width, (across ? data.columns.length : devices) * row + 32, label, {
        marginLeft: across ? 76 : 40,
        marginTop: 26,
        marginBottom: 6,
        marginRight: 2,
        x: { axis: "top", ...(across ? { ...ofDevice, labelAnchor: "left", labelArrow: "none" } : ofColumn) },
        y: across ? ofColumn : { ...ofDevice, labelArrow: "none" },
        marks: [
          Plot.cell(data.cells, { x, y, fill: "var(--surface)", stroke: "var(--line)", strokeWidth: 0.5, rx: 2 }),
          Plot.cell(filled, {
            x, y, rx: 2,
            fill: (d) => (d.of === "idle" ? "var(--idle)" : "var(--heat)"),
            fillOpacity: (d) => d.share,
            title: (d) => `device ${d.device}, ${d.of}: ${percent(d.share)}`,
            tip: { fontSize: 12 },
          }),
          Plot.text(data.cells, {
            x, y,
            text: (d) => (d.share === null ? "–" : d3.format(".1f")(100 * d.share)),
            fill: "var(--ink)",
            fontVariant: "tabular-nums",
            fontSize: !across && width < 420 ? 11 : 12,
            pointerEvents: "none",
          }),
        ],
      });
    },

    // Rates that engines, links and exchanges allow, on a logarithmic axis, and those reached.
    roofs(data, width, label) {
      const apart = 0.56 / Math.max(1, data.kinds.length - 1);
      const place = (d) => (Number.isInteger(d.device) ? d.device - 0.28 + apart * data.kinds.indexOf(d.kind) : d.device);
      const lines = [data.steady, ...(data.reached === null ? [] : [data.reached])];
      const least = d3.min([...data.points.map((d) => d.rate), ...lines]);
      const most = d3.max(data.points, (d) => d.rate);
      const narrow = width < 500;
      const dots = (points, options) =>
        Plot.dot(points, { x: place, y: "rate", fill: (d) => colour(`kind-${d.kind}`), stroke: "var(--page)", strokeWidth: 0.6, ...options });
      const radius = data.devices > 30 || narrow ? 3.2 : 4.5;
      const ticks = roundRates(least / 1.5, most * 1.3);
      return plot(width, 320, label, {
        marginLeft: 52,
        x: { ...axes.x, label: "device", domain: [-0.5, data.devices - 0.5], ticks: wholeTicks(data.devices, width), tickFormat: "d" },
        y: { ...axes.y, type: "log", domain: [least / 1.5, most * 1.3], label: "images/s", axis: null },
        marks: [
          Plot.gridY(ticks, { stroke: "var(--line)", strokeOpacity: 1 }),
          Plot.axisY(ticks, { label: "images/s", labelArrow: "none", text: (rate) => d3.format("~s")(rate) }),
          ...lines.map((rate, i) => Plot.ruleY([rate], { stroke: "var(--limit)", strokeWidth: 1.3, strokeDasharray: i ? "5 4" : undefined })),
          dots(data.points.filter((d) => d.kind !== "link"), { r: radius }),
          dots(data.points.filter((d) => d.kind === "link" && !d.backward), { symbol: "triangle", rotate: 90, r: radius, dx: radius + 1 }),
          dots(data.points.filter((d) => d.kind === "link" && d.backward), { symbol: "triangle", rotate: -90, r: radius, dx: -radius - 1 }),
          tip(data.points, Plot.pointer({ x: place, y: "rate", title: (d) => `${d.name}\nwould allow ${d3.format(",.0f")(d.rate)} images/s` })),
        ],
      });
    },

    // Demand on links, a bar for each direction.
    demand(data, width, label) {
      const bars = data.bars.map((bar) => ({ ...bar, x1: bar.link + (bar.right ? -0.38 : 0.01), x2: bar.link + (bar.right ? -0.01 : 0.38) }));
      const links = d3.max(bars, (d) => d.link) + 1;
      return plot(width, 250, label, {
        x: {
          ...axes.x,
          label: "between devices",
          domain: [-0.5, links - 0.5],
          ticks: wholeTicks(links, width, 52),
          tickFormat: (d) => `${d}–${d + 1}`,
        },
        ...limited(bars, "Gb/s", "demand", "bandwidth", (rate) => `${d3.format("~r")(rate)} Gb/s`, [
          Plot.rect(bars, { x1: "x1", x2: "x2", y1: 0, y2: "demand", fill: (d) => colour(d.right ? "link-right" : "link-left"), rx: 1 }),
          tip(bars, Plot.pointerX({
            x: (d) => (d.x1 + d.x2) / 2,
            y: "demand",
            title: (d) => `${d.name}: ${d3.format(".2f")(d.demand)} Gb/s\n${percent(d.demand / d.bandwidth)} of ${d3.format("~r")(d.bandwidth)} Gb/s`,
          })),
        ]),
      });
    },

    // On-chip memory, stacked, against that of the board.
    memory(data, width, label) {
      const bars = data.devices.flatMap((device) => {
        let below = 0;
        return data.parts.map((part) => {
          const y1 = below;
          below += (device.bytes[part.name] ?? 0) / MIB;
          return { part, device: device.device, x1: device.device - 0.36, x2: device.device + 0.36, y1, y2: below };
        });
      });
      const sums = data.devices.map((device) => ({
        ...device,
        x1: device.device - 0.44,
        x2: device.device + 0.44,
        sum: d3.sum(data.parts, (part) => device.bytes[part.name] ?? 0) / MIB,
        limit: device.board / MIB,
      }));
      const said = (d) =>
        [`device ${d.device}: ${percent(d.sum / d.limit)} of ${d3.format(".3~r")(d.limit)} MiB`]
          .concat(data.parts.map((part) => `${part.name} ${d3.format(".3~r")((d.bytes[part.name] ?? 0) / MIB)} MiB`))
          .concat(d.off_chip ? [`off chip ${d3.format(".3~r")(d.off_chip / MIB)} MiB`] : [])
          .join("\n");
      return plot(width, 270, label, {
        x: { ...axes.x, label: "device", domain: [-0.5, sums.length - 0.5], ticks: wholeTicks(sums.length, width), tickFormat: "d" },
        ...limited(sums, "MiB", "sum", "limit", (size) => `${d3.format(".3~r")(size)} MiB on board`, [
          Plot.rect(bars.filter((d) => d.y2 > d.y1), { x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: (d) => colour(d.part.colour) }),
          tip(sums, Plot.pointerX({ x: "device", y: "sum", title: said })),
        ]),
      });
    },

    // Shares of powers of two.
    histogram(data, width, label) {
      const bins = data.curves.map((curve) => curve.shares.map((share, i) => ({ e: data.least + i, share: 100 * share })));
      const seen = bins.flat().filter((d) => d.share > 0.02).map((d) => d.e);
      const [first, last] = [Math.min(d3.min(seen) ?? -1, data.bound ?? 0) - 1, Math.max(d3.max(seen) ?? 0, data.bound ?? -40) + 2];
      const within = (of) => of.filter((d) => d.e >= first && d.e < last);
      const steps = (of) => within(of).flatMap((d) => [{ x: d.e, y: d.share }, { x: d.e + 1, y: d.share }]);
      const solid = bins.at(-1);
      return plot(width, 260, label, {
        x: {
          ...axes.x,
          label: `magnitude of a ${data.of}`,
          domain: [first, last],
          ticks: d3.ticks(first, last, width / 55).filter(Number.isInteger),
          tickFormat: power,
        },
        y: { ...axes.y, label: "share, %", nice: true, ticks: 5 },
        marks: [
          grid(),
          Plot.rect(within(solid).filter((d) => d.share > 0), {
            x1: "e", x2: (d) => d.e + 1, y1: 0, y2: "share", fill: colour(data.curves.at(-1).colour), fillOpacity: 0.75, insetLeft: 0.5, insetRight: 0.5,
          }),
          ...bins.slice(0, -1).map((of, i) => Plot.line(steps(of), { x: "x", y: "y", stroke: colour(data.curves[i].colour), strokeWidth: 2 })),
          ...(data.bound === null
            ? []
            : [
                Plot.ruleX([data.bound], { stroke: "var(--limit)", strokeDasharray: "5 4" }),
                Plot.text([data.bound], { x: (d) => d, frameAnchor: "top", dx: 6, dy: -12, textAnchor: "start", text: (d) => `error bound ${power(d)}`, fill: "var(--ink)" }),
              ]),
          tip(within(solid), Plot.pointerX({
            x: (d) => d.e + 0.5, y: "share", title: (d) => `${power(d.e)} to ${power(d.e + 1)}: ${d3.format(".2f")(d.share)} %`,
          })),
        ],
      });
    },

    // The widths of values that a codec has sent, by epoch.
    widths(data, width, label) {
      const bars = data.epochs.flatMap((epoch) => {
        const all = d3.sum(epoch.values);
        let before = 0;
        return data.widths.map((bits, i) => {
          const x1 = before;
          before += (100 * epoch.values[i]) / all;
          return { epoch: epoch.epoch, bits, x1, x2: before };
        });
      });
      const many = data.epochs.length > 12;
      const row = many ? Math.max(4, 220 / data.epochs.length) : 28;
      return plot(width, data.epochs.length * row + 58, label, {
        marginRight: many ? 12 : 58,
        x: { ...axes.x, label: "values, %", domain: [0, 100], ticks: 5 },
        y: { label: "epoch", labelArrow: "none", tickSize: 0, padding: many ? 0.05 : 0.2,
             ticks: data.epochs.map((d) => d.epoch).filter((_, i) => i % Math.ceil(data.epochs.length / 12) === 0) },
        marks: [
          Plot.barX(bars.filter((d) => d.x2 > d.x1), {
            x1: "x1", x2: "x2", y: "epoch", fill: (d) => colour(`width-${d.bits}`),
            title: (d) => `epoch ${d.epoch}: ${d3.format(".1f")(d.x2 - d.x1)} % in ${d.bits} bits`, tip: { fontSize: 12 },
          }),
          ...(many ? [] : [Plot.text(data.epochs, { x: 100, y: "epoch", dx: 8, textAnchor: "start", text: (d) => `${d3.format(".2f")(d.ratio)} : 1`, fill: "var(--ink)" })]),
        ],
      });
    },

    // Bars of engines over time: a band for each device, in it a lane for each kind, and in that one for each slice.
    gantt(data, width, label) {
      const [unit, size] = timeUnit(data.window_ps);
      const count = d3.rollup(data.lanes, (of) => of.length, (lane) => lane.device, (lane) => lane.kind);
      const kinds = data.kinds.length;
      const places = data.lanes.map((lane) => {
        const top = lane.device + 0.06 + (0.88 * data.kinds.indexOf(lane.kind)) / kinds;
        const high = (0.88 / kinds) * 0.92;
        const share = high / count.get(lane.device).get(lane.kind);
        return { y1: top + share * lane.number, y2: top + share * (lane.number + 1) };
      });
      const [lanes, samples, starts, ends] = data.bars;
      const bars = lanes.map((lane, i) => ({
        lane: data.lanes[lane], sample: samples[i], ...places[lane], x1: starts[i] / size, x2: ends[i] / size,
      }));
      const band = Math.min(64, Math.max(22, 620 / data.devices));
      const said = (d) =>
        `${d.lane.kind} of ${d.lane.name}, device ${d.lane.device}` +
        (d.sample < 0 ? "" : `, sample ${d.sample + 1}`) +
        `\n${timeText(d.x1 * size)} to ${timeText(d.x2 * size)}`;
      return plot(width, data.devices * band + 60, label, {
        marginLeft: 34,
        x: { ...axes.x, label: `virtual time, ${unit}`, domain: [0, data.window_ps / size], ticks: Math.max(3, width / 90) },
        y: { ...axes.y, label: "device", domain: [data.devices, 0], ticks: wholeTicks(data.devices, data.devices * band, 18).map((d) => d + 0.5), tickFormat: (d) => Math.floor(d), tickSize: 0 },
        marks: [
          Plot.ruleY(d3.range(data.devices + 1), { stroke: "var(--line)" }),
          Plot.rect(bars, {
            x1: "x1", x2: "x2", y1: "y1", y2: "y2",
            fill: (d) => colour(`kind-${d.lane.kind}`),
            fillOpacity: (d) => (d.sample % 2 === 1 ? 0.5 : 0.95),
          }),
          tip(bars, Plot.pointer({ x: (d) => (d.x1 + d.x2) / 2, y: (d) => (d.y1 + d.y2) / 2, title: said })),
        ],
      });
    },
  };

  // The vertical axis and the marks of bars with a limit above each; where all limits are far away, they are told in words.
  function limited(bars, unit, height, limit, text, marks) {
    const highest = d3.max(bars, (d) => d[height]);
    const least = d3.min(bars, (d) => d[limit]);
    const far = highest < 0.1 * least;
    const top = far ? highest : Math.max(highest, d3.max(bars, (d) => d[limit]));
    return {
      y: { ...axes.y, label: unit, domain: [0, 1.06 * top || 1] },
      marks: [
        grid(),
        ...marks.slice(0, -1),
        ...(far
          ? [Plot.text([0], { frameAnchor: "top-right", dy: -16, text: () => `${text(least)}, far above this scale`, fill: QUIET })]
          : [Plot.ruleY(bars, { x1: "x1", x2: "x2", y: limit, stroke: "var(--limit)", strokeWidth: 1.5 })]),
        Plot.ruleY([0], { stroke: QUIET }),
        ...marks.slice(-1),
      ],
    };
  }

  function draw(figure, width) {
    const place = figure.querySelector(".plot");
    const label = figure.querySelector("figcaption").textContent;
    try {
      const drawn = charts[figure.dataset.kind](JSON.parse(figure.querySelector("script").textContent), width, label);
      drawn.setAttribute("role", "img");
      place.replaceChildren(drawn);
    } catch (error) {
      const failed = document.createElement("p");
      failed.className = "failed";
      failed.textContent = `This chart could not be drawn: ${error.message}`;
      place.replaceChildren(failed);
      console.error(error);
    }
  }

  const widths = new WeakMap();
  const observer = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = Math.floor(contentRect.width);
      if (width > 0 && widths.get(target) !== width) {
        widths.set(target, width);
        draw(target, width);
      }
    }
  });
  document.querySelectorAll("figure[data-kind]").forEach((figure) => observer.observe(figure));
})();
