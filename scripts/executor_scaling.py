"""How does the prefix-tree executor scale with rows, candidates, depth and length, and in how much memory?

Four sweeps around one base case of ``bench_executor.py``: counts and time of the executor and of running
one by one, in batches of a size that suits the latter. Memory is measured in passes of its own: the most
bytes that the executor's tensors hold at one time, with and without a prefix cache; the script stops where
that is more than the executor's own bound. The last line is one JSON object.

    OMP_NUM_THREADS=1 python scripts/executor_scaling.py --out results/search
"""

import argparse
import json
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from bench_executor import Case, arguments, measure, prepare
from matplotlib.figure import Figure
from torch.utils._python_dispatch import TorchDispatchMode

from ldsearch.disk.fingerprint import versions
from ldsearch.evaluation.executor import Executor
from ldsearch.evaluation.prefixes import PrefixCache
from ldsearch.reports.style import save_figure
from ldsearch.reports.tables import write_csv

MIB = 2**20


class Plan(NamedTuple):
    """Options of the base case, what each sweep sets, and the bytes of the prefix cache."""

    base: dict[str, int]
    sweeps: dict[str, tuple[int, ...]]
    cache: int


# One by one, 16 rows are the fastest batch at this size: more are padded more. Two blocks have 12
# configurations in all, so depth starts at three.
FULL = Plan(
    {"subnets": 64, "alone": 16, "rows": 64, "batch_size": 16, "hidden": 128, "heads": 4, "rounds": 2},
    {
        "rows": (16, 32, 64, 128, 256),
        "subnets": (8, 16, 32, 64, 128, 256, 512),
        "blocks": (3, 6, 12, 24),
        "mean": (8, 16, 25, 48, 96),
    },
    32 * MIB,
)
QUICK = Plan(
    {"subnets": 8, "alone": 4, "rows": 8, "batch_size": 8, "hidden": 32, "heads": 2, "rounds": 1, "mean": 12},
    {"rows": (4, 8), "subnets": (8, 32), "blocks": (3, 6), "mean": (6, 12)},
    MIB // 4,
)
# What each sweep is drawn against: a column, and a word for it.
AXES = {
    "rows": ("rows", "validation rows"),
    "subnets": ("subnets", "candidates"),
    "blocks": ("blocks", "blocks"),
    "mean": ("mean_length", "mean true length, tokens"),
}


class Alive(TorchDispatchMode):
    """The most bytes that tensors made under it held at one time.

    Args:
        case: Its weights and inputs were there before; views of them hold nothing.
    """

    def __init__(self, case: Case) -> None:
        super().__init__()
        before = [*case.supernet.model.parameters(), *case.supernet.model.buffers()]
        before += [tensor for _, batch in case.like_batches for tensor in batch.values()]
        self._before = {tensor.untyped_storage().data_ptr() for tensor in before}
        self._holders: Counter[int] = Counter()
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, torch.Tensor):
                self._hold(one)
        self.most = max(self.most, self.now)
        return made

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key not in self._before:
            self.now += 0 if self._holders[key] else size
            self._holders[key] += 1
            weakref.finalize(tensor, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._holders[key] -= 1
        self.now -= 0 if self._holders[key] else size


def peak_bytes(case: Case, cache: int = 0) -> int:
    """The most that all batches take, one after the other; their caches stay, as an ``Evaluator``'s do."""
    executor, tokens = Executor(case.supernet), [case.lengths[index].sum() for index, _ in case.like_batches]
    caches = [PrefixCache(int(cache * own / sum(tokens))) if cache else None for own in tokens]
    with Alive(case) as alive:
        for (_, batch), kept in zip(case.like_batches, caches, strict=True):
            executor.run(batch, case.subnets, lambda ends, logits: None, kept)
    return alive.most


def allowed_bytes(case: Case) -> int:
    """What the executor's own bound lets one path through the largest batch take."""
    plenty = 2**60
    rows = Executor(case.supernet, plenty).rows
    sizes = [batch["input_ids"].shape for _, batch in case.like_batches]
    return max(count * plenty // rows(length) for count, length in sizes)


def measured(options: argparse.Namespace, cache: int) -> dict[str, Any]:
    """One point: a row of the table, without the name of its sweep.

    Raises:
        SystemExit: If memory goes over its bound.
    """
    result, case = measure(options), prepare(options)
    allowed, peak, cached = allowed_bytes(case), peak_bytes(case), peak_bytes(case, cache)
    if peak > allowed or cached > allowed + cache:
        raise SystemExit(f"{peak} bytes, bound {allowed}; with a cache {cached}, bound {allowed + cache}")
    seconds = result["seconds"]
    return {
        **{name: result[name] for name in ("rows", "subnets", "blocks", "mean_length", "reference")},
        "one_by_one_macs": result["one_by_one_macs"],
        "executed_macs": result["executed_macs"],
        "one_by_one_in_full_passes": result["one_by_one_in_full_passes"],
        "executed_in_full_passes": result["executed_in_full_passes"],
        "times_fewer_macs": result["times_fewer_macs"],
        "block_evaluations_one_by_one": result["block_evaluations_one_by_one"],
        "block_evaluations": result["block_evaluations"],
        # Of so many sub-networks, the time one by one is scaled by MACs to all.
        "subnets_timed_one_by_one": result["timed_one_by_one"],
        "one_by_one_seconds_scaled": seconds["one_by_one"],
        "executor_seconds": seconds["executor"],
        "times_faster": result["times_faster"],
        "peak_bytes": peak,
        "peak_bytes_allowed": allowed,
        "peak_bytes_with_cache": cached,
        "cache_bytes": cache,
        "largest_difference": result["largest_difference"],
    }


def swept(plan: Plan) -> pd.DataFrame:
    """All points of all sweeps; a case that is in several of them is measured once."""
    base, known, rows = {**vars(arguments().parse_args([])), **plan.base}, {}, []
    for sweep, values in plan.sweeps.items():
        for value in values:
            options = {**base, sweep: value}
            key = tuple(options.values())
            if key not in known:
                known[key] = measured(argparse.Namespace(**options), plan.cache)
            rows.append({"sweep": sweep, **(row := known[key])})
            print(
                f"{sweep} {value}: {row['executed_in_full_passes']} F, {row['times_fewer_macs']} times fewer "
                f"MACs, {row['times_faster']} times faster, peak {row['peak_bytes'] / MIB:.1f} MiB, with "
                f"cache {row['peak_bytes_with_cache'] / MIB:.1f} MiB",
                flush=True,
            )
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> Figure:
    """A column for each sweep; from above: factors, seconds, memory."""
    figure = Figure(figsize=(13.5, 8.6), layout="constrained")
    grid = figure.subplots(3, len(AXES), sharex="col", sharey="row", squeeze=False)
    for (sweep, (name, label)), (factors, seconds, memory) in zip(AXES.items(), grid.T, strict=True):
        rows = table[table["sweep"] == sweep]
        x = rows[name]
        factors.plot(x, rows["times_fewer_macs"], "o-", ms=4, color="tab:blue", label="fewer MACs")
        factors.plot(x, rows["times_faster"], "s--", ms=4, color="tab:orange", label="less time")
        alone, own = rows["one_by_one_seconds_scaled"], rows["executor_seconds"]
        seconds.plot(x, alone, "s--", ms=4, color="tab:red", label="one by one")
        seconds.plot(x, own, "o-", ms=4, color="tab:blue", label="executor")
        allowed, cache = rows["peak_bytes_allowed"] / MIB, rows["cache_bytes"] / MIB
        memory.plot(x, rows["peak_bytes"] / MIB, "o-", ms=4, color="tab:blue", label="no cache")
        memory.plot(x, allowed, ":", color="tab:blue")
        with_cache = rows["peak_bytes_with_cache"] / MIB
        memory.plot(x, with_cache, "s--", ms=4, color="tab:green", label=f"cache of {cache.iloc[0]:g} MiB")
        memory.plot(x, allowed + cache, ":", color="tab:green")
        memory.set_xlabel(label)
        for axes in (factors, seconds, memory):
            axes.set_xscale("log", base=2)
            axes.set_xticks(x, [f"{value:.0f}" for value in x])
            axes.set_xticks([], minor=True)
            axes.grid(alpha=0.25)
    grid[0, 0].set(ylabel="times less than one by one", ylim=(0, None))
    grid[1, 0].set(ylabel="seconds", yscale="log")
    grid[2, 0].set(ylabel="peak of live tensors, MiB\n(dotted: bound)")
    grid[2, 0].set_yscale("log", base=2)
    for axes in grid[:, 1]:
        axes.legend(fontsize=8)
    for axes in grid[1:, 0]:
        axes.yaxis.set_major_formatter("{x:g}")
    figure.suptitle("Prefix-tree executor: one thing varied at a time")
    return figure


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where executor_scaling.csv and .png go")
    parser.add_argument("--quick", action="store_true", help="two tiny points a sweep, to try the script")
    options = parser.parse_args()

    plan, start = QUICK if options.quick else FULL, time.perf_counter()
    table = swept(plan)
    options.out.mkdir(parents=True, exist_ok=True)
    write_csv(table, options.out / "executor_scaling.csv")
    save_figure(draw(table), options.out / "executor_scaling.png")
    candidates = table[table["sweep"] == "subnets"]
    result = {
        **plan._asdict(),
        "points": len(table),
        "peak_bytes_by_candidates": dict(
            zip(candidates["subnets"].tolist(), candidates["peak_bytes"].tolist(), strict=True)
        ),
        "largest_difference": float(table["largest_difference"].max()),
        "seconds": round(time.perf_counter() - start, 1),
        "versions": versions(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
