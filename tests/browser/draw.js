(done) => {
  for (const details of document.querySelectorAll("details"))
    if (details.querySelector("[data-figure]")) details.open = true;
  const charts = [...document.querySelectorAll("[data-figure]")];
  const next = () => {
    const waiting = charts.find((chart) => chart.dataset.drawn !== "yes");
    if (!waiting) {
      scrollTo(0, 0);
      requestAnimationFrame(() => requestAnimationFrame(() => done()));
      return;
    }
    waiting.scrollIntoView({ block: "center" });
    requestAnimationFrame(next);
  };
  next();
}
