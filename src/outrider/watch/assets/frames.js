// A generation as a row of frames: a drafted round has three (draft, score, keep), any other one, and the end has its own.
const STEPS = { draft: 'Draft', score: 'Score', keep: 'Keep' };

function framesOf(request) {
  const frames = request.rounds.flatMap((round, place) => (drafted(round) ? ['draft', 'score', 'keep'] : ['keep']).map((step) => ({ place, step })));
  return [...frames, { place: request.rounds.length, step: 'end' }];
}

// The rounds whose tokens are written when a frame is shown.
const roundsBefore = (frame) => frame.place;

function sentence(request, frame) {
  if (frame.step === 'end') return endSentence(request);
  const round = request.rounds[frame.place];
  const { plan } = round.row;
  if (frame.step === 'draft') return `${plan.drafter} drafts ${counted(drafted(round), 'token')}${branches(round)}: nobody knows yet whether they are right.`;
  if (frame.step === 'score') return `The target scores all ${drafted(round) + 1} places in one pass, in ${duration(round.seconds.score)}.`;
  return outcome(round);
}

function branches(round) {
  const leaves = leavesOf(round.row.tree.parents);
  return leaves > 1 ? ` in a tree with ${leaves} ends` : '';
}

function leavesOf(parents) {
  const inner = new Set(parents);
  return parents.filter((_, node) => !inner.has(node)).length;
}

function outcome(round) {
  const { delivered, next, plan } = round.row;
  const total = `${counted(delivered.count, 'token')} from one pass of the target`;
  if (!drafted(round)) return `${undrafted(plan)}: the target writes ${quoted(next.text)} itself, as in plain decoding.`;
  const kept = keptOf(round);
  if (next.origin === 'accepted') return `${counted(kept, 'drafted token')} kept, and the text ends there: ${total}.`;
  if (next.origin === 'bonus') return `All ${kept} on the way kept, and the target adds ${quoted(next.text)}: ${total}.`;
  return `${kept ? `${kept} kept` : 'None kept'}, then the target writes ${quoted(next.text)} instead: ${total}.`;
}

function undrafted(plan) {
  if (plan.depth) return `${plan.drafter} found nothing to draft`;
  return plan.reason ? `No draft (${plan.reason})` : 'No draft';
}

function endSentence(request) {
  const sum = figures(request.rounds);
  const ending = request.end ? `It ended with “${request.end.finish}”${request.end.error ? ` (${request.end.error})` : ''}.` : 'The trace ends here.';
  return `${counted(sum.tokens, 'token')} from ${counted(sum.rounds, 'pass', 'passes')}. ${ending}`;
}
