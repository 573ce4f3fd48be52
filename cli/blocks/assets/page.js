"use strict";
(() => {
  const PAPER = 1000; // pixels that a browser shrinks to the width of a page
  const root = document.documentElement;
  const style = () => getComputedStyle(root);
  const coloured = (value, colours) => {
    if (typeof value === "string" && value.startsWith("@"))
      return colours.getPropertyValue("--" + value.slice(1)).trim() || value;
    if (Array.isArray(value)) return value.map((one) => coloured(one, colours));
    if (value && typeof value === "object")
      return Object.fromEntries(
        Object.entries(value).map(([name, one]) => [name, coloured(one, colours)]));
    return value;
  };
  const charts = [...document.querySelectorAll("[data-figure]")];
  const library = () => {
    if (window.Plotly) return;
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
  };
  const draw = (place, width) => {
    library();
    const stored = document.getElementById(place.dataset.figure).textContent;
    const figure = coloured(JSON.parse(stored), style());
    const named = figure.data.filter((one) => one.name && one.showlegend !== false).length;
    const small = place.clientWidth < 600, narrow = small && named > 1;
    if (small) figure.data.forEach((one) => { if (one.meta) one.text = one.meta; });
    const height = Number(place.dataset.height) + (narrow ? 19 * named : 0);
    place.style.height = height + "px";
    if (width) Object.assign(figure.layout, { width, height, autosize: false });
    const done = Plotly[width ? "newPlot" : "react"](place, figure.data, figure.layout,
      { responsive: true, displaylogo: false, displayModeBar: false });
    place.dataset.drawn = "yes";
    return done;
  };
  const drawn = (place) => place.dataset.drawn === "yes";
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries)
      if (entry.isIntersecting && !drawn(entry.target)) draw(entry.target);
  }, { rootMargin: "400px" });
  charts.forEach((place) => seen.observe(place));
  const redraw = () => charts.filter(drawn).forEach((place) => draw(place));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = style().colorScheme === "dark" ? "light" : "dark";
    redraw();
  });
  const moved = ([low, high], [first, last], how) => {
    const width = high - low, middle = (low + high) / 2;
    const [wide, centre] = {
      in: [width / 2, middle],
      out: [width * 2, middle],
      left: [width, middle - width / 2],
      right: [width, middle + width / 2],
      all: [last - first, (first + last) / 2],
    }[how];
    const kept = Math.min(wide, last - first);
    const begin = Math.min(Math.max(centre - kept / 2, first), last - kept);
    return [begin, begin + kept];
  };
  for (const button of document.querySelectorAll("[data-zoom]"))
    button.addEventListener("click", () => {
      const place = document.getElementById(button.parentElement.dataset.of);
      const stored = JSON.parse(document.getElementById(place.dataset.figure).textContent);
      const { minallowed, maxallowed } = stored.layout.xaxis;
      const range = moved(place.layout.xaxis.range, [minallowed, maxallowed], button.dataset.zoom);
      Plotly.relayout(place, { "xaxis.range": range });
    });
  const opened = new Set();
  let theme;
  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    for (const details of document.querySelectorAll("details:not([open]):not(:has(pre))")) {
      details.open = true;
      opened.add(details);
    }
    for (const place of charts) {
      place.style.width = PAPER + "px";
      draw(place, PAPER); // a size that is stated is drawn at once
    }
  });
  addEventListener("afterprint", () => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    opened.forEach((details) => { details.open = false; });
    opened.clear();
    for (const place of charts) {
      place.style.width = "";
      draw(place);
      Plotly.Plots.resize(place);
    }
  });
  const key = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
  };
  const compare = (one, other) =>
    typeof one === typeof other
      ? (typeof one === "number" ? one - other : one.localeCompare(other))
      : (typeof one === "number" ? -1 : 1);
  for (const button of document.querySelectorAll("th button"))
    button.addEventListener("click", () => {
      const heading = button.parentElement, row = heading.parentElement;
      const up = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of row.cells) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = row.closest("table").tBodies[0];
      const sorted = [...body.rows].sort((one, other) =>
        (up ? 1 : -1) * compare(key(one, heading.cellIndex), key(other, heading.cellIndex)));
      body.append(...sorted);
    });
  const select = (text) => getSelection().selectAllChildren(text);
  for (const button of document.querySelectorAll(".copy"))
    button.addEventListener("click", async () => {
      const text = button.closest(".code").querySelector("pre");
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        select(text);
        button.textContent = "Selected";
      }
    });
})();
