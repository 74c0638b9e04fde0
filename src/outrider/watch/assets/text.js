// The text as it grows: every token in its origin's looks, the present draft behind it.
const LEGEND = [
  ['drafted', 'drafted'],
  ['accepted', 'kept'],
  ['struck', 'struck out'],
  ['recovered', 'replaced by the target'],
  ['bonus', 'added by the target'],
  ['plain', 'written without a draft'],
];

const legend = () => el('p', { class: 'legend' }, LEGEND.map(([look, meaning]) => el('span', {}, el('span', { class: `token ${look}` }, 'abc'), meaning)));

const token = (text, looks) => el('span', { class: `token ${looks}` }, text ?? `${HIDDEN} `);

function committed(round) {
  const { origins, texts } = round.row.delivered;
  return origins.map((origin, place) => token(texts ? texts[place] : null, origin));
}

// The draft's main line as it stands behind the text: the first child of the first child, and so on.
function mainLine(tree) {
  const line = [];
  for (let node = tree.parents.indexOf(0); node > 0; node = tree.parents.indexOf(node)) line.push(node);
  return line;
}

function pending(round, step) {
  const { tree, path } = round.row;
  const line = mainLine(tree);
  const read = (node) => (tree.texts ? tree.texts[node] : null);
  if (step !== 'keep') return line.map((node) => token(read(node), 'drafted'));
  const kept = committed(round);
  const rejected = round.row.next.origin === 'accepted' ? [] : line.filter((node) => !path.includes(node));
  return [...kept.slice(0, -1), ...rejected.map((node) => token(read(node), 'struck')), ...kept.slice(-1)];
}

// Shows `count` rounds, then the present one at its step. Earlier tokens stay as they are: only what is new is drawn.
class Written {
  constructor(request, plain = false) {
    this.request = request;
    this.shown = 0;
    this.prompt = request.begin?.prompt ?? null;
    this.past = el('span', {});
    this.present = el('span', {});
    this.caret = el('span', { class: 'caret', 'aria-hidden': 'true' });
    this.node = el('div', { class: `written${plain ? ' plain' : ''}`, tabindex: '0', role: 'region', 'aria-label': 'The text' }, this.prompt === null ? null : el('span', { class: 'prompt' }, this.prompt), this.past, this.present, this.caret);
  }

  show(count, step) {
    if (count < this.shown) {
      this.past.replaceChildren();
      this.shown = 0;
    }
    for (; this.shown < count; this.shown += 1) this.past.append(...committed(this.request.rounds[this.shown]));
    const round = this.request.rounds[count];
    const ended = count === this.request.rounds.length && this.request.end?.rest;
    this.present.replaceChildren(...(step && step !== 'end' ? pending(round, step) : ended ? [this.request.end.rest] : []));
    this.caret.hidden = step === 'end';
    this.node.scrollTop = this.node.scrollHeight;
  }
}
