"""Writes one HTML page on finished searches; measures health and block importance first where told to."""

import sys
from typing import Any

from ldsearch.bench import Bench
from ldsearch.commands.console import open_bench, progress_bars, quiet_libraries, resumable
from ldsearch.commands.health import health, print_health
from ldsearch.commands.importance import block_importance, print_importance, stack_of
from ldsearch.commands.options import Report
from ldsearch.commands.recover import FixedOptions
from ldsearch.commands.report_page import report
from ldsearch.errors import RunError
from ldsearch.runs import SUPERNET_FILE, Run, newest_supernet


def main(options: Report) -> dict[str, Any]:
    """Measure what is asked for, then write the page, unless supernets alone were named."""
    measured: dict[str, Any] = {}
    supernets = [folder for folder in options.folders if (folder / SUPERNET_FILE).is_file()]
    if options.health or options.importance:
        quiet_libraries()
        searched = [Run.open(folder).supernet for folder in options.folders if folder not in supernets]
        homes = list(dict.fromkeys(path.resolve() for path in (*supernets, *searched)))
        homes = homes or [newest_supernet(options.runs)]
        if options.name is not None and len(homes) * (options.health + options.importance) > 1:
            raise RunError("--name names one folder: measure one thing of one supernet with it")
        for home in homes:
            bench = open_bench(home, options.runs, options.data)
            if options.health:
                measured["health"] = _measure_health(bench, options)
            if options.importance:
                measured["importance"] = _measure_importance(bench, options)
        if len(supernets) == len(options.folders):
            return measured
        page = report([folder for folder in options.folders if folder not in supernets], options.output)
    else:
        page = report(options.folders, options.output)
    kinds = f"{len(page.figures) // 2} figures beside it, each as SVG and PNG"
    print(f"written: {page.page} ({kinds})")
    return {"page": str(page.page), **measured}


def _measure_health(bench: Bench, options: Report) -> dict[str, Any]:
    folder = options.runs / (options.name or f"{bench.folder.name}-health")
    how = FixedOptions(steps=options.steps, loss="label", seed=options.seed, trainer=options.trainer)
    with resumable("run the same command again; finished sub-networks are kept"):
        result = health(
            bench,
            folder,
            count=options.count,
            space=options.space,
            options=how,
            announce=lambda text: print(text, file=sys.stderr),
        )
    return print_health(result)


def _measure_importance(bench: Bench, options: Report) -> dict[str, Any]:
    stack = stack_of(bench, options.stack)
    suffix = f"-{stack}" if len(bench.supernet.depths) > 1 else ""
    folder = options.runs / (options.name or f"{bench.folder.name}-importance{suffix}")
    with resumable("run the same command again; nothing measured is lost"), progress_bars() as bars:
        result = block_importance(
            bench,
            folder,
            keep=options.keep,
            subsets=options.subsets,
            stack=options.stack,
            objective=options.objective,
            seed=options.seed,
            progress=bars,
        )
    return print_importance(result)
