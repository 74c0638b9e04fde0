"""Prints docs/policy.md's table of real runs: the automatic policy against plain decoding and every fixed depth.

    python tests/policy_real.py [--target smollm2-135m] [--drafter suffix] [--num-prompts 12] [--tokens 64]

All settings take turns on every prompt, so that a noisy machine harms all alike, and all must write the same text. One
engine per setting serves all prompts, the automatic one too: it begins with nothing and learns as it goes. A kind's
best fixed depth is chosen afterwards, by the very runs that it is compared in, which flatters it.
"""

import argparse
import math
from collections import defaultdict
from time import perf_counter

import torch

from outrider import Engine
from outrider.api import named_drafter
from outrider.policy.fixed import FixedPolicy
from outrider.prompts import load_prompts
from outrider.targets.loading import load_target

DEPTHS = (1, 2, 3, 4, 6, 8, 12)
TEMPERATURES = (0.0, 0.7, 1.0)


def engines(target, spec):
    """By setting: plain, the fixed depths, auto."""
    made = {"plain": Engine(target), "auto": Engine(target, named_drafter(spec), policy="auto")}
    for depth in DEPTHS:
        drafter = named_drafter(spec)
        made[f"depth {depth}"] = Engine(target, drafter, policy=FixedPolicy(drafter.name, depth))
    return made


def measure(made, prompts, tokenizer, tokens):
    """Seconds per token by (kind, temperature, setting)."""
    seconds = defaultdict(float)
    for number, prompt in enumerate(prompts):
        ids = prompt.encode(tokenizer)
        for temperature in TEMPERATURES:
            texts = set()
            order = list(made)[number % len(made) :] + list(made)[: number % len(made)]
            for name in order:
                start = perf_counter()
                done = made[name].generate(ids, max_new_tokens=tokens, temperature=temperature, seed=7)
                seconds[prompt.kind, temperature, name] += (perf_counter() - start) / len(done.token_ids)
                texts.add(done.token_ids)
            assert len(texts) == 1, f"{prompt.id}: the settings wrote different texts"
        print(f"{number + 1} of {len(prompts)} prompts", flush=True)
    return seconds


def report(seconds, made):
    cells = {(kind, temperature) for kind, temperature, _ in seconds}
    over_plain, over_best = [], []
    print("\n| kind, temperature | auto over plain | best fixed | auto over it |\n|---|---|---|---|")
    for kind, temperature in sorted(cells):
        cost = {name: seconds[kind, temperature, name] for name in made}
        best = min((name for name in made if name != "auto"), key=cost.__getitem__)
        over_plain.append(cost["plain"] / cost["auto"])
        over_best.append(cost[best] / cost["auto"])
        print(f"| {kind}, {temperature} | {over_plain[-1]:.2f} | {best} | {over_best[-1]:.2f} |")
    print(f"\nworst over plain {min(over_plain):.3f}, mean {_mean(over_plain):.3f}")
    print(f"worst over the best fixed {min(over_best):.3f}, mean {_mean(over_best):.3f}")
    for name in made:
        total = sum(seconds[kind, temperature, name] for kind, temperature in cells)
        print(f"all prompts, {name}: {sum(seconds[k, t, 'plain'] for k, t in cells) / total:.3f} x plain")


def _mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--drafter", default="suffix")
    parser.add_argument("--num-prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    loaded = load_target(given.target)
    settings = engines(loaded, given.drafter)
    report(measure(settings, load_prompts(limit=given.num_prompts), loaded.tokenizer, given.tokens), settings)
