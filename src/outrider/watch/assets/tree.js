// One round's draft tree as a picture. The first child continues its parent's line, further children branch off below.
const BOX = 34, ROW = 64, GAP = 26, EDGE = 8;

function drawRound(round, step, fresh) {
  const nodes = placed(round);
  const width = Math.max(...nodes.map((node) => node.x + node.width)) + 4;
  const height = Math.max(...nodes.map((node) => node.y)) + BOX + 30;
  const edges = nodes.filter((node) => node.parent >= 0).map((node) => edge(nodes[node.parent], node, look(round, step, node)));
  const boxes = nodes.map((node) => box(round, step, node, look(round, step, node), fresh));
  const label = step === 'draft' ? 'The draft tree' : step === 'score' ? 'The draft tree with the target’s chances' : outcome(round);
  const kept = nodes.filter((node) => step === 'keep' && look(round, step, node) !== 'struck');
  const down = Math.max(0, ...kept.map((node) => node.y + ROW)), right = Math.max(0, ...kept.map((node) => node.x + node.width + 4 * GAP));
  return svg('svg', { width, height, 'data-down': down, 'data-right': right, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label }, edges, boxes);
}

// A large tree is scrolled to where what was kept ends.
function showReached(stage) {
  const { down, right } = stage.firstChild.dataset;
  stage.scrollTop = Math.max(0, Number(down) - stage.clientHeight);
  stage.scrollLeft = Math.max(0, Number(right) - stage.clientWidth);
}

// Nodes with their places; the target's own next token is one more child of the last kept node.
function placed(round) {
  const { tree, path, next } = round.row;
  const texts = tree.texts ?? tree.parents.map(() => null);
  const nodes = tree.parents.map((parent, id) => ({ id, parent, text: texts[id] }));
  if (next.origin !== 'accepted') nodes.push({ id: nodes.length, parent: path.at(-1), text: next.text, own: true });
  for (const node of nodes) {
    node.depth = node.parent < 0 ? 0 : nodes[node.parent].depth + 1;
    node.label = clipped(visible(node.text));
    node.width = Math.max(34, 9 * [...node.label].length + 20);
  }
  const columns = [];
  for (const node of nodes) columns[node.depth] = Math.max(columns[node.depth] ?? 0, node.width);
  const starts = columns.map((_, depth) => columns.slice(0, depth).reduce((sum, width) => sum + width + GAP, EDGE));
  let lines = 0;
  const walk = (node, line) => {
    node.x = starts[node.depth];
    node.y = 4 + line * ROW;
    nodes.filter((child) => child.parent === node.id).forEach((child, order) => walk(child, order ? (lines += 1) : line));
  };
  walk(nodes[0], 0);
  return nodes;
}

// What has become of a node at this step: absent, root, drafted, kept, struck, or the own token's origin.
function look(round, step, node) {
  const { path, next } = round.row;
  if (node.own) return step === 'keep' ? next.origin : 'absent';
  if (node.id === 0) return 'root';
  if (step !== 'keep') return 'drafted';
  const last = next.origin === 'accepted' && node.parent === path.at(-1) && node.text === next.text;
  return path.includes(node.id) || last ? 'kept' : 'struck';
}

function edge(from, to, state) {
  const [x0, y0, x1, y1] = [from.x + from.width, from.y + BOX / 2, to.x, to.y + BOX / 2];
  const bend = Math.max(10, (x1 - x0) / 2);
  return svg('path', { class: `edge ${state}`, d: `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}` });
}

const MARKS = { kept: '✓', struck: '✕', recovered: '↻', bonus: '+', plain: '=' };

function box(round, step, node, state, fresh) {
  const isNew = fresh && ((step === 'draft' && state === 'drafted') || (step === 'keep' && node.own));
  const middle = node.x + node.width / 2;
  const group = svg(
    'g',
    { class: `node ${state}${isNew ? ' fresh' : ''}` },
    svg('title', {}, told(round, node, state)),
    svg('rect', { x: node.x, y: node.y, width: node.width, height: BOX, rx: 8 }),
    svg('text', { class: 'label', x: middle, y: node.y + 22 }, node.label),
    svg('text', { class: 'under', x: middle, y: node.y + BOX + 16 }, under(round, step, node, state)),
  );
  if (isNew) group.style.animationDelay = `${60 * (node.depth - 1)}ms`;
  return group;
}

function under(round, step, node, state) {
  if (node.id === 0) return 'newest';
  if (node.own) return drafted(round) ? { bonus: '+ on top', recovered: '↻ instead' }[state] ?? '' : 'its own';
  const { confidence } = round.row.tree;
  if (step === 'draft') return confidence ? percent(confidence[node.id]) : '';
  const chance = percent(round.row.target.chance[node.id]);
  return state in MARKS ? `${MARKS[state]} ${chance}` : chance;
}

function told(round, node, state) {
  if (node.id === 0) return `${quoted(node.text)}: the newest token of the text`;
  if (node.own) return `${quoted(node.text)}: the target’s own token`;
  const { tree, target } = round.row;
  const source = tree.sources?.length ? `, from ${tree.sources[node.id]}` : '';
  const sure = tree.confidence ? `; the drafter was ${percent(tree.confidence[node.id])} sure` : '';
  const wish = target.best_texts ? `, its favourite here was ${quoted(target.best_texts[node.parent])}` : '';
  return `${quoted(node.text)}${source}: ${state}${sure}; the target gave it ${percent(target.chance[node.id])}${wish}`;
}
