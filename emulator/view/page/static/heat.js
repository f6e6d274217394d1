// Busy shares: devices beside one another where their numbers have room, otherwise below one another.
charts.heat = (data, width, label) => {
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
        x,
        y,
        rx: 2,
        fill: (d) => (d.of === "idle" ? "var(--idle)" : "var(--heat)"),
        fillOpacity: (d) => d.share,
        title: (d) => `device ${d.device}, ${d.of}: ${percent(d.share)}`,
        tip: { ...TIP, maxRadius: Infinity },
      }),
      Plot.text(data.cells, {
        x,
        y,
        text: (d) => (d.share === null ? "–" : d3.format(".1f")(100 * d.share)),
        fill: "var(--ink)",
        fontVariant: "tabular-nums",
        fontSize: !across && width < 420 ? 11 : 12,
        pointerEvents: "none",
      }),
    ],
  });
};
