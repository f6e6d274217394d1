// The vertical axis and the marks of bars with a limit above each; where all limits are far away, they are given in words.
function limited(bars, unit, height, limit, text, marks) {
  const highest = d3.max(bars, (d) => d[height]);
  const least = d3.min(bars, (d) => d[limit]);
  const far = highest < 0.1 * least;
  const top = far
    ? highest
    : Math.max(
        highest,
        d3.max(bars, (d) => d[limit]),
      );
  return {
    y: { ...axes.y, label: unit, domain: [0, 1.06 * top || 1] },
    marks: [
      grid(),
      ...marks.slice(0, -1),
      ...(far
        ? [
            Plot.text([0], {
              frameAnchor: "top-right",
              dy: -16,
              text: () => `${text(least)}, far above this scale`,
              fill: QUIET,
            }),
          ]
        : [Plot.ruleY(bars, { x1: "x1", x2: "x2", y: limit, stroke: "var(--limit)", strokeWidth: 1.5 })]),
      Plot.ruleY([0], { stroke: QUIET }),
      ...marks.slice(-1),
    ],
  };
}

// Demand on links, a bar for each direction.
charts.demand = (data, width, label) => {
  const bars = data.bars.map((bar) => ({
    ...bar,
    x1: bar.link + (bar.right ? -0.38 : 0.01),
    x2: bar.link + (bar.right ? -0.01 : 0.38),
  }));
  const links = d3.max(bars, (d) => d.link) + 1;
  const ends = new Map(bars.map((bar) => [bar.link, bar.ends]));
  return plot(width, 250, label, {
    x: {
      ...axes.x,
      label: "between devices",
      domain: places(links),
      ticks: wholeTicks(links, width, 52),
      tickFormat: (d) => ends.get(d) ?? "",
    },
    ...limited(bars, "Gb/s", "demand", "bandwidth", (rate) => `${d3.format("~r")(rate)} Gb/s`, [
      Plot.rect(bars, {
        x1: "x1",
        x2: "x2",
        y1: 0,
        y2: "demand",
        fill: (d) => colour(d.right ? "link-right" : "link-left"),
        rx: 1,
      }),
      tip(
        bars,
        Plot.pointerX({
          maxRadius: Infinity,
          x: (d) => (d.x1 + d.x2) / 2,
          y: "demand",
          title: (d) =>
            `${d.name}: ${d3.format(".2f")(d.demand)} Gb/s\n${percent(d.demand / d.bandwidth)} of ${d3.format("~r")(d.bandwidth)} Gb/s`,
        }),
      ),
    ]),
  });
};

// On-chip memory, stacked, against that of the board.
charts.memory = (data, width, label) => {
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
    x: {
      ...axes.x,
      label: "device",
      domain: places(sums.length),
      ticks: wholeTicks(sums.length, width),
      tickFormat: "d",
    },
    ...limited(sums, "MiB", "sum", "limit", (size) => `${d3.format(".3~r")(size)} MiB on board`, [
      Plot.rect(
        bars.filter((d) => d.y2 > d.y1),
        { x1: "x1", x2: "x2", y1: "y1", y2: "y2", fill: (d) => colour(d.part.colour) },
      ),
      tip(sums, Plot.pointerX({ maxRadius: Infinity, x: "device", y: "sum", title: said })),
    ]),
  });
};
