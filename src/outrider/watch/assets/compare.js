// Two runs of one prompt side by side, each at the pace at which it was recorded.
const TICK = 0.05; // seconds

const whole = (request) => elapsed(request, request.rounds.length);
const promptOf = (request) => request.begin?.digest ?? null;
const comparable = (one, other) => promptOf(one) === null || promptOf(one) === promptOf(other);

// What may be said of two runs. A ratio of speeds only beside the same tokens.
function verdict(one, other) {
  if (!comparable(one, other)) return [el('b', {}, 'Two different prompts.'), ' Nothing can be said of their speeds.'];
  const [left, right] = [tokensOf(one), tokensOf(other)];
  const place = left.findIndex((id, at) => id !== right[at]);
  if (place >= 0 || left.length !== right.length) {
    const from = place < 0 ? Math.min(left.length, right.length) : place;
    return [el('b', {}, `The tokens differ from number ${from + 1} on`), ', so no ratio of speeds is given.'];
  }
  const ratio = whole(other) / whole(one);
  const words = ratio >= 1 ? `${fixed(ratio, 2)} times as fast as` : `${fixed(1 / ratio, 2)} times slower than`;
  return [el('b', {}, 'The same tokens'), ` on both sides; the left run was `, el('b', {}, words), ' the right one. Times are as recorded, reading the prompt included.'];
}

class Lane {
  constructor(request, title) {
    this.request = request;
    this.plain = !isSpeculative(request);
    this.written = new Written(request, this.plain);
    this.side = el('div', {});
    this.bar = el('div', {});
    const race = el('div', { class: 'race', 'aria-hidden': 'true' }, this.bar);
    this.node = el('section', { class: 'panel' }, el('header', {}, el('h2', {}, title), el('span', { class: 'soft small' }, nameOf(request))), this.side, race, this.written.node);
  }

  at(seconds) {
    const start = startOf(this.request);
    let count = this.request.rounds.findIndex((round) => round.at - start > seconds);
    if (count < 0) count = this.request.rounds.length;
    const done = count === this.request.rounds.length;
    const sum = figures(this.request.rounds.slice(0, count));
    const total = figures(this.request.rounds).tokens;
    this.bar.style.width = `${(100 * sum.tokens) / total}%`;
    this.side.replaceChildren(figuresList(sum, done ? whole(this.request) : seconds));
    this.written.show(count, done ? 'end' : null);
    return done;
  }
}

class Compare {
  constructor(one, other) {
    this.lanes = [new Lane(one, 'With drafts'), new Lane(other, 'Without')];
    if (!isSpeculative(one) || isSpeculative(other)) this.lanes = [new Lane(one, 'Left'), new Lane(other, 'Right')];
    const last = Math.max(whole(one), whole(other));
    const ticks = Math.ceil(last / TICK) + 1;
    this.said = el('p', { class: 'verdict' }, verdict(one, other));
    this.clock = new Clock({
      size: ticks,
      wait: () => 1000 * TICK,
      show: (place) => this.lanes.forEach((lane) => lane.at(place * TICK)),
      name: (place) => `${duration(Math.min(last, place * TICK))} of ${duration(last)}`,
      words: (place) => `After ${duration(Math.min(last, place * TICK))}: ${this.lanes.map((lane) => counted(lane.request.rounds.filter((round) => round.at - startOf(lane.request) <= place * TICK).reduce((sum, round) => sum + round.row.delivered.count, 0), 'token')).join(' against ')}`,
      jump: (place, direction) => place + direction * 20,
    });
    const summary = el('section', { class: 'panel' }, this.said);
    this.node = el('div', { class: 'stack' }, summary, this.clock.node, el('div', { class: 'pair' }, this.lanes.map((lane) => lane.node)), legend());
    this.clock.go(0);
  }
}
