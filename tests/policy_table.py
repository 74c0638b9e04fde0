"""Prints docs/policy.md's table: the automatic policy in simulated worlds, over plain / over the best fixed setting.

    python tests/policy_table.py

The machines do not stall here (test_policy_auto.py has stalls), so that the settings are compared on equal terms.
"""

import math

from helpers_policy import Machine, simulate
from helpers_speed import quick
from outrider.policy.auto import AutoPolicy
from test_policy_auto import KINDS, MACHINES, SHAPES, fixed_speeds, machine, texts

ROWS = (1, 4, 8, 16)


def main() -> None:
    Machine.jitter = lambda self: max(0.7, self._coins.gauss(1, self.noise))  # pyright: ignore
    print("| | " + " | ".join(KINDS) + " |\n|---|" + "---|" * len(KINDS))
    ratios: list[tuple[float, float]] = []
    for name in MACHINES:
        for rows in ROWS:
            line = [_cell(name, kind, rows) for kind in KINDS]
            ratios += line
            print(
                f"| {name}, {rows} {'row' if rows == 1 else 'rows'} | "
                + " | ".join(f"{a:.2f} / {b:.2f}" for a, b in line)
                + " |",
                flush=True,
            )
    mean = math.exp(sum(math.log(b) for _, b in ratios) / len(ratios))
    print(f"\nworst over plain {min(a for a, _ in ratios):.3f}; worst over the best {min(b for _, b in ratios):.3f}")
    print(f"below 0.97 of plain: {sum(a < 0.97 for a, _ in ratios)} of {len(ratios)}; below 0.95 of the best:", end=" ")
    print(f"{sum(b < 0.95 for _, b in ratios)}; mean over the best {mean:.3f}")


def _cell(name: str, kind: str, rows: int) -> tuple[float, float]:
    given = texts(kind, count=max(12, 4 * rows))
    fixed = fixed_speeds(name, given, rows)
    found = simulate(machine(name), AutoPolicy(SHAPES), given, num_rows=rows).speed
    return found / fixed["none", 0], found / max(fixed.values())


if __name__ == "__main__":
    with quick():
        main()
