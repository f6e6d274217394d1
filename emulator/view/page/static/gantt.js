// Bars of engines over time: a band for each device, in it a lane for each kind, and in that one for each slice.
charts.gantt = (data, width, label) => {
  const [unit, size] = timeUnit(data.window_ps);
  const count = d3.rollup(
    data.lanes,
    (of) => of.length,
    (lane) => lane.device,
    (lane) => lane.kind,
  );
  const kinds = data.kinds.length;
  const places = data.lanes.map((lane) => {
    const top = lane.device + 0.06 + (0.88 * data.kinds.indexOf(lane.kind)) / kinds;
    const high = (0.88 / kinds) * 0.92;
    const share = high / count.get(lane.device).get(lane.kind);
    return { y1: top + share * lane.number, y2: top + share * (lane.number + 1) };
  });
  const [lanes, samples, starts, ends] = data.bars;
  const bars = lanes.map((lane, i) => ({
    lane: data.lanes[lane],
    sample: samples[i],
    ...places[lane],
    x1: starts[i] / size,
    x2: ends[i] / size,
  }));
  const band = Math.min(64, Math.max(22, 620 / data.devices));
  const said = (d) =>
    `${d.lane.kind} of ${d.lane.name}, device ${d.lane.device}` +
    (d.sample < 0 ? "" : `, sample ${d.sample + 1}`) +
    `\n${timeText(d.x1 * size)} to ${timeText(d.x2 * size)}`;
  return plot(width, data.devices * band + 60, label, {
    marginLeft: 34,
    x: {
      ...axes.x,
      label: `virtual time, ${unit}`,
      domain: [0, data.window_ps / size],
      ticks: Math.max(3, width / 90),
    },
    y: {
      ...axes.y,
      label: "device",
      domain: [data.devices, 0],
      ticks: wholeTicks(data.devices, data.devices * band, 18).map((d) => d + 0.5),
      tickFormat: (d) => Math.floor(d),
      tickSize: 0,
    },
    marks: [
      Plot.ruleY(d3.range(data.devices + 1), { stroke: "var(--line)" }),
      Plot.rect(bars, {
        x1: "x1",
        x2: "x2",
        y1: "y1",
        y2: "y2",
        fill: (d) => colour(`kind-${d.lane.kind}`),
        fillOpacity: (d) => (d.sample % 2 === 1 ? 0.5 : 0.95),
      }),
      tip(bars, Plot.pointer({ x: (d) => (d.x1 + d.x2) / 2, y: (d) => (d.y1 + d.y2) / 2, title: said })),
    ],
  });
};
