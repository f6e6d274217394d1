// Shares of powers of two.
charts.histogram = (data, width, label) => {
  const bins = data.curves.map((curve) => curve.shares.map((share, i) => ({ e: data.least + i, share: 100 * share })));
  const seen = bins
    .flat()
    .filter((d) => d.share > 0.02)
    .map((d) => d.e);
  const [first, last] = [
    Math.min(d3.min(seen) ?? -1, data.bound ?? 0) - 1,
    Math.max(d3.max(seen) ?? 0, data.bound ?? -40) + 2,
  ];
  const within = (of) => of.filter((d) => d.e >= first && d.e < last);
  const steps = (of) =>
    within(of).flatMap((d) => [
      { x: d.e, y: d.share },
      { x: d.e + 1, y: d.share },
    ]);
  const solid = bins.at(-1);
  return plot(width, 260, label, {
    x: {
      ...axes.x,
      label: `magnitude of a ${data.of}, log scale`,
      domain: [first, last],
      ticks: d3.ticks(first, last, width / 55).filter(Number.isInteger),
      tickFormat: power,
    },
    y: { ...axes.y, label: "share, %", nice: true, ticks: 5 },
    marks: [
      grid(),
      Plot.rect(
        within(solid).filter((d) => d.share > 0),
        {
          x1: "e",
          x2: (d) => d.e + 1,
          y1: 0,
          y2: "share",
          fill: colour(data.curves.at(-1).colour),
          fillOpacity: 0.75,
          insetLeft: 0.5,
          insetRight: 0.5,
        },
      ),
      ...bins
        .slice(0, -1)
        .map((of, i) =>
          Plot.line(steps(of), { x: "x", y: "y", stroke: colour(data.curves[i].colour), strokeWidth: 2 }),
        ),
      ...(data.bound === null
        ? []
        : [
            Plot.ruleX([data.bound], { stroke: "var(--limit)", strokeDasharray: "5 4" }),
            Plot.text([data.bound], {
              x: (d) => d,
              frameAnchor: "top",
              dx: 6,
              dy: -12,
              textAnchor: "start",
              text: (d) => `error bound ${power(d)}`,
              fill: "var(--ink)",
            }),
          ]),
      tip(
        within(solid),
        Plot.pointerX({
          maxRadius: Infinity,
          x: (d) => d.e + 0.5,
          y: "share",
          title: (d) => `${power(d.e)} to ${power(d.e + 1)}: ${d3.format(".2f")(d.share)} %`,
        }),
      ),
    ],
  });
};

// The widths of values that a codec has sent, by epoch.
charts.widths = (data, width, label) => {
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
    y: {
      label: "epoch",
      labelArrow: "none",
      tickSize: 0,
      padding: many ? 0.05 : 0.2,
      ticks: data.epochs.map((d) => d.epoch).filter((_, i) => i % Math.ceil(data.epochs.length / 12) === 0),
    },
    marks: [
      Plot.barX(
        bars.filter((d) => d.x2 > d.x1),
        {
          x1: "x1",
          x2: "x2",
          y: "epoch",
          fill: (d) => colour(`width-${d.bits}`),
          title: (d) => `epoch ${d.epoch}: ${d3.format(".1f")(d.x2 - d.x1)} % in ${d.bits} bits`,
          tip: { ...TIP, maxRadius: Infinity },
        },
      ),
      ...(many
        ? []
        : [
            Plot.text(data.epochs, {
              x: 100,
              y: "epoch",
              dx: 8,
              textAnchor: "start",
              text: (d) => `${d3.format(".2f")(d.ratio)} : 1`,
              fill: "var(--ink)",
            }),
          ]),
    ],
  });
};
