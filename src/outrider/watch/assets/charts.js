// Small charts, drawn by hand. Each says in words what it shows, for those who do not see it.
const CHART = 312;

const figureOf = (title, picture, ...more) => el('section', { class: 'panel' }, el('header', {}, el('h2', {}, title)), picture, ...more);

function acceptanceChart(sum) {
  const shares = sum.keptAt.map((count) => count / Math.max(1, sum.rounds)).slice(0, 12);
  if (!shares.length) return el('p', { class: 'soft small' }, 'No drafted token was kept yet.');
  const width = CHART / Math.max(6, shares.length), tall = 84;
  const bars = shares.flatMap((share, place) => {
    const height = Math.max(1, tall * share), x = place * width, y = 16 + tall - height;
    return [
      svg('rect', { class: 'accepted', x: x + 3, y, width: width - 6, height, rx: 3 }),
      svg('text', { class: 'value', x: x + width / 2, y: y - 4, 'text-anchor': 'middle' }, `${Math.round(100 * share)}`),
      svg('text', { x: x + width / 2, y: tall + 31, 'text-anchor': 'middle' }, `${place + 1}`),
    ];
  });
  const words = `Share of rounds in which the draft token at each place was kept: ${shares.map((share, place) => `${place + 1}: ${percent(share)}`).join(', ')}`;
  const floor = svg('line', { class: 'axis', x1: 0, x2: CHART, y1: tall + 16.5, y2: tall + 16.5 });
  return svg('svg', { class: 'chart', viewBox: `0 0 ${CHART} ${tall + 36}`, role: 'img', 'aria-label': words }, floor, bars);
}

// Tokens of every round. seen: so many are shown in full; jump(place) is called with the round that was clicked.
function roundsChart(rounds, seen, jump) {
  const most = Math.max(...rounds.map((round) => round.row.delivered.count), 2), tall = 84;
  const width = CHART / Math.max(rounds.length, 12);
  const bars = rounds.map((round, place) => {
    const origins = round.row.delivered.origins;
    const parts = ['accepted', 'recovered', 'bonus', 'plain'].map((origin) => [origin, origins.filter((one) => one === origin).length]);
    let y = 8 + tall;
    const pieces = parts.filter(([, count]) => count).map(([origin, count]) => {
      const height = (tall * count) / most;
      y -= height;
      return svg('rect', { class: origin, x: place * width + width * 0.08, y, width: width * 0.84, height });
    });
    const title = svg('title', {}, `Round ${place + 1}: ${counted(round.row.delivered.count, 'token')}`);
    return svg('g', { class: place < seen ? '' : 'later', onclick: jump && (() => jump(place)) }, title, pieces);
  });
  const now = seen > 0 ? svg('rect', { class: 'now', x: (seen - 1) * width, y: 4, width, height: tall + 6, rx: 2 }) : null;
  const mean = rounds.reduce((sum, round) => sum + round.row.delivered.count, 0) / Math.max(1, rounds.length);
  const words = `Tokens of each of ${counted(rounds.length, 'round')}: ${fixed(mean, 2)} on average, at most ${most}`;
  const floor = svg('line', { class: 'axis', x1: 0, x2: CHART, y1: tall + 8.5, y2: tall + 8.5 });
  const labels = [svg('text', { x: 0, y: tall + 24 }, 'first round'), svg('text', { x: CHART, y: tall + 24, 'text-anchor': 'end' }, `round ${rounds.length}, at most ${most}`)];
  return svg('svg', { class: 'chart', viewBox: `0 0 ${CHART} ${tall + 28}`, role: 'img', 'aria-label': words }, floor, bars, now, labels);
}

function phasesChart(seconds) {
  const total = PHASES.reduce((sum, name) => sum + seconds[name], 0);
  const names = PHASES.filter((name) => seconds[name] > 0);
  let x = 0;
  const bars = names.map((name) => {
    const width = (CHART * seconds[name]) / total;
    x += width;
    return svg('rect', { class: name, x: x - width, y: 0, width, height: 20 });
  });
  const words = `Seconds by phase: ${names.map((name) => `${name} ${duration(seconds[name])}`).join(', ')}`;
  const items = names.map((name) => el('li', {}, el('span', { class: `dot ${name}` }), `${name} ${percent(seconds[name] / total)}`, el('span', { class: 'soft' }, duration(seconds[name]))));
  return [svg('svg', { class: 'chart', viewBox: `0 0 ${CHART} 20`, role: 'img', 'aria-label': words }, bars), el('ul', { class: 'phases' }, items)];
}

function figuresList(sum, seconds) {
  const entries = [
    ['tokens', `${sum.tokens}`],
    ['rounds', `${sum.rounds}`],
    ['a round', sum.rounds ? fixed(sum.tokens / sum.rounds, 2) : '–'],
    ['accepted', sum.drafted ? percent(sum.accepted / sum.drafted) : '–'],
    ['tok/s', seconds > 0 ? fixed(sum.tokens / seconds, 1) : '–'],
    ['elapsed', duration(seconds)],
  ];
  return el('dl', { class: 'figures' }, entries.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}
