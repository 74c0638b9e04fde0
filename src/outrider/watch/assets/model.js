// A trace as docs/traces.md describes it: sessions, requests, and what is known of a request after so many rounds.
const PHASES = ['prefill', 'draft', 'score', 'accept', 'rest'];

function takeLine(sessions, line) {
  if (line.kind === 'header') {
    sessions.push({ header: line, requests: new Map() });
    return;
  }
  const session = sessions.at(-1);
  const request = (id) => {
    if (!session.requests.has(id)) session.requests.set(id, { id, begin: null, rounds: [], end: null, session });
    return session.requests.get(id);
  };
  if (line.kind === 'request') request(line.request).begin = line;
  if (line.kind === 'end') request(line.request).end = line;
  if (line.kind === 'round') {
    for (const row of line.rows) {
      request(row.request).rounds.push({ index: line.round, at: line.at, seconds: line.seconds, batch: line.rows.length, row });
    }
  }
}

function parseTrace(text) {
  const sessions = [];
  let skipped = 0;
  for (const raw of text.split('\n')) {
    if (!raw.trim()) continue;
    try {
      takeLine(sessions, JSON.parse(raw));
    } catch {
      skipped += 1;
    }
  }
  return { sessions, skipped, requests: sessions.flatMap((one) => [...one.requests.values()]).filter((one) => one.rounds.length) };
}

const drafted = (round) => round.row.tree.parents.length - 1;
const keptOf = (round) => round.row.delivered.origins.filter((origin) => origin === 'accepted').length;
const isSpeculative = (request) => request.rounds.some((round) => drafted(round) > 0);
const tokensOf = (request) => request.rounds.flatMap((round) => round.row.delivered.tokens ?? []);
const startOf = (request) => request.begin?.at ?? request.rounds[0].at - PHASES.reduce((sum, name) => sum + request.rounds[0].seconds[name], 0);
const elapsed = (request, count) => (count ? request.rounds[count - 1].at - startOf(request) : 0);

function figures(rounds) {
  const sum = { rounds: rounds.length, tokens: 0, drafted: 0, accepted: 0, keptAt: [], seconds: Object.fromEntries(PHASES.map((name) => [name, 0])) };
  for (const round of rounds) {
    const kept = keptOf(round);
    sum.tokens += round.row.delivered.count;
    sum.drafted += drafted(round);
    sum.accepted += kept;
    for (let depth = 0; depth < kept; depth += 1) sum.keptAt[depth] = (sum.keptAt[depth] ?? 0) + 1;
    for (const name of PHASES) sum.seconds[name] += round.seconds[name];
  }
  return sum;
}

function nameOf(request) {
  const method = isSpeculative(request) ? [...new Set(request.rounds.filter(drafted).map((round) => round.row.plan.drafter))].join('+') : 'plain';
  return `request ${request.id}: ${method}, ${counted(figures(request.rounds).tokens, 'token')}`;
}
