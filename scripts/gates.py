"""Gates: do lengths per instance, cascades or pooling beat a ratio of the tokens per block?

    python scripts/gates.py mass runs/sst2 --out results/gates/sst2
    python scripts/gates.py cascade runs/sst2 --out results/gates/sst2
    python scripts/gates.py pooling runs/sst2 --out results/gates/sst2

Prototypes on one trained supernet, for a decision; nothing here is in the package. What is measured lies
in one JSON line per configuration under ``--out`` and is not measured again. Search rows choose, report rows
score.
"""

import argparse
import copy
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gates_rows import (
    Array,
    Ledger,
    Rows,
    Rule,
    behind_first,
    calibrated,
    checked,
    divergence,
    fed,
    first_block,
    in_turn,
    log_softmax,
    opened,
    ratio_subnet,
    session,
    whole_sentences,
)
from torch import nn

from ldsearch import Bench
from ldsearch.disk.files import write_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.heads import logits_of
from ldsearch.trials.intervals import paired_bootstrap, simultaneous

BUDGETS = (0.2, 0.3, 0.4)  # shares of the full model's MACs
RANDOM, MUTANTS, PARENTS = 7, 8, 4  # of a search, beside one value for all blocks
SHARES = (0.12, 0.16, 0.2, 0.25, 0.3, 0.36, 0.44, 0.55, 0.7)  # of constant ratio
HALF_SHARES = (0.1, 0.14, 0.18, 0.23, 0.29, 0.36)  # of every other block
THRESHOLDS = 24
LIMITS = (0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the full model's time
POOLED = ((0,), (1,), (2,), (0, 2), (0, 1))
RECOVERED = ((1,), (0, 2))  # trained further where steps are given


def searched(
    rows: Rows, kind: str, budget: float, teacher: Array, ledger: Ledger, seed: int
) -> list[dict[str, Any]]:
    """Profiles tried at a budget: one value for all blocks, random ones, mutants of the best."""
    rng = np.random.default_rng([seed, round(1000 * budget)])
    genes = rows.supernet.blocks - 1
    number = len(rows.started)
    some = [int(n) for n in np.linspace(number // 20, number - 1 - number // 20, 3)]
    tried: list[dict[str, Any]] = []

    def measure(profile: Sequence[float]) -> None:
        def make() -> dict[str, Any]:
            start = time.process_time()
            rule = calibrated(rows, kind, profile, budget, some)
            rule, logits, ends = exactly(rows, rule, kind, profile, budget)
            return {
                "profile": list(profile),
                "values": rule.values,
                "share": rows.macs(ends).mean() / rows.full_macs,
                "accuracy": rows.right(logits).mean(),
                "kl": divergence(teacher, logits),
                "seconds": time.process_time() - start,
            }

        tried.append(ledger([kind, budget, seed, list(profile)], make))

    def normal(profile: Array) -> list[float]:
        return [round(float(gene), 4) for gene in profile / profile.mean()]

    measure([1.0] * genes)
    for _ in range(RANDOM):
        measure(normal(np.exp(rng.uniform(-1.4, 1.4, genes))))
    for _ in range(MUTANTS):
        best = sorted(tried, key=lambda one: one["kl"])[:PARENTS]
        first, second = (np.array(best[int(n)]["profile"]) for n in rng.integers(len(best), size=2))
        child = np.where(rng.random(genes) < 0.5, first, second)
        measure(normal(child * np.exp(rng.normal(0, 0.35, genes))))
    return tried


def exactly(
    rows: Rows, rule: Rule, kind: str, profile: Sequence[float], budget: float
) -> tuple[Rule, Array, Array]:
    """The rule with its scale moved until all rows' mean cost is within 1% of the budget; logits, tokens."""
    logits, ends = rows(rule)
    if kind == "mass":
        for _ in range(2):
            share = rows.macs(ends).mean() / rows.full_macs
            if abs(share / budget - 1) < 0.01:
                break
            # Near a solution the cost rises about as a power of 1 - mass.
            moved = [1 - (1 - value) * (share / budget) ** 0.8 for value in rule.values]
            rule = Rule(kind, tuple(moved))
            logits, ends = rows(rule)
    return rule, logits, ends


def mass(search: Rows, report: Rows, out: Path, seed: int, budgets: Sequence[float]) -> None:
    """The first gate."""
    ledger = Ledger(out / "mass.jsonl")
    whole = Rule("ratio", (1.0,) * (search.supernet.blocks - 1))
    teacher = search(whole)[0]
    result: dict[str, Any] = {"rows": [len(search.order), len(report.order)], "budgets": {}}
    reported = Ledger(out / "mass_report.jsonl")

    def scored(kind: str, values: Sequence[float]) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            logits, ends = report(Rule(kind, tuple(values)))
            return {
                "share": report.macs(ends).mean() / report.full_macs,
                **{f"padded_{n}": report.padded_macs(ends, n) / report.full_macs for n in (1, 8, 32)},
                "kept": ends.mean(axis=0).tolist(),
                "right": "".join(str(int(one)) for one in report.right(logits)),
            }

        return dict(reported([kind, list(values)], make))

    full = scored("ratio", whole.values)
    result["full"] = np.mean([int(one) for one in full["right"]])
    for budget in budgets:
        print(f"budget {budget}", flush=True)
        chosen: dict[str, dict[str, Any]] = {}
        for kind in ("ratio", "mass"):
            tried = searched(search, kind, budget, teacher, ledger, seed)
            within = [one for one in tried if one["share"] <= budget * 1.02]
            chosen[f"one {kind}"] = tried[0]
            chosen[f"{kind} by KL"] = min(within, key=lambda one: one["kl"])
            chosen[f"{kind} by accuracy"] = max(within, key=lambda one: one["accuracy"])
        held = {
            name: scored(name.replace("one ", "").split()[0], one["values"]) for name, one in chosen.items()
        }
        right = {name: np.array([float(c) for c in one["right"]]) for name, one in held.items()}
        pairs = [
            ("one mass", "one ratio"),
            ("mass by KL", "ratio by KL"),
            ("mass by accuracy", "ratio by accuracy"),
        ]
        joint = simultaneous([[(1.0, right[a]), (-1.0, right[b])] for a, b in pairs])
        result["budgets"][str(budget)] = {
            "held": {
                n: {k: v for k, v in one.items() if k != "right"}
                | {"accuracy": right[n].mean(), "values": chosen[n]["values"]}
                for n, one in held.items()
            },
            "differences": {
                f"{a} - {b}": asdict(paired_bootstrap(right[a], right[b])) | {"joint": [j.low, j.high]}
                for (a, b), j in zip(pairs, joint, strict=True)
            },
        }
        for pair, found in result["budgets"][str(budget)]["differences"].items():
            mean, low, high = (100 * found[part] for part in ("mean", "low", "high"))
            print(f"  {pair}: {mean:+.2f} ({low:+.2f} to {high:+.2f})")
        for name, one in held.items():
            print(
                f"  {name}: {right[name].mean():.4f} at {one['share']:.3f}, padded b8 {one['padded_8']:.3f}",
                flush=True,
            )
        write_json(out / "mass.json", result)


def timed(bench: Bench, report: Rows, out: Path) -> None:
    """Milliseconds of what ``mass`` compared."""
    result = json.loads((out / "mass.json").read_text())
    ledger = Ledger(out / "mass_ms.jsonl")
    for budget, found in result["budgets"].items():
        rules = {
            name: Rule("mass" if "mass" in name else "ratio", tuple(held["values"]))
            for name, held in found["held"].items()
            if "accuracy" not in name
        }
        for int8 in (True, False):
            for size in (8, 1):
                cell = f"{'int8' if int8 else 'fp32'} b{size}"
                how = partial(in_turn, bench, report, rules, int8=int8, size=size)
                found.setdefault("ms", {})[cell] = ledger(["ms", budget, cell], how)
        print(budget, json.dumps(found["ms"]), flush=True)
    write_json(out / "mass.json", result)


def stored(
    bench: Bench, rows: Rows, subnets: Sequence[Subnet], out: Path, name: str, runtimes: Sequence[str]
) -> Any:
    """Logits (subnets, rows, classes) and milliseconds (subnets, rows), row by row in ONNX Runtime."""
    made: dict[str, tuple[Array, Array]] = {}
    chunk = 50  # rows that one sub-network answers before the next has its turn
    for runtime in runtimes:
        runs: list[Any] = []
        parts = []
        for first in range(0, len(rows.encoded), chunk):
            path = out / "stored" / f"{name}-{runtime}-{first}.npz"
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                runs = runs or [session(bench.supernet, subnet, runtime == "int8") for subnet in subnets]
                batches = [rows.collate([row]) for row in rows.encoded.features[first : first + chunk]]
                pairs = [[fed(run, batch) for batch in batches] for run in runs]
                whole = path.with_suffix(".part.npz")
                np.savez(
                    whole,
                    logits=np.array([[logits[0] for logits, _ in own] for own in pairs]),
                    ms=np.array([[ms for _, ms in own] for own in pairs]),
                )
                whole.rename(path)
            with np.load(path) as known:
                parts.append((known["logits"], known["ms"]))
        made[runtime] = tuple(np.concatenate([part[n] for part in parts], axis=1) for n in (0, 1))  # type: ignore[assignment]
        print(f"{name}, {runtime}: {made[runtime][1].mean(axis=1).round(2).tolist()}", flush=True)
    return made


def cascade(bench: Bench, search: Rows, report: Rows, out: Path, runtimes: Sequence[str], every: int) -> None:
    """The second gate."""
    lengths = search.encoded.lengths.astype(float)
    half = range(0, bench.supernet.blocks, 2)
    subnets = [bench.full]
    subnets += [
        ratio_subnet(bench, share, lengths, range(bench.supernet.blocks))
        for share in SHARES[every - 1 :: every]
    ]
    subnets += [ratio_subnet(bench, share, lengths, half) for share in HALF_SHARES[::every]]
    chosen, scored = (
        stored(bench, rows, subnets, out, name, runtimes)
        for rows, name in ((search, "search"), (report, "report"))
    )
    result: dict[str, Any] = {"subnets": [one.describe() for one in subnets]}
    for name in runtimes:
        own = [Answers(rows.labels, *part[name]) for rows, part in ((search, chosen), (report, scored))]
        result[name] = {
            "singles": [list(pair) for pair in zip(own[1].relative, own[1].right.mean(axis=1), strict=True)]
        }
        pairs = own[0].cascades()
        for limit in LIMITS:
            told = compared(own[0], own[1], pairs, limit)
            result[name][str(limit)] = told
            print(name, limit, json.dumps(told), flush=True)
    write_json(out / "cascade.json", result)


@dataclass
class Answers:
    """What sub-networks answered to the rows of a split, the full model first.

    Args:
        labels: Of the rows.
        logits: Shape (subnets, rows, classes).
        ms: Shape (subnets, rows).
    """

    labels: Array
    logits: Array
    ms: Array

    @cached_property
    def right(self) -> Array:
        """Shape (subnets, rows)."""
        found: Array = (self.logits.argmax(axis=2) == self.labels).astype(float)
        return found

    @cached_property
    def top(self) -> Array:
        """Largest probability, shape (subnets, rows)."""
        return np.exp(np.stack([log_softmax(own) for own in self.logits]).max(axis=2))

    @cached_property
    def relative(self) -> Array:
        """Mean time of each over the full model's."""
        found: Array = self.ms.mean(axis=1) / self.ms[0].mean()
        return found

    def line(self, ms: float) -> Array:
        """Statistics of the best single ones around a time, each in part: on the hull above all of them."""
        means, times = self.right.mean(axis=1), self.relative
        found = self.right[int(np.argmin(times))]
        for first in np.flatnonzero(times <= ms):
            found = max(found, self.right[first], key=np.mean)
            for second in np.flatnonzero(times > ms):
                part = (ms - times[first]) / (times[second] - times[first])
                if (1 - part) * means[first] + part * means[second] > found.mean():
                    found = (1 - part) * self.right[first] + part * self.right[second]
        return found

    def of(self, cheap: int, dear: int, threshold: float) -> tuple[Array, float, float]:
        """Right or not, time over the full model's, and the share of rows that goes on, of a cascade."""
        on = self.top[cheap] < threshold
        right = np.where(on, self.right[dear], self.right[cheap])
        ms = self.ms[cheap].mean() + (self.ms[dear].mean() * on).mean()
        return right, float(ms / self.ms[0].mean()), float(on.mean())

    def cascades(self) -> list[tuple[float, float, tuple[int, int, float]]]:
        """Time, accuracy and what it is, of every pair and threshold."""
        found = []
        for cheap in range(len(self.ms)):
            for dear in range(len(self.ms)):
                if self.relative[dear] > 1.2 * self.relative[cheap]:
                    for cut in np.quantile(self.top[cheap], np.linspace(0.02, 0.7, THRESHOLDS)):
                        right, ms, _ = self.of(cheap, dear, float(cut))
                        found.append((ms, float(right.mean()), (cheap, dear, float(cut))))
        return found


def compared(chosen: Answers, scored: Answers, every: Sequence[Any], limit: float) -> dict[str, Any] | None:
    """The best cascade against the best single one within a share of the full model's time."""
    fits = [number for number, ms in enumerate(chosen.relative) if ms <= limit]
    pairs = [one for one in every if one[0] <= limit]
    if not fits or not pairs:
        return None
    single = max(fits, key=lambda number: chosen.right[number].mean())
    pair = max(pairs, key=lambda one: one[1])[2]
    right, ms, on = scored.of(*pair)
    line = scored.line(ms)
    bound = max(scored.of(*one[2])[0].mean() for one in pairs)
    return {
        "single": [single, float(scored.relative[single]), float(scored.right[single].mean())],
        "cascade": [*pair, ms, float(right.mean()), on],
        "difference": asdict(paired_bootstrap(right, scored.right[single])),
        "line": float(line.mean()),
        "to line": asdict(paired_bootstrap(right, line)),
        "bound": float(bound - max(scored.right[number].mean() for number in fits)),
    }


def pooling(bench: Bench, report: Rows, out: Path, steps: int) -> None:
    """The third gate: averaging neighbours against dropping at equal time, one ratio for all blocks."""
    ledger, genes = Ledger(out / "pooling.jsonl"), bench.supernet.blocks - 1
    rules = {
        f"pool {at}": Rule("pool", tuple(0.5 if n in at else 1.0 for n in range(genes))) for at in POOLED
    }

    def ratio(share: float) -> Rule:
        return calibrated(report, "ratio", [1.0] * genes, share, ())

    grid = {f"ratio {share}": ratio(share) for share in (0.2, 0.3, 0.4, 0.5, 0.6, 0.75)}

    def scored(rule: Rule, trained: int) -> dict[str, Any]:
        rows = report
        if trained:
            rows = replace(report, supernet=recovered(bench, rule, trained))
        logits, ends = rows(rule)
        right = "".join(str(int(one)) for one in rows.right(logits))
        return {"share": rows.macs(ends).mean() / rows.full_macs, "right": right}

    found: dict[str, Any] = {}
    some = [f"pool {at}" for at in RECOVERED]
    for cell in ("int8 b8", "int8 b1"):
        how = partial(in_turn, bench, report, {**rules, **grid}, int8=True, size=int(cell[-1]), batches=16)
        ms = ledger(["ms", cell], how)
        for name, rule in rules.items():
            share = float(
                np.interp(ms[name], [ms[one] for one in grid], [float(one.split()[1]) for one in grid])
            )
            for trained in dict.fromkeys((0, steps if name in some and cell == "int8 b8" else 0)):
                pair = [rule, ratio(round(share, 2))]
                held = [ledger([r.kind, list(r.values), trained], partial(scored, r, trained)) for r in pair]
                right = [np.array([float(c) for c in one["right"]]) for one in held]
                found[f"{name}, {cell}, {trained} steps"] = {
                    "ms": ms[name],
                    "macs": [one["share"] for one in held],
                    "accuracy": [float(one.mean()) for one in right],
                    "difference": asdict(paired_bootstrap(*right)),
                }
                print(name, cell, trained, json.dumps(found[f"{name}, {cell}, {trained} steps"]), flush=True)
                write_json(out / "pooling.json", found)


def recovered(bench: Bench, rule: Rule, steps: int, rate: float = 5e-5) -> Supernet:
    """A copy trained further under one rule, on labels and the full model's outputs alike."""
    torch.manual_seed(0)
    student, rng = copy.deepcopy(bench.supernet), np.random.default_rng(0)
    train = bench.task.encode("train", bench.tokenizer, bench.record.reference)
    collate = bench.task.collate(bench.tokenizer, None)
    chosen = torch.optim.AdamW(student.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(chosen, lambda n: min(n / 20, (steps - n) / steps))
    student.train()
    for _ in range(steps):
        batch = collate([train[int(row)] for row in rng.integers(len(train), size=32)])
        labels = batch.pop("labels")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                taught = logits_of(bench.supernet(batch, bench.full)).float().log_softmax(dim=1)
            logits = behind_first(student, rule, range(student.blocks), *first_block(student, batch))[
                0
            ].float()
        loss = nn.functional.cross_entropy(logits, labels)
        loss = loss + nn.functional.kl_div(
            logits.log_softmax(dim=1), taught, log_target=True, reduction="batchmean"
        )
        chosen.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        chosen.step()
        schedule.step()
    return student.eval()


def main() -> None:
    """One gate on one supernet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gate", choices=("sst2", "check", "mass", "ms", "cascade", "pooling"))
    parser.add_argument("supernet", type=Path, help="its folder; of the gate sst2, which makes data: SST-2")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--score", type=Path, help="JSON lines of other rows that score: text and label")
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS, help="shares of the full MACs")
    parser.add_argument("--runtimes", nargs="+", default=("int8", "fp32"), help="of the cascades")
    parser.add_argument("--every", type=int, default=1, help="one in so many single ones for the cascades")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=0, help="of training both sides of the pooling gate further"
    )
    parser.add_argument("--fp32", action="store_true", help="score by fp32 products, not bf16")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.gate == "sst2":
        whole_sentences(options.supernet, options.out)
        return
    bench, search, report = opened(options.supernet, options.score)
    search, report = (replace(rows, precise=options.fp32) for rows in (search, report))
    print(f"{len(search.order)} rows choose, {len(report.order)} score", flush=True)
    {
        "check": lambda: checked(bench, report),
        "mass": lambda: mass(search, report, options.out, options.seed, options.budgets),
        "ms": lambda: timed(bench, report, options.out),
        "cascade": lambda: cascade(bench, search, report, options.out, options.runtimes, options.every),
        "pooling": lambda: pooling(bench, report, options.out, options.steps),
    }[options.gate]()


if __name__ == "__main__":
    main()
