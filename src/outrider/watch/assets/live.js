// A server's rounds as they happen: the requests that run, and one of them in close view.
const DRAW_MS = 250, AGAIN_MS = 2000, WINDOW = 10; // WINDOW: seconds of the tokens a second
const ENDED_KEPT = 12, ROUNDS_KEPT = 400;

class Live {
  constructor(config) {
    this.config = config;
    this.key = null;
    this.held = false;
    this.state = el('span', { class: 'state', role: 'status' }, 'connecting');
    this.node = el('div', { class: 'stack' });
    this.hold = el('button', { onclick: () => this.toggle(), 'aria-pressed': 'false' }, 'Hold');
    this.clear();
    this.connect();
    setInterval(() => this.draw(), DRAW_MS);
  }

  clear() {
    this.sessions = [];
    this.load = { running: 0, waiting: 0 };
    this.lost = 0;
    this.chosen = null;
    this.pinned = false; // whether a person chose it
    this.recent = [];
    this.sum = figures([]);
    this.rounds = 0;
    this.latest = [];
    this.changed = true;
  }

  get requests() {
    return [...(this.sessions.at(-1)?.requests.values() ?? [])];
  }

  toggle() {
    this.held = !this.held;
    this.hold.textContent = this.held ? 'Go on' : 'Hold';
    this.hold.setAttribute('aria-pressed', String(this.held));
    this.changed = true;
  }

  key_(event) {
    if (event.target.closest('input, select, textarea, button, a')) return false;
    if (event.key !== ' ') return false;
    this.toggle();
    event.preventDefault();
    return true;
  }

  // ---- the connection

  async connect() {
    try {
      const headers = this.key === null ? {} : { Authorization: `Bearer ${this.key}` };
      const answer = await fetch(this.config.rounds, { headers, cache: 'no-store' });
      if (answer.status === 401) {
        this.ask(this.key !== null);
        return;
      }
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      this.clear();
      this.tell('running', 'live');
      this.layOut();
      await this.read(answer.body.getReader());
      this.tell('', 'the server has ended the stream; trying again');
    } catch (error) {
      this.tell('failed', `no connection (${error.message}); trying again`);
    }
    setTimeout(() => this.connect(), AGAIN_MS);
  }

  async read(reader) {
    const decoder = new TextDecoder();
    for (let rest = ''; ; ) {
      const { done, value } = await reader.read();
      if (done) return;
      const pieces = (rest + decoder.decode(value, { stream: true })).split('\n\n');
      rest = pieces.pop();
      for (const piece of pieces) if (piece.startsWith('data: ')) this.take(JSON.parse(piece.slice(6)));
    }
  }

  tell(look, words) {
    this.state.className = `state ${look}`;
    this.state.textContent = words;
    if (!this.node.childElementCount) this.layOut();
  }

  ask(again) {
    const field = el('input', { type: 'password', id: 'key', autocomplete: 'off', required: true });
    const send = (event) => {
      event.preventDefault();
      this.key = field.value;
      this.node.replaceChildren();
      this.connect();
    };
    const words = again ? 'The server does not know this key.' : 'This server asks for an API key. It stays in this page, until you leave it.';
    this.node.replaceChildren(el('form', { class: 'panel key', onsubmit: send }, el('h2', {}, 'API key'), el('p', {}, words), el('label', { for: 'key' }, 'Key'), field, el('button', { class: 'main' }, 'Watch')));
    this.tell('', 'waiting for a key');
    field.focus();
  }

  take(line) {
    this.lost = line.lost ?? this.lost;
    this.changed = true;
    if (line.kind === 'load') {
      this.load = line;
      return;
    }
    takeLine(this.sessions, line);
    if (line.kind === 'round') this.count(line);
    if (line.kind === 'end') this.forget();
    if (line.kind === 'request') this.chosen ??= line.request;
  }

  count(line) {
    const rows = line.rows.map((row) => ({ at: line.at, seconds: line.seconds, row }));
    const fresh = figures(rows);
    this.rounds += 1;
    for (const name of ['rounds', 'tokens', 'drafted', 'accepted']) this.sum[name] += fresh[name];
    for (const name of PHASES) this.sum.seconds[name] += line.seconds[name];
    fresh.keptAt.forEach((count, depth) => (this.sum.keptAt[depth] = (this.sum.keptAt[depth] ?? 0) + count));
    this.recent.push([performance.now() / 1000, fresh.tokens]);
    for (const row of line.rows) {
      const known = this.sessions.at(-1).requests.get(row.request);
      known.total ??= { rounds: known.begin?.so_far?.rounds ?? 0, written: known.begin?.so_far?.written ?? 0 };
      known.total.rounds += 1;
      known.total.written += row.delivered.count;
      if (known.rounds.length > ROUNDS_KEPT) known.rounds.shift();
    }
  }

  // Those that ended long ago leave the list.
  forget() {
    const ended = this.requests.filter((one) => one.end && one.id !== this.chosen);
    for (const one of ended.slice(0, -ENDED_KEPT)) this.sessions.at(-1).requests.delete(one.id);
  }

  // ---- the picture

  layOut() {
    this.table = el('tbody', {});
    this.stage = el('div', { class: 'stage', tabindex: '0', role: 'region', 'aria-label': 'The newest round' });
    this.caption = el('p', { class: 'caption' });
    this.text = el('div', { class: 'written', tabindex: '0', role: 'region', 'aria-label': 'The text' });
    this.title = el('h2', {}, 'No request yet');
    this.side = el('div', { class: 'stack' });
    const head = el('tr', {}, ['Request', 'State', 'Tokens', 'A round', 'Accepted', 'Plan'].map((name) => el('th', { scope: 'col' }, name)));
    const list = el('section', { class: 'panel' }, el('header', {}, el('h2', {}, 'Requests'), this.state), el('div', { class: 'scroll' }, el('table', { class: 'requests' }, el('thead', {}, head), this.table)));
    const view = el('section', { class: 'panel' }, el('header', {}, this.title, this.hold), this.stage, this.caption, this.text, legend());
    this.node.replaceChildren(el('div', { class: 'columns' }, el('div', { class: 'stack' }, list, view, this.links()), this.side));
    this.changed = true;
  }

  links() {
    if (!this.config.links) return null;
    const link = ([path, name]) => el('a', { href: path }, name);
    const paths = [['/docs', 'every field and answer'], ['/v1/models', 'the model'], ['/metrics', 'figures for Prometheus'], ['/ready', 'readiness']];
    const lead = 'This server answers OpenAI’s protocol under /v1. See ';
    return el('p', { class: 'soft small' }, lead, paths.flatMap((one, place) => [place ? ' · ' : '', link(one)]), '.');
  }

  draw() {
    if (!this.changed || this.held || !this.table?.isConnected) return;
    this.changed = false;
    const requests = this.requests;
    if (!requests.some((one) => one.id === this.chosen && (this.pinned || !one.end))) this.pinned = false;
    if (!this.pinned && !requests.some((one) => one.id === this.chosen && !one.end)) this.chosen = (requests.findLast((one) => !one.end) ?? requests.find((one) => one.id === this.chosen) ?? requests.at(-1))?.id ?? null;
    const focused = document.activeElement?.dataset?.request;
    this.table.replaceChildren(...requests.toReversed().map((one) => this.line(one)));
    if (focused !== undefined) this.table.querySelector(`[data-request="${focused}"]`)?.focus();
    if (!requests.length) this.table.append(el('tr', {}, el('td', { colspan: '6', class: 'soft' }, 'Nothing is asked at the moment.')));
    const chosen = requests.find((one) => one.id === this.chosen);
    if (chosen?.rounds.length) this.close(chosen);
    this.drawSide(requests);
  }

  line(request) {
    const sum = figures(request.rounds);
    const { rounds, written } = request.total ?? request.begin?.so_far ?? { rounds: 0, written: 0 };
    const plan = request.rounds.at(-1)?.row.plan;
    const failed = request.end?.finish === 'error';
    const state = request.end ? (failed ? request.end.error : request.end.finish) : rounds ? 'writing' : 'reading';
    const choose = () => {
      this.chosen = request.id;
      this.pinned = true;
      this.changed = true;
      this.draw();
    };
    const cells = [
      el('button', { 'data-request': request.id, onclick: choose }, `${request.id}`),
      el('span', { class: `state ${failed ? 'failed' : request.end ? '' : 'running'}` }, state),
      `${written}`,
      rounds ? fixed(written / rounds, 2) : '–',
      percent(sum.drafted ? sum.accepted / sum.drafted : null),
      plan ? (plan.depth ? `${plan.drafter}, depth ${plan.depth}` : 'no draft') : '–',
    ];
    return el('tr', { 'aria-current': request.id === this.chosen ? 'true' : null }, cells.map((cell) => el('td', {}, cell)));
  }

  close(request) {
    const round = request.rounds.at(-1);
    this.title.textContent = `Request ${request.id}, its newest round`;
    this.stage.replaceChildren(drawRound(round, 'keep', false));
    showReached(this.stage);
    this.caption.textContent = outcome(round);
    const earlier = request.begin?.so_far?.text;
    const hidden = round.row.delivered.texts === null;
    const tokens = request.rounds.slice(hidden ? -120 : 0).flatMap(committed);
    this.text.replaceChildren(...(earlier ? [earlier] : []), ...tokens);
    if (hidden) this.text.append(el('p', { class: 'soft small' }, 'Texts belong to those who asked for them and are not shown. `--show-text` shows them to all who may watch.'));
    this.text.scrollTop = this.text.scrollHeight;
  }

  drawSide(requests) {
    const now = performance.now() / 1000;
    this.recent = this.recent.filter(([at]) => now - at < WINDOW);
    const speed = this.recent.reduce((sum, [, tokens]) => sum + tokens, 0) / WINDOW;
    const running = requests.filter((one) => !one.end).length;
    const entries = [['running', `${running}`], ['waiting', `${this.load.waiting}`], ['tok/s', fixed(speed, 1)], ['target passes', `${this.rounds}`], ['a row’s round', this.sum.rounds ? fixed(this.sum.tokens / this.sum.rounds, 2) : '–'], ['accepted', percent(this.sum.drafted ? this.sum.accepted / this.sum.drafted : null)]];
    const chosen = requests.find((one) => one.id === this.chosen);
    const plan = chosen?.rounds.at(-1)?.row.plan;
    const figures = [
      figureOf('Since this page opened', el('dl', { class: 'figures' }, entries.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value)))), this.lost ? el('p', { class: 'soft small' }, `${this.lost} lines were lost on the way to this page`) : null),
      plan ? figureOf('The plan for this request', el('p', { class: 'plan' }, plan.depth ? `${plan.drafter}, at most ${plan.depth} deep, ${counted(plan.nodes, 'node')}` : 'no draft'), el('p', { class: 'plan soft small' }, plan.reason || 'the policy gives no reason')) : null,
      figureOf('Accepted by place, % of rounds', acceptanceChart(this.sum)),
      chosen?.rounds.length ? figureOf(`Tokens of each round, request ${chosen.id}`, roundsChart(chosen.rounds.slice(-80), Math.min(80, chosen.rounds.length), null)) : null,
      this.rounds ? figureOf('Seconds by phase', el('div', {}, phasesChart(this.sum.seconds))) : null,
    ];
    this.side.replaceChildren(...figures.filter(Boolean));
  }
}
