"""The sentences below the table of ``ldsearch compress``: what rows did what, what was chosen, how sure."""

from collections.abc import Mapping, Sequence
from typing import Any

from ldsearch.bench import Bench
from ldsearch.compression.search import Found
from ldsearch.compression.texts import OwnTexts
from ldsearch.runs.compressed import Compressed
from ldsearch.runs.summary import gained
from ldsearch.supernet.correction import correction_of
from ldsearch.training.saliency import TOKENS
from ldsearch.trials.goal import Goal

_GAIN = 0.9  # of the full model's time: more is next to nothing gained
_NEAR = 1.05  # times a budget in time that what is chosen may take without being told


def on_data(texts: OwnTexts, bench: Bench) -> list[str]:
    """Sentences that say which rows were used for what."""
    rows = {name: len(own) for name, own in bench.task.splits.items()}
    fitted = "fitted the token score"
    if correction_of(bench.supernet.model) is not None:
        fitted = f"fitted the correction of means (up to {TOKENS:,} tokens of them the token score)"
    sentence = (
        f"of {texts.given:,} {texts.kind.rows_are} (cut to {texts.reference} tokens) {rows['train']:,} "
        f"{fitted}, {rows['search']:,} chose, and {rows['report']:,}, which chose "
        "nothing, gave the scores above"
    )
    if bench.task.together:
        encoded = bench.evaluator.encoded
        sentence += f"; a query is {len(encoded) / encoded.examples:.1f} rows of a batch"
    if "report" not in texts.labelled:
        return [sentence, texts.kind.own_answers]
    if "search" not in texts.labelled:
        sentence += "; what chose had no labels: there the scores are agreement with the full model"
    return [sentence]


def on_choice(done: Compressed, found: Found, goal: Goal) -> list[str]:
    """Sentences on the choice, what it gains, and whether it takes longer than was asked for."""
    best = found.run.best
    full, chosen, *_ = done.points
    ratios = {cell: ms / full["ms"][cell] for cell, ms in chosen["ms"].items()}
    selector = best.selector
    if goal.in_time is not None:
        selector = f"{goal.take.text}, by the times of some ratios {selector}"
    said = [f"chosen ({selector}): {found.words}; {gained(done.points, done.runtime)}"]
    look = "; see what twice as fast loses: --budget 2x"
    if goal.in_time is not None:
        look, cell = "", "{}x{}".format(*goal.in_time.cell)
        asked = goal.in_time.absolute({"latency": full["ms"][cell]})
        if chosen["ms"][cell] > _NEAR * asked:
            said.append(
                f"at {cell} it took {chosen['ms'][cell]:.3g} ms, and {asked:.3g} were asked for: times vary "
                "so much here; ask for a faster one, or again when nothing else runs"
            )
    # Budgets of the file have the whole model too, but a file of it alone is faster.
    whole = f"ldsearch export MODEL OUTPUT --subnet full --format onnx --runtime {done.runtime}"
    blocks = len(best.subnet.stacks()["encoder"].blocks)
    fewer = f"--train 15 --blocks {max(1, 2 * blocks // 3)}"
    if not found.drops:
        said.append(
            f"a file of the full model alone is faster: {whole}; see what half of the MACs loses: "
            f"--budget 0.5; a training loses less: --train 15, or {fewer}"
        )
    elif slow := [cell for cell, ratio in ratios.items() if ratio > _GAIN]:
        length = slow[0].partition("x")[2]
        where = "" if len(slow) == len(ratios) else f"at {slow[0]} "
        where += "next to " if where and ratios[slow[0]] < 1 else ""
        said.append(
            f"{where}nothing is gained: inputs of {length} tokens have little to drop; serve the whole "
            f"model: {whole}{look}; or leave blocks out, which gains more there and takes a training: {fewer}"
        )
    return said


def on_times(done: Compressed, exported: Sequence[Mapping[str, Any]], begins: bool) -> list[str]:
    """Sentences on how far to trust the milliseconds, and on the minutes that it took."""
    took = f"{done.seconds / 60:.1f} minutes" if done.seconds >= 60 else f"{done.seconds:.0f} s"
    said = [f"took {took}" if begins else f"this call took {took}"]
    if any(line["noisy"] for row in exported for line in row["latency"]):
        again = f"remove {done.folder / 'model'} and give the same command when nothing else runs"
        said.insert(0, f"noisy machine: the times above may be off; to time again {again}")
    return said
