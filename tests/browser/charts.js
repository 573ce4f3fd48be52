() => Object.fromEntries([...document.querySelectorAll("[data-figure]")].map((chart) => {
  const svg = chart.querySelector("svg.main-svg");
  const box = svg ? svg.getBoundingClientRect() : { width: 0, height: 0 };
  const marks = chart.querySelectorAll(
    ".point, .points path, .lines path, .heatmaplayer image, .barlayer path, .shapelayer path");
  const plain = (value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
  const data = (chart.data ?? []).map((trace) => Object.fromEntries(
    ["name", "type", "x", "y", "z", "base", "text", "measure"]
      .map((key) => [key, plain(trace[key])])
      .filter(([, value]) => value !== undefined)));
  return [chart.id, { data, marks: marks.length, width: box.width, height: box.height }];
}))
