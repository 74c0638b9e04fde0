// Puts the page together: what the configuration holds decides what is played.
const config = JSON.parse(document.getElementById('config').textContent);
const [top_, main] = [document.getElementById('top'), document.getElementById('main')];

function heading(header) {
  const { target, rule, drafters } = header;
  return el('p', { class: 'about' }, el('b', {}, target.name), drafters.length ? [' · drafter ', el('b', {}, drafters.join(', '))] : ' · no drafter', ` · rule ${rule} · ${target.exact} · ${target.dtype} on ${target.device}`);
}

function startLive() {
  const live = new Live(config);
  top_.append(el('h1', {}, 'Outrider'), el('p', { class: 'about' }, 'Exact speculative decoding, as it happens'));
  main.replaceChildren(live.node);
  document.addEventListener('keydown', (event) => live.key_(event));
}

function startTraces() {
  const traces = config.traces.map(parseTrace);
  const requests = traces.flatMap((trace) => trace.requests);
  const skipped = traces.reduce((sum, trace) => sum + trace.skipped, 0);
  if (!requests.length) {
    main.replaceChildren(el('p', { class: 'notice' }, 'This trace holds no round.'));
    return;
  }
  const first = requests.find(isSpeculative) ?? requests[0];
  const others = (traces[1] ?? traces[0]).requests.filter((one) => one !== first);
  const second = others.find((one) => !isSpeculative(one) && comparable(first, one)) ?? (traces[1] ? others[0] : null);
  new Viewer(requests, first, second, skipped);
}

class Viewer {
  constructor(requests, first, second, skipped) {
    this.requests = requests;
    this.view = null;
    this.left = this.select('Request', first);
    this.right = this.select('against', second ?? first);
    this.tabs = [['play', 'Round by round'], ['compare', 'Side by side']].map(([name, words]) => el('button', { role: 'tab', id: `tab-${name}`, 'aria-controls': 'main', onclick: () => this.choose(name), onkeydown: (event) => this.tabKey(event) }, words));
    const tablist = requests.length > 1 ? el('div', { role: 'tablist', 'aria-label': 'View' }, this.tabs) : null;
    this.tools = el('div', { class: 'tools' }, requests.length > 1 ? [this.left, this.right] : null, tablist);
    this.about = el('div', { class: 'about' });
    top_.append(el('h1', {}, 'Outrider'), this.about, this.tools);
    this.notice = skipped ? el('p', { class: 'notice' }, `${counted(skipped, 'line')} of the trace could not be read and ${skipped === 1 ? 'was' : 'were'} left out.`) : null;
    document.addEventListener('keydown', (event) => this.view.clock.key(event));
    this.choose(second ? config.view : 'play');
  }

  select(name, chosen) {
    const options = this.requests.map((one, place) => el('option', { value: place, selected: one === chosen }, nameOf(one)));
    const menu = el('select', { onchange: () => this.choose(this.name) }, options);
    return el('label', { class: 'small' }, `${name} `, menu);
  }

  chosen(label) {
    return this.requests[Number(label.querySelector('select').value)];
  }

  tabKey(event) {
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.stopPropagation();
    this.choose(this.name === 'play' ? 'compare' : 'play');
    this.tabs[this.name === 'play' ? 0 : 1].focus();
  }

  choose(name) {
    this.name = name;
    this.view?.clock.stop();
    this.right.hidden = name === 'play';
    this.tabs.forEach((tab) => {
      const selected = tab.id === `tab-${name}`;
      tab.setAttribute('aria-selected', String(selected));
      tab.tabIndex = selected ? 0 : -1;
    });
    const request = this.chosen(this.left);
    this.about.replaceChildren(heading(request.session.header));
    this.view = name === 'play' ? new Player(request) : new Compare(request, this.chosen(this.right));
    main.replaceChildren(...(this.notice ? [this.notice] : []), this.view.node);
  }
}

if (config.mode === 'live') startLive();
else startTraces();
