// Lines over epochs or virtual time; of several seeds the mean, in a band. Runs have marks of their own besides colours.
charts.curves = (data, width, label) => {
  const byTime = data.over === "virtual_time_ps";
  const isShare = data.measure === "accuracy";
  const longest = d3.max(data.curves, (curve) => d3.max(curve.x));
  const [unit, size] = byTime ? timeUnit(longest) : ["epoch", 1];
  const points = data.curves.flatMap((curve) =>
    curve.x.map((x, i) => {
      const at = (values) => (values?.[i] === null ? NaN : values?.[i] * (isShare ? 100 : 1));
      return { x: x / size, y: at(curve.y), low: at(curve.low), high: at(curve.high), i, curve };
    }),
  );
  const banded = data.curves.filter((curve) => curve.seeds).map((curve) => points.filter((d) => d.curve === curve));
  const most = d3.max(data.curves, (curve) => curve.x.length);
  const every = most > 40 ? Math.ceil(most / 8) : 1;
  const isAlone = data.curves.some((curve) => curve.dashed);
  const isMarked = (d, place) => d.i % every === Math.floor((place * every) / data.curves.length);
  const end = longest / size;
  const said = (d) => {
    const at = byTime ? timeText(d.x * size) : `epoch ${d.x}`;
    const value = isShare ? percent(d.y / 100) : d3.format(".4f")(d.y);
    const error = d.curve.seeds ? ` ± ${d3.format(isShare ? ".1f" : ".4f")(d.high - d.y)}, n = ${d.curve.seeds}` : "";
    return `${d.curve.run}, ${d.curve.kind}\n${at}: ${value}${error}`;
  };
  const dashes = apart(data.curves, (curve) => JSON.stringify([curve.dashed, curve.x, curve.y]));
  const epochTicks = d3.ticks(1, end, Math.min(end, width / 55)).filter(Number.isInteger);
  return plot(width, 260, label, {
    x: {
      ...axes.x,
      label: byTime ? `virtual time, ${unit}` : "epoch",
      domain: byTime ? [0, end * 1.02] : [Math.min(1, end) - (end === 1 ? 0.5 : 0), end + (end === 1 ? 0.5 : 0)],
      ...(byTime ? { ticks: Math.max(3, width / 90) } : { ticks: epochTicks, tickFormat: "d" }),
    },
    y: {
      ...axes.y,
      label: isShare ? "accuracy, %" : "loss",
      domain: spread(
        points.flatMap((d) => (d.curve.seeds ? [d.low, d.high] : [d.y])),
        isShare ? 2 : 0.05,
      ),
      nice: true,
      ticks: 6,
    },
    marks: [
      grid(),
      ...banded.flatMap((band) => {
        const stroke = colour(band[0].curve.colour);
        return [
          Plot.areaY(band, { x: "x", y1: "low", y2: "high", fill: stroke, fillOpacity: 0.16 }),
          ...(band.length === 1 ? [Plot.ruleX(band, { x: "x", y1: "low", y2: "high", stroke, strokeWidth: 1.5 })] : []),
        ];
      }),
      ...data.curves.map((curve, i) =>
        Plot.line(
          points.filter((d) => d.curve === curve),
          {
            x: "x",
            y: "y",
            stroke: colour(curve.colour),
            strokeWidth: 2,
            strokeDasharray: curve.dashes,
            ...(curve.dashed ? { strokeDasharray: "4 4" } : dashes[i]),
          },
        ),
      ),
      ...data.curves.flatMap((curve, i) =>
        curve.dashed
          ? []
          : Plot.dot(
              points.filter((d) => d.curve === curve && (isAlone || isMarked(d, i))),
              {
                x: "x",
                y: "y",
                symbol: curve.symbol,
                r: !isAlone ? 3.6 : every > 1 ? 0.1 : 3,
                fill: colour(curve.colour),
              },
            ),
      ),
      tip(points, Plot.pointer({ x: "x", y: "y", title: said })),
    ],
  });
};
