// Play, pause, step, speed, and the scrubber: one bar that moves through `size` places and tells `show` where it is.
const SPEEDS = [
  ['0.5', '½ ×'],
  ['1', '1 ×'],
  ['2', '2 ×'],
  ['4', '4 ×'],
  ['16', '16 ×'],
];
const QUIET_MS = 1500; // between spoken places while it plays

class Clock {
  // wait(place): milliseconds that a place is shown at speed 1. name(place): what the bar calls it.
  // words(place): the same for a screen reader. jump(place, direction): where shift and an arrow lead.
  constructor({ size, wait, show, name, words, jump }) {
    Object.assign(this, { size, wait, show, name, words, jump, place: 0, playing: false, timer: null, said: 0 });
    this.play = el('button', { class: 'main', onclick: () => this.toggle() }, 'Play');
    this.range = el('input', { type: 'range', min: 0, max: size - 1, value: 0, 'aria-label': 'Place in the generation', oninput: () => this.stopAt(Number(this.range.value)) });
    this.speed = el('select', {}, SPEEDS.map(([value, text]) => el('option', { value, selected: value === '1' }, text)));
    this.where = el('output', { class: 'place' });
    const button = (shape, label, act) => el('button', { onclick: act, 'aria-label': label, title: label }, icon(shape));
    this.node = el(
      'div',
      { class: 'controls', role: 'group', 'aria-label': 'Playback' },
      button('M2 2h2v12H2zM14 2v12L5 8z', 'To the beginning (Home)', () => this.stopAt(0)),
      button('M12 2v12L3 8z', 'One step back (left arrow)', () => this.stopAt(this.place - 1)),
      this.play,
      button('M4 2v12l9-6z', 'One step on (right arrow)', () => this.stopAt(this.place + 1)),
      button('M12 2h2v12h-2zM2 2v12l9-6z', 'To the end (End)', () => this.stopAt(this.size - 1)),
      this.range,
      this.where,
      el('label', {}, 'Speed', this.speed),
    );
  }

  toggle() {
    if (!this.playing && this.place >= this.size - 1) this.go(0);
    this.playing = !this.playing;
    this.play.textContent = this.playing ? 'Pause' : 'Play';
    this.next();
  }

  stop() {
    if (this.playing) this.toggle();
  }

  stopAt(place) {
    this.stop();
    this.go(place);
  }

  go(place) {
    this.place = Math.max(0, Math.min(this.size - 1, place));
    this.range.value = this.place;
    this.where.textContent = this.name(this.place);
    this.range.setAttribute('aria-valuetext', this.words(this.place));
    this.show(this.place, this.playing);
    const now = performance.now();
    if (this.playing && now - this.said < QUIET_MS) return;
    this.said = now;
    say(this.words(this.place));
  }

  next() {
    clearTimeout(this.timer);
    if (!this.playing) return;
    if (this.place >= this.size - 1) {
      this.stop();
      return;
    }
    this.timer = setTimeout(() => {
      this.go(this.place + 1);
      this.next();
    }, this.wait(this.place) / Number(this.speed.value));
  }

  // Whether the key was one of ours. Fields keep their own keys.
  key(event) {
    const field = event.target.closest('input, select, textarea');
    if (field || event.ctrlKey || event.altKey || event.metaKey) return false;
    const far = event.shiftKey && this.jump;
    const acts = {
      ' ': () => !event.target.closest('button, a, summary, [role="tab"]') && (this.toggle(), true),
      ArrowRight: () => (this.stopAt(far ? this.jump(this.place, 1) : this.place + 1), true),
      ArrowLeft: () => (this.stopAt(far ? this.jump(this.place, -1) : this.place - 1), true),
      Home: () => (this.stopAt(0), true),
      End: () => (this.stopAt(this.size - 1), true),
    };
    const done = acts[event.key]?.() ?? false;
    if (done) event.preventDefault();
    return done;
  }
}
