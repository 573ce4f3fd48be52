() => {
  // WCAG 2.1, 1.4.3: contrast of text to what lies behind it.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const over = (top, below) => {
    const share = top[3] / 255;
    return [0, 1, 2].map((at) => top[at] * share + below[at] * (1 - share));
  };
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour[3] === 255 ? [...colour].slice(0, 3) : over(colour, behind(element.parentElement));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = new Map();
  const looked = (element, colour) => {
    const back = behind(element);
    const value = ratio(over(rgba(colour), back), back);
    const kind = `${element.tagName} ${element.getAttribute("class") ?? ""}`;
    if (!found.has(kind) || found.get(kind) > value) found.set(kind, value);
  };
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some(
      (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!words || !element.checkVisibility() || element.closest("svg, script")) continue;
    looked(element, getComputedStyle(element).color);
  }
  const axes = ".xtick text, .ytick text, .legendtext, .g-xtitle text, .g-ytitle text";
  for (const element of document.querySelectorAll(axes))
    looked(element, getComputedStyle(element).fill);
  return Object.fromEntries(found);
}
