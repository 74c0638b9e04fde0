// Elements, and texts for eyes. Texts reach the page as text nodes only, never as markup.
const SVG = 'http://www.w3.org/2000/svg';

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const icon = (shape) => svg('svg', { class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true' }, svg('path', { d: shape }));

const HIDDEN = '▮';
const SIGNS = { ' ': '·', '\n': '⏎', '\t': '⇥', '\r': '␍' };
const visible = (text) => (text === null ? HIDDEN : text === '' ? '∅' : text.replace(/[ \n\t\r]/g, (sign) => SIGNS[sign]));
const clipped = (text, most = 14) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const quoted = (text) => (text === null ? 'a token' : `“${visible(text)}”`);
const percent = (share) => (share === null || share === undefined ? '–' : `${Math.round(100 * share)}%`);
const counted = (count, word, words = `${word}s`) => `${count} ${count === 1 ? word : words}`;
const fixed = (value, digits) => value.toFixed(digits);

function duration(seconds) {
  if (seconds === 0) return '0 s';
  if (seconds >= 10) return `${fixed(seconds, 1)} s`;
  if (seconds >= 1) return `${fixed(seconds, 2)} s`;
  return `${fixed(1000 * seconds, seconds < 0.01 ? 1 : 0)} ms`;
}

function say(text) {
  document.getElementById('said').textContent = text;
}
