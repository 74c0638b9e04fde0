// One request, round by round: the draft appears, the target scores it, tokens are kept, struck out or replaced.
const STEP_MS = { draft: 1100, score: 900, keep: 1400, end: 0 };

class Player {
  constructor(request) {
    this.request = request;
    this.frames = framesOf(request);
    this.written = new Written(request);
    this.stage = el('div', { class: 'stage', tabindex: '0', role: 'region', 'aria-label': 'The round' });
    this.caption = el('p', { class: 'caption' });
    this.title = el('h2', {});
    this.steps = Object.entries(STEPS).map(([step, name]) => el('li', { 'data-step': step }, name));
    this.side = el('div', { class: 'stack' });
    this.clock = new Clock({
      size: this.frames.length,
      wait: (place) => STEP_MS[this.frames[place].step],
      show: (place, playing) => this.show(this.frames[place], playing),
      name: (place) => this.nameOf(this.frames[place]),
      words: (place) => `${this.nameOf(this.frames[place])}: ${sentence(request, this.frames[place])}`,
      jump: (place, direction) => this.firstFrame(this.frames[place].place + direction),
    });
    const round = el('section', { class: 'panel' }, el('header', {}, this.title, el('ol', { class: 'steps' }, this.steps)), this.stage, this.caption);
    const text = el('section', { class: 'panel' }, el('header', {}, el('h2', {}, 'The text'), this.keys()), this.written.node, legend());
    this.node = el('div', { class: 'columns' }, el('div', { class: 'stack' }, round, this.clock.node, text), this.side);
    this.clock.go(0);
  }

  keys() {
    const key = (name) => el('kbd', {}, name);
    return el('span', { class: 'soft small' }, key('space'), ' play · ', key('←'), ' ', key('→'), ' step · ', key('shift'), ' with them: a round');
  }

  nameOf(frame) {
    return frame.step === 'end' ? 'End' : `Round ${frame.place + 1} of ${this.request.rounds.length}`;
  }

  firstFrame(place) {
    const found = this.frames.findIndex((frame) => frame.place === Math.max(0, place));
    return found < 0 ? this.frames.length - 1 : found;
  }

  show(frame, playing) {
    const { rounds } = this.request;
    const round = rounds[Math.min(frame.place, rounds.length - 1)];
    const ended = frame.step === 'end';
    this.title.textContent = this.nameOf(frame);
    for (const item of this.steps) {
      if (item.dataset.step === frame.step) item.setAttribute('aria-current', 'step');
      else item.removeAttribute('aria-current');
    }
    this.stage.replaceChildren(drawRound(round, ended ? 'keep' : frame.step, playing || frame.step === 'draft'));
    showReached(this.stage);
    this.caption.textContent = sentence(this.request, frame);
    this.written.show(frame.place, frame.step);
    const seen = frame.step === 'keep' ? frame.place + 1 : frame.place;
    this.drawSide(round, seen);
  }

  drawSide(round, seen) {
    const { rounds } = this.request;
    const sum = figures(rounds.slice(0, seen));
    const jump = (place) => this.clock.stopAt(this.firstFrame(place));
    const { plan } = round.row;
    const what = plan.depth ? `${plan.drafter}, at most ${plan.depth} deep, ${counted(plan.nodes, 'node')}` : 'no draft';
    this.side.replaceChildren(
      figureOf('So far', figuresList(sum, elapsed(this.request, seen))),
      figureOf('The plan of this round', el('p', { class: 'plan' }, what), el('p', { class: 'plan soft small' }, plan.reason || 'the policy gives no reason')),
      figureOf('Accepted by place, % of rounds', acceptanceChart(sum)),
      figureOf('Tokens of each round', roundsChart(rounds, seen, jump)),
      figureOf('Seconds by phase', el('div', {}, seen ? phasesChart(sum.seconds) : el('p', { class: 'soft small' }, 'Nothing is over yet.'))),
    );
  }
}
