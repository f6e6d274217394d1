// Rates that engines, links and exchanges allow, on a logarithmic axis, and those reached.
charts.roofs = (data, width, label) => {
  const apart = 0.56 / Math.max(1, data.kinds.length - 1);
  const place = (d) => (Number.isInteger(d.device) ? d.device - 0.28 + apart * data.kinds.indexOf(d.kind) : d.device);
  const lines = [data.steady, ...(data.reached === null ? [] : [data.reached])];
  const least = d3.min([...data.points.map((d) => d.rate), ...lines]);
  const most = d3.max(data.points, (d) => d.rate);
  const narrow = width < 500;
  const dots = (points, options) =>
    Plot.dot(points, {
      x: place,
      y: "rate",
      fill: (d) => colour(`kind-${d.kind}`),
      stroke: "var(--page)",
      strokeWidth: 0.6,
      ...options,
    });
  const radius = data.devices > 30 || narrow ? 3.2 : 4.5;
  const unit = `${data.unit}, log scale`;
  const ticks = roundRates(least / 1.5, most * 1.3);
  return plot(width, 320, label, {
    marginLeft: 52,
    x: {
      ...axes.x,
      label: "device",
      domain: places(data.devices),
      ticks: wholeTicks(data.devices, width),
      tickFormat: "d",
    },
    y: { ...axes.y, type: "log", domain: [least / 1.5, most * 1.3], label: unit, axis: null },
    marks: [
      Plot.gridY(ticks, { stroke: "var(--line)", strokeOpacity: 1 }),
      Plot.axisY(ticks, { label: unit, labelArrow: "none", text: (rate) => d3.format("~s")(rate) }),
      ...lines.map((rate, i) =>
        Plot.ruleY([rate], { stroke: "var(--limit)", strokeWidth: 1.3, strokeDasharray: i ? "5 4" : undefined }),
      ),
      dots(
        data.points.filter((d) => d.kind !== "link"),
        { r: radius },
      ),
      dots(
        data.points.filter((d) => d.kind === "link" && !d.backward),
        { symbol: "triangle", rotate: 90, r: radius, dx: radius + 1 },
      ),
      dots(
        data.points.filter((d) => d.kind === "link" && d.backward),
        { symbol: "triangle", rotate: -90, r: radius, dx: -radius - 1 },
      ),
      tip(
        data.points,
        Plot.pointer({
          x: place,
          y: "rate",
          title: (d) => `${d.name}\nwould allow ${d3.format(",.0f")(d.rate)} ${data.unit}`,
        }),
      ),
    ],
  });
};
