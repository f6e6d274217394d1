// Lines over epochs or virtual time.
charts.curves = (data, width, label) => {
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
        points.map((d) => d.y),
        isShare ? 2 : 0.05,
      ),
      nice: true,
      ticks: 6,
    },
    marks: [
      grid(),
      ...data.curves.map((curve, i) =>
        Plot.line(
          points.filter((d) => d.curve === curve),
          {
            x: "x",
            y: "y",
            stroke: colour(curve.colour),
            strokeWidth: 2,
            ...(curve.dashed ? { strokeDasharray: "4 4" } : dashes[i]),
          },
        ),
      ),
      Plot.dot(
        points.filter((d) => !d.curve.dashed),
        {
          x: "x",
          y: "y",
          r: d3.max(data.curves, (curve) => curve.x.length) > 40 ? 0.1 : 3,
          fill: (d) => colour(d.curve.colour),
        },
      ),
      tip(points, Plot.pointer({ x: "x", y: "y", title: said })),
    ],
  });
};
