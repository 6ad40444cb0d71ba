// Contrast of every text that can be seen, measured: axe leaves undecided what stands on layers or beside others.

/** Runs in the page; the texts whose contrast is too low, each with its ratio. WCAG 2.2, 1.4.3: 4.5, or 3 for large text. */
export function lowContrasts() {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map();
  // Whatever CSS can say of a colour, as red, green, blue and alpha.
  const rgba = (colour) => {
    if (!known.has(colour)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
      known.set(colour, [red, green, blue, alpha / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((part, index) => part * a + under[index] * (1 - a));
  const luminance = (colour) => {
    const [r, g, b] = colour.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const opacity = (element) => {
    let all = 1;
    for (let at = element; at; at = at.parentElement) all *= Number(getComputedStyle(at).opacity);
    return all;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest(":disabled, [aria-disabled=true], script, style, .hidden-text, .skip")) continue;
    const style = getComputedStyle(element);
    const under = ground(element);
    const [r, g, b, a] = rgba(style.fill !== "none" && element instanceof SVGElement ? style.fill : style.color);
    const front = over([r, g, b, a * opacity(element)], under);
    const [light, dark] = [luminance(front), luminance(under)].sort((one, other) => other - one);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5) - 0.005) found.push(`${ratio.toFixed(2)}: "${text.slice(0, 60)}" in <${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}">`);
  }
  return [...new Set(found)];
}
