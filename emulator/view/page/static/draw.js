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
