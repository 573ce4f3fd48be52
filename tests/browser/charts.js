() => Object.fromEntries([...document.querySelectorAll("[data-figure]")].map((chart) => {
  const svg = chart.querySelector("svg.main-svg");
  const box = svg ? svg.getBoundingClientRect() : { width: 0, height: 0 };
  const marks = chart.querySelectorAll(
    ".point, .points path, .lines path, .heatmaplayer image, .barlayer path, .shapelayer path");
  return [chart.id, { marks: marks.length, width: box.width, height: box.height }];
}))
