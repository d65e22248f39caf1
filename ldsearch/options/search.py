"""The options of evolve and compress."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ldsearch.options.binding import names, numbers, option, pairs, per_stack
from ldsearch.options.shared import RUNTIMES_OF_FILES, MovedData, RunFolder, Seed, SharedStorage, Take


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Space, strategy and length of a search."""

    PANEL = "Search"

    space: str | None = option(
        None, "Shipped search space or YAML file.", shown="what was trained, 16 levels"
    )
    genes: str | None = option(
        None,
        "What is searched: lengths, depth, ffn, head, sublayer, or several joined by +.",
        shown="what was trained; with --keep depth",
    )
    widen: bool = option(
        False,
        "Search beyond what was trained: any length of any block, blocks that were never skipped, depths "
        "that were not listed; lengths down to a tenth of the MACs, or to the pinned last length. What "
        "training never covered is noted.",
    )
    keep: tuple[int, ...] | Mapping[str, tuple[int, ...]] | None = option(
        None,
        "Search depths, or apply a rule, with so many blocks; of two stacks 4,2 or encoder=4,decoder=2.",
        shown="every depth",
        read=per_stack(numbers(int, "numbers of blocks: 4, or 4,2 for an encoder and a decoder")),
    )
    evaluations: int | None = option(
        None,
        "The most sub-networks to measure, the full model included.",
        shown="150; greedy 1000, lat 1823; rules all they propose",
        least=2,
        most=10**6,
    )
    minutes: float | None = option(
        None,
        "End after about so many minutes, controls and held-out scores included, with the best so far.",
        shown="no limit",
        least=0,
    )
    parity: bool = option(False, "The papers' numbers of children and, without --space, every length.")
    swap: bool = option(False, "Choose on the report rows and score on the search rows: the other half.")


@dataclass(frozen=True, kw_only=True)
class Evolve(SearchOptions, Take, Seed, MovedData, SharedStorage, RunFolder):
    """Search a supernet, or choose by a rule: score against cost, the frontier, the sub-network asked for.

    Beside a search, with at most as many evaluations: random search and regular configurations. Every
    frontier is scored once more on the report rows, which chose nothing. Every measurement is stored at
    once: the same command goes on after an interruption, and another `--budget` is answered from what is
    known. Started several times, on one machine or with one `--storage` on many, it divides the work and
    ends the same.

    Of the rules, every-other keeps evenly spaced blocks; constant-ratio the same share of tokens per block;
    validation measures every choice of blocks; beam, for deep models, leaves blocks out one by one and goes
    on from the best few of each depth; swaps exchanges blocks of the best of a sample; learned keeps the
    blocks with the lowest learned drop rates; influence those that change their input most; assignment has
    the depths that `--strategy flexible-depth` trained; chunks leave consecutive blocks out, which hurts.

    **Examples**

    - `ldsearch evolve --budget 0.4`
    - `ldsearch evolve --at-least full`
    - `ldsearch evolve --supernet runs/sst2 --budget 0.5 --evaluations 300 --seed 1 --name sst2-seed1`
    - `ldsearch evolve --strategy greedy --objective kl --budget 0.4`
    - `ldsearch evolve --genes lengths --budget 0.4`
    - `ldsearch evolve --objective latency --budget 12ms@batch=8,length=128`
    - `ldsearch evolve --budget 5ms@batch=8,length=128 --runtime onnx-int8`
    - `ldsearch evolve --strategy every-other --keep 3`
    - `ldsearch evolve --strategy validation --keep 4,2`
    - `ldsearch evolve --strategy constant-ratio --budget 0.5`
    - `ldsearch evolve --dry-run`
    """

    strategy: str | None = option(
        None,
        "Searches: surrogate (measures the children that a Gaussian process ranks first), nsga (all "
        "children), greedy (step by step down, for --objective kl), random, lat (the paper's code), halving "
        "(many on few rows, the best of them on all). Rules: "
        "every-other, every-other-literal, chunk-first, chunk-middle, chunk-last, assignment, validation, "
        "beam, swaps, learned, influence, constant-ratio.",
        shown="surrogate; nsga with --parity",
    )
    objective: str = option(
        "score",
        "score, or kl: search, without labels, for outputs like the full model's, and measure the frontier "
        "of that by the score. And what is minimised: macs, parameters, latency@batch=8,length=128, or "
        "several joined by +.",
        shown="score+macs; a budget in ms: score+latency",
    )
    supernet: Path | None = option(None, "Supernet folder.", shown="the newest in --runs")
    max_memory: float | None = option(
        None,
        "GiB of memory that the search may take in all; what model, data and batches leave of it keeps what "
        "later generations have in common.",
        shown="3; more for a model that leaves too little",
        least=0,
        most=2**20,
    )
    dry_run: bool = option(False, "Say how large the search is and how long it takes; run nothing.")
    runtime: str = option(
        "auto",
        "With a latency: where it is measured, and the choice made: eager, own, compile, torch-bf16, onnx, "
        "onnx-int8, openvino, openvino-f32, openvino-int8, or a registered one; auto: where the full model "
        "is fastest.",
    )
    latency_table: Path | None = option(
        None, "Of `ldsearch profile --table`, where a latency is asked for.", shown="<supernet>-latency.csv"
    )
    # The last one: below it the name is the field's.
    option: Mapping[str, Any] | None = option(
        None, "Options of a strategy's own: of halving eta=3,rungs=3.", read=pairs
    )


@dataclass(frozen=True, kw_only=True)
class Compress(Take, Seed, RunFolder):
    """Make a fine-tuned encoder faster with some of its texts, labelled or not: one file, checked and timed.

    Nothing is trained, unless `--train` says for how long. A score of tokens is fitted, constant ratios and,
    with a budget, a short search find how many tokens each block needs, and an ONNX file for the runtime in
    which the full model is fastest here runs every budget. Without labels the model's own answers are the
    target. The scores printed are of rows that chose nothing. Without a budget: the smallest constant ratio
    that with 95% confidence loses less than a point (of agreement: four). `--budget 2x` is for a batch of 8
    texts of the mean length, over the full model in its fastest runtime. The same command goes on after an
    interruption, and with another budget chooses among what was measured.

    **Examples**

    - `ldsearch compress ./my-finetuned-bert --data texts.csv`
    - `ldsearch compress ./my-finetuned-bert --data texts.csv --budget 2x`
    - `ldsearch compress ./my-finetuned-bert --data texts.csv --budget 2x --train 15`
    - `ldsearch compress ./my-finetuned-bert --data texts.csv --budget 8ms@batch=8,length=128`
    - `ldsearch compress ./my-finetuned-bert --data reviews/ --label-column stars --at-least full-0.005`
    - `ldsearch compress ./my-finetuned-bert --data texts.csv --train 15 --blocks 4`
    - `ldsearch compress`
    """

    model: str | None = option(
        None,
        "Folder or hub id of a fine-tuned model; without model and data a small one is trained on the text "
        "that comes with ldsearch.",
        argument="[MODEL]",
    )
    data: str | None = option(
        None, "File (csv, tsv, json, jsonl, parquet, txt; gz too), folder or hub id of a data set."
    )
    task: str | None = option(
        None, "Of several that the model could be for: ranking, regression, ...", shown="by model and data"
    )
    text_column: str | None = option(None, "Column of the text.")
    pair_column: str | None = option(None, "Column of the second text of a pair.")
    label_column: str | None = option(None, "Column of the label.")
    labels: tuple[str, ...] = option(
        (),
        "The model's labels in the order of its ids, as the data spell them: negative,positive.",
        shown="the names that it has",
        read=names,
    )
    metric: str | None = option(None, "Score, where there are labels.", shown="the task's own")
    pin_query: bool = option(False, "Of queries and documents: no token of the query is dropped.")
    train: float | None = option(
        None,
        "Also train for about so many minutes, with the model as teacher, and take what is better at equal "
        "cost; without a budget, or with `--at-least full-x`, what needs fewer MACs to lose no more.",
        shown="train nothing",
        least=0,
        most=10**5,
    )
    blocks: int | None = option(
        None,
        "With a training: keep so many blocks, those the model would miss most, and drop tokens in them.",
        shown="all",
        least=1,
    )
    max_length: int | None = option(
        None, "Tokens that inputs are cut to.", shown="what the model reads, up to 512", least=2
    )
    runtime: str = option("auto", f"The one that will serve: {RUNTIMES_OF_FILES}")
