"""What the gates run: rules per block on stored first blocks, in torch and as ONNX graphs; a ledger."""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ldsearch import Bench
from ldsearch.costs.macs import EncoderShape
from ldsearch.latency.int8 import quantise
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.subnet import WHOLE, Subnet
from ldsearch.supernet import Supernet, graph
from ldsearch.supernet.graph import Graph, GraphBlock, trace
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.stages import Block
from ldsearch.supernet.tokens import State, drop_tokens
from ldsearch.tasks import Encoded
from ldsearch.tasks.base import features_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """What each executed block keeps.

    Args:
        kind: ``ratio``: a share of the input's own tokens; ``mass``: the best tokens that hold a share of the
            scores of those that entered; ``pool``: neighbours averaged behind a block, where it says 0.5.
        values: One per executed block but the last, which is left by the first token alone.
    """

    kind: str
    values: tuple[float, ...]

    def counts(self, place: int, scores: Tensor, real: Tensor, lengths: Tensor) -> Tensor:
        """Tokens of each row that leave the block at a place, shape (B,)."""
        value = self.values[place]
        if self.kind == "ratio":
            return (lengths * value - 1e-6).ceil().long().clamp(min=1)
        return massive(ranked(scores, real).sort(dim=1, descending=True).values, scores[:, 0], value)


def ranked(scores: Tensor, real: Tensor) -> Tensor:
    """Scores of everything but the first token, pads last: shape (B, n - 1)."""
    return scores[:, 1:].float().masked_fill(~real[:, 1:], 0.0)


def massive(best: Tensor, first: Tensor, mass: float) -> Tensor:
    """How many tokens, the first included, hold a mass of all scores; the others' from the best down."""
    total = best.sum(dim=1) + first
    before = first[:, None] + best.cumsum(dim=1) - best  # held without this one
    return 1 + ((before < mass * total[:, None] * (1 - 1e-6)) & (best > 0)).sum(dim=1)


class RuleBlock(Block):
    """A block whose kept counts come from its scores."""

    def drop(self, state: State, scores: Tensor, keep: Any) -> tuple[State, Tensor]:
        """As of ``Block``; ``keep`` is a function of scores and real positions."""
        entered = state.real.sum(dim=1)
        counts = torch.minimum(keep(scores, state.real), entered)
        return drop_tokens(replace(state, padded=True), scores, counts.tolist(), self.keep_first)


def pooled(state: State) -> State:
    """Neighbours averaged two by two, the first token left alone."""
    hidden, real = state.hidden[:, 1:], state.real[:, 1:]
    weight = real[..., None].to(hidden.dtype)
    # One pad behind an odd number; a graph cannot ask which it is.
    behind, counted = (nn.functional.pad(one, (0, 0, 0, 1)) for one in (hidden * weight, weight))
    both = (counted[:, :-1:2] + counted[:, 1::2]).clamp(min=1)
    mean = (behind[:, :-1:2] + behind[:, 1::2]) / both
    joined = torch.cat([state.hidden[:, :1], mean], dim=1)
    # Pads are last, so the first of two is real where either is.
    return State(joined, torch.cat([state.real[:, :1], real[:, ::2]], dim=1), padded=True)


def first_block(supernet: Supernet, batch: Mapping[str, Tensor]) -> tuple[State, Tensor, Tensor]:
    """State behind block 0 with all tokens, their scores, true lengths."""
    assert supernet.pipeline is not None
    entered, lengths = supernet.pipeline.embed(batch)
    state, scores = supernet.pipeline.blocks[0].run_sublayers(entered, None, WHOLE, scored=True)
    assert scores is not None
    return state, scores, torch.tensor(lengths)


def behind_first(
    supernet: Supernet, rule: Rule, blocks: Sequence[int], state: State, scores: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits, and tokens (B, blocks + 1) at the ends of the blocks, from what ``first_block`` gives."""
    pipeline, kept = supernet.pipeline, [lengths]
    assert pipeline is not None
    for place, block in enumerate(blocks[:-1]):
        runs = RuleBlock(**vars(pipeline.blocks[block]))

        def keep(scores: Tensor, real: Tensor, place: int = place) -> Tensor:
            return rule.counts(place, scores, real, lengths)

        if rule.kind == "pool":
            state = runs.run_sublayers(state, None, WHOLE)[0] if place else state
            state = pooled(state) if rule.values[place] < 1 else state
        elif place:
            state = runs.run_sublayers(state, keep, WHOLE)[0]
        else:
            state = runs.drop(state, scores, keep)[0]
        kept.append(state.real.sum(dim=1))
    state = pipeline.blocks[blocks[-1]].run_sublayers(state, None, WHOLE, first_only=True)[0]
    ends = torch.stack([*kept, torch.ones_like(lengths)], dim=1)
    return logits_of(pipeline.head(state, state.real)), ends


def macs_of(shape: EncoderShape, entered: Array, left: Array) -> Array:
    """MACs of each row, as ``ldsearch.costs.macs`` counts them, from the tokens at each block's ends."""
    d, ff = shape.hidden, shape.feed_forward
    blocks = 3 * entered * d**2 + left * d**2 + 2 * entered**2 * d + shape.ffn_matrices * left * d * ff
    total: Array = blocks.sum(axis=1) + shape.head_per_example
    return total


@dataclass
class Rows:
    """Rows of one split, and one supernet that runs on them by any rule.

    The first block's attention and feed-forward layer do not depend on what it drops, so they run once.

    Args:
        supernet: Whose first block always runs.
        encoded: The rows.
        collate: Makes batches of them.
        batch: Rows in one.
        precise: fp32; else bf16 products.
    """

    supernet: Supernet
    encoded: Encoded
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Tensor]]
    batch: int = 32
    precise: bool = False

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Row numbers, shortest first."""
        return np.argsort(self.encoded.lengths, kind="stable")

    @cached_property
    def labels(self) -> Array:
        """Of each row."""
        return np.array([row["labels"] for row in self.encoded])

    @cached_property
    def started(self) -> list[tuple[State, Tensor, Tensor]]:
        """Per batch: the state behind block 0 with all tokens, its scores, true lengths."""
        made = []
        with torch.inference_mode(), self.precision():
            for first in range(0, len(self.order), self.batch):
                rows = [self.encoded[int(row)] for row in self.order[first : first + self.batch]]
                state, scores, lengths = first_block(self.supernet, self.collate(rows))
                made.append((replace(state, hidden=state.hidden.float()), scores.float(), lengths))
        return made

    def precision(self) -> Any:
        """bf16 or not."""
        return nullcontext() if self.precise else torch.autocast("cpu", dtype=torch.bfloat16)

    def __call__(
        self, rule: Rule, blocks: Sequence[int] = (), batches: Sequence[int] | None = None
    ) -> tuple[Array, Array]:
        """Logits (rows, classes), and tokens (rows, blocks + 1) at the ends of the blocks, in ``order``."""
        outputs, ends = [], []
        blocks = blocks or range(self.supernet.blocks)
        with torch.inference_mode(), self.precision():
            for number in range(len(self.started)) if batches is None else batches:
                logits, kept = behind_first(self.supernet, rule, blocks, *self.started[number])
                outputs.append(logits.float())
                ends.append(kept)
        return torch.cat(outputs).numpy().astype(float), torch.cat(ends).numpy().astype(float)

    def macs(self, ends: Array) -> Array:
        """Of each row."""
        return macs_of(self.supernet.shape, ends[:, :-1], ends[:, 1:])

    def padded_macs(self, ends: Array, batch: int) -> float:
        """Mean of a row where every row of a batch costs what its longest does, at each block."""
        parts = [ends[first : first + batch] for first in range(0, len(ends), batch)]
        return float(
            np.concatenate([self.macs(np.repeat(p.max(axis=0)[None], len(p), 0)) for p in parts]).mean()
        )

    @cached_property
    def full_macs(self) -> float:
        """Mean MACs of the full model, whose last block only the first token leaves."""
        lengths = self.encoded.lengths.astype(float)
        ends = np.repeat(lengths[:, None], self.supernet.blocks + 1, axis=1)
        return float(self.macs(ends).mean())

    def right(self, logits: Array) -> Array:
        """1 for each row, in ``order``, that is labelled right."""
        found: Array = (logits.argmax(axis=1) == self.labels[self.order]).astype(float)
        return found


class Ledger:
    """JSON lines, one per measured configuration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self.known: dict[str, Any] = dict(json.loads(line) for line in lines)

    def __call__(self, key: Sequence[Any], make: Callable[[], Any]) -> Any:
        """What was made for a key, or is made now."""
        if (text := json.dumps(key)) not in self.known:
            self.known[text] = make()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([text, self.known[text]]) + "\n")
        return self.known[text]


def log_softmax(logits: Array) -> Array:
    """Of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    whole: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return whole


def divergence(teacher: Array, logits: Array) -> float:
    """Mean KL to the full model."""
    true = log_softmax(teacher)
    return float((np.exp(true) * (true - log_softmax(logits))).sum(axis=1).mean())


def rule_of(kind: str, profile: Sequence[float], scale: float, reference: int) -> Rule:
    """The rule of a profile at a scale between 0 and 1; a ratio is a whole number of reference tokens."""
    values = np.array([scale**gene for gene in profile])
    if kind == "ratio":
        values = np.maximum(1, np.round(values.cumprod() * reference)) / reference
    return Rule(kind, tuple(values.tolist()))


def calibrated(rows: Rows, kind: str, profile: Sequence[float], budget: float, some: Sequence[int]) -> Rule:
    """The rule of a profile that costs the budget, counted on some batches (of a ratio: on all rows)."""
    low, high = (0.02, 1.0) if kind == "ratio" else (0.2, 1.0)
    lengths = rows.encoded.lengths[rows.order].astype(float)
    for _ in range(30 if kind == "ratio" else 7):
        rule = rule_of(kind, profile, (low + high) / 2, rows.encoded.reference)
        if kind == "ratio":
            kept = [np.maximum(1, np.ceil(lengths * value - 1e-6)) for value in rule.values]
            share = (
                rows.macs(np.stack([lengths, *kept, np.ones_like(lengths)], axis=1)).mean() / rows.full_macs
            )
        else:
            _, ends = rows(rule, batches=some)
            whole = np.repeat(ends[:, :1], ends.shape[1], axis=1)
            share = rows.macs(ends).mean() / rows.macs(whole).mean()
        low, high = ((low + high) / 2, high) if share < budget else (low, (low + high) / 2)
    return rule_of(kind, profile, (low + high) / 2, rows.encoded.reference)


class RuleGraphBlock(GraphBlock):
    """A traced block that keeps a mass, or averages neighbours."""

    def __call__(self, state: State, keep: Any = None, groups: Any = WHOLE) -> State:
        """As of ``GraphBlock``; ``keep`` is a mass, or True: neighbours are averaged behind it."""
        left = self.run_sublayers(state, None if keep is True else keep, groups)[0]
        return pooled(left) if keep is True else left

    def drop(self, state: State, scores: Tensor, keep: Any) -> tuple[State, Tensor]:
        """As of ``GraphBlock``, one sort of all scores instead of the best."""
        order = scores.masked_fill(~state.real, -1.0)
        first = torch.arange(scores.shape[1]) == 0
        best = order.masked_fill(first, torch.inf).topk(scores.shape[1], dim=1)
        counts = massive(best.values[:, 1:].clamp(min=0), scores[:, 0], keep)
        longest: Any = counts.max()
        index = best.indices[:, :longest]
        return state.take(state.hidden, index, torch.arange(longest) < counts[:, None]), index


class RuleGraph(Graph):
    """The full model's graph with a rule."""

    rule: Rule

    def __init__(self, supernet: Supernet, subnet: Subnet) -> None:
        super().__init__(supernet, subnet)
        self.blocks = [RuleGraphBlock(**vars(block)) for block in self.blocks]

    def _keeps(self, true_lengths: Tensor) -> list[Any]:
        if self.rule.kind == "pool":
            return [True if value < 1 else None for value in self.rule.values] + [0.0]
        return [*self.rule.values, 0.0]  # the first token alone leaves the last block


def session(supernet: Supernet, what: Subnet | Rule, int8: bool) -> Any:
    """A sub-network or a rule of all blocks in ONNX Runtime, one thread."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gate.onnx"
        if isinstance(what, Rule):
            RuleGraph.rule = what
            with patch.object(graph, "Graph", RuleGraph):
                trace(supernet, supernet.full, path)
        else:
            trace(supernet, what, path)
        if int8:
            quantise(path, path)
        return open_onnxruntime(path, 1)


def fed(runs: Any, batch: Mapping[str, Tensor]) -> tuple[Array, float]:
    """Logits, and milliseconds of processor time."""
    inputs = {name: batch[name].numpy() for name in runs.inputs}
    start = time.process_time()
    logits = runs.run(inputs)[0]
    return logits, 1000 * (time.process_time() - start)


def subnet_of(bench: Bench, rule: Rule) -> Subnet:
    """A ratio rule as an ordinary sub-network; shares rounded to the reference's tokens."""
    reference = bench.record.reference
    tokens = [max(1, round(reference * value)) for value in rule.values]
    return Subnet.of_encoder(range(bench.supernet.blocks), [*tokens, 1], reference)


def ratio_subnet(bench: Bench, share: float, lengths: Array, blocks: Sequence[int]) -> Subnet:
    """Constant ratio: the nearest to a share of the full model's MACs; only the first token leaves last."""
    reference, shape = bench.record.reference, bench.supernet.shape
    full = np.repeat(lengths[:, None], bench.supernet.blocks + 1, axis=1)
    full[:, -1] = 1
    whole, found = macs_of(shape, full[:, :-1], full[:, 1:]).mean(), []
    for step in range(8, 200):
        tokens = [max(1, round(reference * (step / 200) ** (place + 1))) for place in range(len(blocks) - 1)]
        subnet = Subnet.of_encoder(blocks, [*tokens, 1], reference)
        assert subnet.encoder is not None
        assert subnet.encoder.lengths is not None
        kept = [-(-lengths * count // reference) for count in subnet.encoder.lengths.tokens]
        ends = np.stack([lengths, *kept], axis=1)
        found.append((abs(macs_of(shape, ends[:, :-1], ends[:, 1:]).mean() / whole - share), subnet))
    return min(found, key=lambda one: one[0])[1]


def in_turn(
    bench: Bench,
    report: Rows,
    rules: Mapping[str, Rule],
    *,
    int8: bool,
    size: int,
    batches: int = 24,
) -> dict[str, float]:
    """Processor time of each over the full model's, batches of like length, in turn, the least of three."""
    runs = {"full": session(bench.supernet, bench.full, int8)}
    for name, rule in rules.items():
        what = subnet_of(bench, rule) if rule.kind == "ratio" else rule
        runs[name] = session(bench.supernet, what, int8)
    ms: dict[str, list[float]] = {name: [] for name in runs}
    for turn, first in enumerate(np.linspace(0, len(report.order) - size, batches + 1).astype(int)):
        batch = report.collate([report.encoded[int(row)] for row in report.order[first : first + size]])
        for name in list(runs) if turn % 2 else list(runs)[::-1]:
            ms[name].append(min(fed(runs[name], batch)[1] for _ in range(3)))
    return {name: sum(values[1:]) / sum(ms["full"][1:]) for name, values in ms.items()}


def checked(bench: Bench, report: Rows) -> None:
    """A batch of mixed lengths equals its rows one by one, torch equals ONNX, ratio equals the supernet's."""
    precise = Rows(
        bench.supernet, report.encoded.take(range(0, len(report.order), 90)), report.collate, 8, True
    )
    values = (0.9, 0.85, 0.8, 0.8, 0.7)
    for rule in (
        Rule("mass", values),
        rule_of("ratio", (1,) * 5, 0.75, bench.record.reference),
        Rule("pool", (0.5, 1, 0.5, 1, 1)),
    ):
        logits, ends = precise(rule)
        alone = replace(precise, batch=1)
        one, other = alone(rule)
        print(
            rule.kind,
            "batch against rows one by one:",
            np.abs(logits - one).max(),
            np.abs(ends - other).max(),
        )
        batches = [
            [precise.encoded[int(r)] for r in precise.order[n : n + 8]]
            for n in range(0, len(precise.order), 8)
        ]
        run = session(bench.supernet, subnet_of(bench, rule) if rule.kind == "ratio" else rule, False)
        told = np.concatenate([fed(run, precise.collate(rows))[0] for rows in batches])
        print(rule.kind, "torch against ONNX:", np.abs(logits - told).max(), flush=True)


def opened(folder: Path, other: Path | None = None) -> tuple[Bench, Rows, Rows]:
    """A supernet, rows that choose and rows that score (of the embedded task most of the search rows too)."""
    bench = Bench.open(folder)
    collate = bench.task.collate(bench.tokenizer, None)
    search, report = (
        bench.task.encode(split, bench.tokenizer, bench.record.reference) for split in ("search", "report")
    )
    if bench.record.source["data"] == "docstrings":
        labels = np.array([row["labels"] for row in search])
        # The rows of a label lie file by file: those that choose share no file with many that score.
        place = np.array([int((labels[:n] == label).sum()) for n, label in enumerate(labels)])
        first = place < np.bincount(labels)[labels] * 8 // 25
        report = Encoded((*search.take(np.flatnonzero(~first).tolist()), *report), search.reference)
        search = search.take(np.flatnonzero(first).tolist())
    if other is not None:
        table = pd.read_json(other, lines=True)
        tokens = bench.tokenizer(list(table["text"]), truncation=True, max_length=bench.record.reference)
        labels = [list(bench.record.labels).index(label) for label in table["label"]]
        report = Encoded(features_of(tokens, labels), bench.record.reference)
    bench.supernet.eval()
    return bench, Rows(bench.supernet, search, collate), Rows(bench.supernet, report, collate)


def whole_sentences(source: Path, out: Path) -> None:
    """SST-2 whose held-out rows share no five words in a row with any other row."""
    table = pd.read_json(source / "train.jsonl.gz", lines=True)[["sentence", "label"]]
    table = table.drop_duplicates("sentence").reset_index(drop=True)
    words = [text.split() for text in table["sentence"]]
    spans = [{tuple(own[n : n + 5]) for n in range(max(1, len(own) - 4))} for own in words]
    whole, seen = [], set()
    for row in sorted(range(len(words)), key=lambda row: -len(words[row])):  # phrases after their sentence
        if len(words[row]) >= 8 and not spans[row] & seen:
            whole.append(row)
        seen |= spans[row]
    rng = np.random.default_rng(0)
    held = rng.permutation(whole)[:4500].tolist()
    apart, spoken = set(held), set().union(*(spans[row] for row in held))
    rest = [
        row for row, own in enumerate(words) if row not in apart and len(own) >= 5 and not spans[row] & spoken
    ]
    rows = {"train": rng.permutation(rest)[:12000], "validation": held[:1000], "test": held[1000:]}
    for name, index in rows.items():
        table.iloc[index].to_json(out / f"{name}.jsonl", orient="records", lines=True)
