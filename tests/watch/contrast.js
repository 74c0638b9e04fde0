// Every text whose contrast with what lies behind it is below 4.5, which WCAG AA asks for.
(() => {
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const box = at.tagName === 'g' ? at.querySelector('rect') : null;
      const color = numbers(box ? getComputedStyle(box).fill : getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0.9) return color;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const style = getComputedStyle(node);
    if (!own || style.visibility === 'hidden' || node.closest('script, title, option, .unseen, .skip, :disabled')) continue;
    const outside = node.classList.contains('under') ? node.closest('.panel') : node;
    const color = numbers(node instanceof SVGElement ? style.fill : style.color);
    const pair = [light(color), light(back(outside))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) bad.push(`${node.tagName}.${node.getAttribute('class')} ${ratio.toFixed(2)}: ${node.textContent.slice(0, 20)}`);
  }
  return bad;
})()
