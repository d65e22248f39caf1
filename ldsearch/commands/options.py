"""The options of every verb, each written once: for the command line, for Python, and for the run's record.

A field is an option: its name, type, default and help; a class with ``PANEL`` names the heading that its
options stand under in ``--help``. ``cli.py`` binds the classes to the command line;
``ldsearch.evolve(budget="0.4")`` takes the same names; a run stores them and ``flags`` prints them again.
Nothing heavy is imported here, so that ``--help`` answers at once.
"""

import inspect
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ldsearch.commands.binding import number, numbers, option, per_stack, trainer_words
from ldsearch.errors import RunError, shortened
from ldsearch.secrets import without_tokens

_LONGEST_NAME = 200  # bytes: what stands beside a folder while it is written has a longer name


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """Where a verb writes."""

    name: str | None = option(None, "Folder below --runs to write to.")
    runs: Path = option(Path("runs"), "Folder that holds the runs.")

    def place(self, default: str) -> Path:
        """The folder to write to.

        Args:
            default: Its name, where none was given.

        Raises:
            RunError: If ``--name`` is no name of a folder in ``--runs``.
        """
        name = default if self.name is None else self.name
        hidden = name.startswith(".") or not name.strip() or name != Path(name).name
        if hidden or "\\" in name or len(os.fsencode(name)) > _LONGEST_NAME:
            raise RunError(
                f"--name {shortened(name)!r} names no folder below {self.runs}: use one plain name"
            )
        return self.runs / name


@dataclass(frozen=True, kw_only=True)
class Seed:
    """Randomness."""

    seed: int = option(0, "Seed of everything random.", least=0, most=2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class MovedData:
    """Data of a supernet that lie elsewhere now."""

    data: str | None = option(None, "Where the supernet's data lie now, if they were moved.")


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """How the files of a data set are read."""

    PANEL = "Data"

    config: str | None = option(None, "Configuration of a hub dataset.")
    validation: str | None = option(
        None, "File with rows to search and report on: halves, without a test split."
    )
    keep_overlap: bool = option(False, "Use every row, also those that share text across splits.")
    text_column: str | None = option(None, "Column of the text, or of the source.")
    label_column: str | None = option(None, "Column of the label, or of the target.")


@dataclass(frozen=True, kw_only=True)
class NamedSubnet(MovedData):
    """A sub-network and the model that it belongs to."""

    folder: Path = option(
        ..., "A search run, a recovered model, or a supernet with --subnet.", argument="FOLDER"
    )
    subnet: str | None = option(None, "Sub-network as JSON, a file that holds it, or 'full'.")


@dataclass(frozen=True, kw_only=True)
class SharedStorage:
    """Measurements that several workers share."""

    PANEL = "Storage"

    storage: str | None = option(
        None,
        "Where workers share measurements: journal:PATH, or the SQLAlchemy URL of a database.",
        shown="the runs' measurements.db",
    )


@dataclass(frozen=True, kw_only=True)
class Take:
    """Which of the measured sub-networks is taken."""

    budget: str | None = option(
        None,
        "The most it may cost: 0.4 (share of the full model's MACs), 2.1GMACs, 60Mparams, "
        "12ms@batch=8,length=128.",
    )
    at_least: str | None = option(
        None,
        "The cheapest that scores at least so much: 0.9, or full (the full model's score); full-0.005 or "
        "full-0.5%: that surely loses less than so much to it.",
    )
    most_accurate: bool = option(False, "The best score at any cost; the default.")


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How texts are generated."""

    PANEL = "Decoding"

    beams: int = option(1, "Of beam search; 1 is greedy.")
    length_penalty: float = option(1.0, "A log-probability is divided by the text's length to this power.")
    no_repeat_ngram: int = option(0, "No run of so many tokens twice in a text; 0: any may.")
    min_target: int = option(0, "The fewest tokens of a text.")
    max_target: int = option(128, "The most tokens of a text.")
    limit: int | None = option(None, "Decode only the first so many examples.", shown="all", least=1)


# What --parity stands for, where the option is not given itself.
PARITY: Mapping[str, Any] = MappingProxyType(
    {
        "drop_bound": 0.2,
        "token_score": "column-with-pads",
        "length_mode": "absolute",
        "pad_inputs": True,
        "teacher_drops": True,
        "reverse_kl": True,
        "attention_dropout": 0.1,
    }
)


@dataclass(frozen=True, kw_only=True)
class TrainData(DataFiles):
    """Data that a supernet is trained with."""

    PANEL = "Data"

    search_rows: int | str = option(
        "auto",
        "Without a test split: train (4,000 training rows search, all validation rows report), half (of the "
        "validation rows search), or how many of them; auto: train from 20,000 training rows on.",
        shown="auto",
        read=number(int, "auto, train, half or a number above 0", words=("auto", "train", "half")),
    )
    metric: str | None = option(
        None, "Score: accuracy, f1, mcc, pearson, ... as the task has them.", shown="the task's own"
    )
    stride: int = option(128, "Tokens that two windows of a long context share (questions).")
    sentences: bool = option(False, "Tear no line of running text (causal).")
    pair_column: str | None = option(None, "Column of the second text of a pair.")
    max_length: int | None = option(None, "Tokens that inputs are cut to.", shown="128; 64 for docstrings")


@dataclass(frozen=True, kw_only=True)
class LayerDropOptions:
    """LayerDrop (Fan et al. 2019)."""

    PANEL = "LayerDrop"

    layer_drop: tuple[float, ...] | Mapping[str, tuple[float, ...]] | None = option(
        None,
        "LayerDrop probability, or one per block: 0,0.1,0.2; of two stacks also encoder=0.2,decoder=0.5.",
        shown="0.2",
        read=per_stack(numbers(float, "one number, or one per block as 0,0.1,0.2")),
    )
    layer_drop_schedule: str = option(
        "constant",
        "constant; linear: rising to --layer-drop at the last block; or learned in training, with that mean.",
    )
    target_layers: int | Mapping[str, int] | None = option(
        None,
        "Blocks that run on average, instead of --layer-drop; of two stacks also encoder=6,decoder=3.",
        read=per_stack(number(int, "a number of blocks")),
    )
    min_layers: int = option(0, "The fewest blocks that run.")
    drop_groups: str = option(
        "layer", "What --strategy layerdrop drops: layer, sublayer, head, ffn, head+layer, ..."
    )
    skipped: str = option(
        "identity",
        "With --drop-groups sublayer, of post-norm models: a dropped sub-layer takes its norm along "
        "(identity), or leaves it: x -> LN(x) (norm).",
    )


@dataclass(frozen=True, kw_only=True)
class LengthDropOptions:
    """LengthDrop (Kim & Cho 2020)."""

    PANEL = "LengthDrop"

    genes: str = option(
        "depth+lengths", "What sub-networks differ in, and evolve searches: depth, lengths or depth+lengths."
    )
    drop_bound: float | None = option(
        None,
        "LengthDrop bound p: a block keeps at least 1 - p of its tokens. With flexible-depth: train lengths "
        "too.",
        shown="by depth: 0.20 for 12 blocks, 0.36 for 6 blocks",
    )
    sandwich: str = option(
        "paper",
        "LengthDrop's sub-networks see all of a batch (paper) or parts of it (shares); with --teacher FOLDER "
        "the full model may see a quarter (taught).",
    )
    plain_share: float | None = option(
        None,
        "Share of a LengthDrop training that trains the full model alone first.",
        shown="0.4 for a new head, 0 for a fine-tuned classifier",
    )
    teacher: str = option(
        "in-place", "LengthDrop distils from the full pass (in-place), a model's folder, or none."
    )
    label_share: float | None = option(
        None,
        "Weight of the labels' loss beside the teacher's; 0.5 mixes them evenly.",
        shown="the paper's: full model from labels, the others from the teacher",
    )
    state_weight: float = option(
        0.0, "Factor on the distance of the [CLS] states to the teacher's after each block."
    )
    token_score: str | None = option(
        None,
        "Score of the tokens that stay: learned (fitted to what the loss depends on; with --max_steps 0 "
        "that is all, of a fine-tuned model), column, power (PoWER-BERT's), or a registered one.",
        shown="learned where lengths are trained",
    )
    memory: str = option(
        "restored", "A decoder reads all of the encoder's tokens (restored) or the kept ones."
    )
    parity: bool = option(
        False,
        "The length-adaptive reference code's choices: --drop-bound 0.2 --token-score column-with-pads "
        "--length-mode absolute --pad-inputs --teacher-drops --reverse-kl --attention-dropout 0.1.",
    )
    length_mode: str | None = option(
        None,
        "Of shorter inputs a block keeps the same share of tokens (ratio) or as many (absolute).",
        shown="ratio",
    )
    pad_inputs: bool = option(False, "Pad every input to --max-length.")
    teacher_drops: bool = option(False, "Blocks are left out of the full pass, which teaches, too.")
    reverse_kl: bool = option(False, "Distil by KL(student || teacher) instead of KL(teacher || student).")


@dataclass(frozen=True, kw_only=True)
class FlexibleOptions:
    """Flexible depth (Wang, Xiao & Zhu 2020)."""

    PANEL = "Flexible depth"

    assignment: str = option("optimal", "Flexible depth's blocks: head, seq, left, middle-left or optimal.")
    encoder_tasks: int | None = option(None, "Encoder depths trained at a step.", shown="all divisors")
    decoder_tasks: int | None = option(None, "Decoder depths trained at a step.", shown="all divisors")
    batch_share: float = option(
        1.0,
        "Share of the batch that flexible depth's tasks see: 1, 1/2, 1/4, ...",
        shown="1",
        read=number(float, "1, 1/2, 1/4, ..."),
    )
    always_full: bool = option(False, "The full depth is among those of every step.")
    reduction: str = option("sum", "Flexible depth's gradients: sum, or mean over the tasks.")


@dataclass(frozen=True, kw_only=True)
class TrainSupernet(FlexibleOptions, LengthDropOptions, LayerDropOptions, TrainData, Seed, RunFolder):
    """Train a supernet. Flags that ldsearch does not know go to Hugging Face's TrainingArguments.

    An interrupted training goes on from its last checkpoint when the same command is run again. With a
    search run as `--model` (or a supernet and `--subnet`) the full model is distilled into that one
    sub-network instead, 300 steps unless --max_steps says otherwise; the result is reported beside the score
    it inherits, and is evaluated and exported like a run.

    **Examples**

    - `ldsearch train-supernet`
    - `ldsearch train-supernet --data reviews.csv --model bert-base-uncased --bf16 --num_train_epochs 5`
    - `ldsearch train-supernet --task questions --data train.jsonl --validation dev.jsonl --model ./my-bert`
    - `ldsearch train-supernet --task causal --data text.txt --strategy layerdrop --layer-drop 0.2`
    - `ldsearch train-supernet --task translation --data distilled.jsonl --validation valid.jsonl
      --model ./my-marian --strategy flexible-depth`
    - `ldsearch train-supernet --data nyu-mll/glue --config sst2 --model ./my-finetuned-bert --name sst2`
    - `ldsearch train-supernet --data reviews.csv --model ./my-finetuned-bert --genes lengths
      --max_steps 0 --name untrained`
    - `ldsearch train-supernet --model runs/sst2-lengthdrop-evolve --max_steps 1000 --learning_rate 3e-5`
    """

    task: str = option(
        "classification",
        "classification, regression, multi-label, tokens, questions, masked, causal, translation or "
        "summarisation.",
    )
    data: str = option(
        "docstrings", "File (csv, tsv, json, jsonl, parquet; gz too), folder, hub id, or docstrings."
    )
    model: str | None = option(
        None,
        "Hub id, folder, a config.json to start from scratch, or a search run to recover its choice.",
        shown="a small one from scratch",
    )
    subnet: str | None = option(
        None, "With a supernet as --model: the one sub-network to train, as JSON, a file, or 'full'."
    )
    strategy: str = option("lengthdrop", "plain, layerdrop, lengthdrop or flexible-depth.")
    attention_dropout: float = option(
        0.0,
        "Dropout rate of an encoder's attention probabilities, whose masks take longest.",
        least=0,
        most=1,
    )
    average_last: int = option(1, "The model is the mean of the last checkpoints.", least=1)
    trainer: Mapping[str, Any] = field(default_factory=dict)  # flags of TrainingArguments

    def __post_init__(self) -> None:
        if self.parity:
            default = {field.name: field.default for field in fields(self)}
            for name, value in PARITY.items():
                if getattr(self, name) == default[name]:
                    object.__setattr__(self, name, value)

    @property
    def tokens(self) -> int:
        """Tokens that inputs are cut to."""
        default = 64 if self.data == "docstrings" else 128
        return default if self.max_length is None else self.max_length

    @property
    def from_scratch(self) -> bool:
        """Whether the model starts without weights."""
        return self.model is None or self.model.endswith(".json")

    @property
    def trains_lengths(self) -> bool:
        """Whether sub-networks see dropped lengths."""
        if self.strategy == "flexible-depth":
            return self.drop_bound is not None
        return self.strategy == "lengthdrop" and "lengths" in self.genes

    @property
    def score(self) -> str:
        """The token score in force: fitting one is for trainings that drop tokens."""
        return self.token_score or ("learned" if self.trains_lengths else "column")

    @property
    def folder(self) -> Path:
        """Where the supernet goes."""
        stem = Path(self.data).name.split(".")[0] or "supernet"
        return self.place(f"{stem}-{self.strategy}")


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
        "children), greedy (step by step down, for --objective kl), random, lat (the paper's code). Rules: "
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


@dataclass(frozen=True, kw_only=True)
class Compress(Take, Seed, RunFolder):
    """Make a fine-tuned encoder faster with some of its texts, labelled or not: one file, checked and timed.

    Nothing is trained, unless `--train` says for how long. A score of tokens is fitted, constant ratios and
    a short search find how many tokens each block needs, and an ONNX file for the runtime in which the full
    model is fastest here runs every budget. Without labels the model's own answers are the target. The
    scores printed are of rows that chose nothing. Without a budget: the cheapest that surely loses no more
    than a point (of agreement: three). The same command goes on after an interruption, and with another
    budget chooses again in seconds.

    **Examples**

    - `ldsearch compress ./my-finetuned-bert --data texts.csv`
    - `ldsearch compress ./my-finetuned-bert --data texts.csv --budget 0.35`
    - `ldsearch compress ./my-finetuned-bert --data texts.csv --budget 8ms@batch=8,length=128`
    - `ldsearch compress ./my-finetuned-bert --data reviews/ --label-column stars --at-least full-0.005`
    - `ldsearch compress ./my-finetuned-bert --data texts.csv --budget 0.25 --train 20`
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
    text_column: str | None = option(None, "Column of the text.")
    pair_column: str | None = option(None, "Column of the second text of a pair.")
    label_column: str | None = option(None, "Column of the label.")
    metric: str | None = option(None, "Score, where there are labels.", shown="the task's own")
    train: float | None = option(
        None,
        "Also train for about so many minutes, with the model as teacher, and take what is better at equal "
        "MACs.",
        shown="train nothing",
        least=0,
        most=10**5,
    )
    max_length: int | None = option(
        None, "Tokens that inputs are cut to.", shown="what the model reads, up to 512", least=2
    )


@dataclass(frozen=True, kw_only=True)
class Evaluate(DecodingOptions, NamedSubnet, RunFolder):
    """Score a sub-network and the full model on the same examples, with an interval of the difference.

    With `--all-depths`, every pair of encoder and decoder depths of an encoder-decoder on the report rows,
    which chose nothing; the same command goes on after an interruption.

    **Examples**

    - `ldsearch evaluate runs/docstrings-lengthdrop-evolve`
    - `ldsearch evaluate runs/docstrings-lengthdrop --subnet full --split report`
    - `ldsearch evaluate runs/multi30k-evolve --frontier --metric bleu --beams 4 --limit 200`
    - `ldsearch evaluate runs/multi30k-flexible-depth --all-depths`
    - `ldsearch evaluate runs/multi30k-flexible-depth --all-depths --metric bleu --baseline runs/other-depths`
    """

    split: str | None = option(None, "search or report.", shown="the one that did not choose")
    metric: str | None = option(
        None,
        "Decode, and score the texts: bleu, rouge1, rouge2 or rougeL; with --all-depths also nats or "
        "perplexity (teacher-forced).",
        shown="the task's; with --all-depths nats",
    )
    frontier: bool = option(False, "With --metric: every sub-network of the run's frontier.")
    all_depths: bool = option(False, "Of a supernet: every pair of encoder and decoder depths.")
    assignment: str | None = option(
        None, "With --all-depths: blocks of a depth: head, seq, left, ...", shown="as trained, or optimal"
    )
    baseline: Path | None = option(None, "With --all-depths: another such folder, to compare with.")


@dataclass(frozen=True, kw_only=True)
class Compare(MovedData, RunFolder):
    """Compare strategies and finished runs with random search at budgets, on rows that chose nothing.

    Random search of the same genes runs beside each strategy; a run has its own. All searches have equally
    many evaluations, of runs the first ones, as many as the shortest run made; a second table has equally
    much spent, counted in multiply-accumulates, across supernets on the same rows. Scores are of rows that
    chose nothing, means over the seeds. The same command goes on after an interruption.

    **Examples**

    - `ldsearch compare`
    - `ldsearch compare --strategy every-other --strategy chunk-middle --strategy learned --budget 0.5,0.75`
    - `ldsearch compare --supernet runs/a --supernet runs/b --strategy surrogate:depth+lengths --seeds 1`
    - `ldsearch compare runs/bert-evolve runs/distilbert-evolve`
    - `ldsearch compare runs/a-evolve --strategy every-other`
    - `ldsearch compare runs/a-evolve runs/specialist-0.3 runs/specialist-0.5 --budget 0.3,0.5`
    """

    finished: tuple[Path, ...] = option(
        (), "Finished search runs, and sub-networks that were trained alone.", argument="[RUN]..."
    )
    supernet: tuple[Path, ...] = option(
        (), "May be given several times.", shown="those of the runs; without runs the newest"
    )
    strategy: tuple[str, ...] = option(
        (),
        "A strategy of evolve's, a search with its genes if wanted (surrogate:depth+lengths); may be given "
        "several times.",
        shown="surrogate, every-other; of runs alone none",
    )
    budget: tuple[float, ...] = option(
        (0.4, 0.55, 0.7),
        "Shares of the full model's MACs.",
        shown="0.4,0.55,0.7",
        read=numbers(float, "shares such as 0.4,0.55"),
    )
    evaluations: int = option(150, "The most of each search.", least=2)
    seeds: int = option(3, "Searches of each strategy that draws.", least=1)


@dataclass(frozen=True, kw_only=True)
class Profile(NamedSubnet, RunFolder):
    """Time sub-networks and the full model in turn: median, quartiles, p95, ratio, memory.

    Models that write text are timed to their first token (prefill) and per token after it.

    **Examples**

    - `ldsearch profile runs/sst2-lengthdrop-evolve --length 128,data`
    - `ldsearch profile runs/sst2-lengthdrop-evolve --frontier --batch 8,32`
    - `ldsearch profile runs/sst2-lengthdrop --table latency_table.csv --batch 8 --length 128`
    - `ldsearch profile runs/sst2-lengthdrop --table table.csv --batch 8 --length 128 --runtime onnx-int8`
    """

    frontier: bool = option(False, "Every sub-network of the run's frontier; draws latency.png.")
    table: Path | None = option(
        None, "Fill this latency table instead (CSV): each block at each length and batch."
    )
    runtime: str = option(
        "eager",
        "eager, own (the supernet's path), compile, torch-bf16, onnx, onnx-int8, openvino, openvino-f32, "
        "openvino-int8, or a registered one; with --table the whole models of the table are timed in it too.",
    )
    batch: tuple[int, ...] = option(
        (1, 8, 32),
        "Batch sizes, separated by commas.",
        shown="1,8,32",
        read=numbers(int, "whole numbers above 0", distinct=True),
    )
    length: tuple[int | str, ...] = option(
        (),
        "Tokens of each input, separated by commas; data: the search rows.",
        shown="as it was trained",
        read=numbers(int, "whole numbers above 0 or data", words=("data",), distinct=True),
    )
    repeats: int = option(5, "Timed rounds.", least=1, most=10**6)
    threads: int | None = option(None, "Threads of an operation.", shown="torch's", least=1, most=1024)


@dataclass(frozen=True, kw_only=True)
class Export(NamedSubnet):
    """Export the run's best sub-network, once a fresh process has loaded it and given its outputs and score.

    The search rows must get the supernet's predictions and the run's score. Latency is measured beside the
    full model's. A failed check removes what was written.

    Fewer blocks: an ordinary folder that stock `AutoModelForSequenceClassification` loads. Shorter
    lengths: `ldsearch.load(folder)`. ONNX: tokens are dropped inside the graph; onnxruntime alone runs it.

    **Examples**

    - `ldsearch export runs/docstrings-lengthdrop-evolve exported/docstrings-0.4`
    - `ldsearch export runs/docstrings-lengthdrop exported/full --subnet full`
    - `ldsearch export runs/docstrings-lengthdrop-evolve exported/frontier --all --format onnx`
    - `ldsearch export runs/docstrings-lengthdrop-evolve exported/int8 --format onnx --runtime onnx-int8`
    - `ldsearch export runs/docstrings-lengthdrop-evolve exported/elastic --format onnx --elastic`
    - `ldsearch export ./my-finetuned-bert exported/mine --format onnx --data reviews.csv`

    A fine-tuned model that was not trained here is exported whole; with `--data` it is scored.
    """

    output: Path = option(..., "Folder to write; must not exist or be empty.", argument="OUTPUT")
    format: str = option("hf", "hf, a Hugging Face folder, or onnx, one file for a runtime.")
    runtime: str = option(
        "auto",
        "Of an ONNX file: onnx, onnx-int8, openvino (in the precision that it takes here), openvino-f32, "
        "openvino-int8, or auto, the one in which the full model is fastest here and keeps its answers.",
    )
    elastic: bool = option(
        False,
        "One ONNX file for every budget: lengths are an input of it (keep) with the chosen ones as default, "
        "and budgets.json has those of the run's frontier with scores and milliseconds.",
    )
    least_agreement: float = option(
        0.98,
        "Where a runtime rounds (all but onnx and openvino-f32): the least share of predictions that are the "
        "supernet's; of a regression, the correlation of outputs.",
    )
    all: bool = option(False, "Every sub-network of the run's frontier, and index.json.")
    task: str | None = option(
        None, "Of a model that was not trained here, with --data.", shown="the one of its head"
    )
    text_column: str | None = option(None, "Of its data: column of the text.")
    label_column: str | None = option(None, "Of its data: column of the label.")
    push_to_hub: str | None = option(None, "Upload what was written as this model repository.")


@dataclass(frozen=True, kw_only=True)
class HealthOptions:
    """Fine-tuning of a few sub-networks."""

    PANEL = "Health (with --health)"

    count: int = option(32, "Sub-networks to fine-tune, four of each of several costs.")
    steps: int = option(300, "Optimizer steps of each training.", least=1)
    start: Path | None = option(
        None, "Fine-tune from this model's weights too, such as those from before LengthDrop."
    )
    space: str | None = option(
        None, "Shipped search space or YAML file.", shown="what was trained, 16 levels"
    )


@dataclass(frozen=True, kw_only=True)
class ImportanceOptions:
    """Random sub-networks without a block."""

    PANEL = "Importance (with --importance)"

    keep: int | None = option(None, "Blocks of a sub-network that lacks the block.", shown="half", least=1)
    subsets: int = option(20, "Random sub-networks for each block.", least=1)
    stack: str | None = option(None, "encoder or decoder.", shown="the only one")
    objective: str = option("score", "score, or kl: how far outputs are from the full model's.")


@dataclass(frozen=True, kw_only=True)
class Report(ImportanceOptions, HealthOptions, MovedData, Seed, RunFolder):
    """Write a self-contained HTML page on finished searches; loads no model unless told to measure.

    Frontiers with intervals and controls, convergence, kept blocks and lengths, health, importance, costs,
    latency where it was measured, the commands to rebuild it. A page that this command wrote before is
    replaced.

    `--health` fine-tunes sub-networks on their own, four of each of several costs, and gives Kendall's tau
    between inherited and fine-tuned scores at equal cost: near 1 inherited scores rank sub-networks well;
    near 0 choose by a rule, or train the supernet longer. `--importance` compares random sub-networks
    without a block to the same with it. Both are measured once, beside the run, and take a supernet instead
    of a run too; flags that ldsearch does not know go to Hugging Face's TrainingArguments. The same command
    goes on after an interruption.

    **Examples**

    - `ldsearch report runs/sst2-lengthdrop-evolve`
    - `ldsearch report runs/bert-evolve runs/distilbert-evolve --output bert.html`
    - `ldsearch report runs/sst2-lengthdrop-evolve --health --count 40 --steps 500`
    - `ldsearch report runs/multi30k-flexible-depth --importance --stack decoder --subsets 10`
    """

    folders: tuple[Path, ...] = option(
        (), "Finished search runs; with --health or --importance also a supernet.", argument="RUN..."
    )
    output: Path = option(Path("report.html"), "The page; its figures lie beside it as SVG and PNG.")
    health: bool = option(False, "Do inherited scores rank sub-networks as training each would?")
    importance: bool = option(False, "What does leaving each block out cost over random sub-networks?")
    trainer: Mapping[str, Any] = field(default_factory=dict)  # flags of TrainingArguments


@dataclass(frozen=True, kw_only=True)
class Info(Take, SharedStorage):
    """Describe a supernet, a search run or a folder of them; with a budget, choose among what was measured.

    Of a folder of runs the sizes are listed, and what killed processes left there. The choice is among the
    measurements of every search on the same supernet and rows. Loads no model and runs nothing.

    **Examples**

    - `ldsearch info runs/docstrings-lengthdrop`
    - `ldsearch info runs --clean`
    - `ldsearch info runs/docstrings-lengthdrop-evolve`
    - `ldsearch info runs/sst2-lengthdrop-evolve --budget 0.5`
    - `ldsearch info runs/sst2-lengthdrop --at-least full --save full.json`
    - `ldsearch info runs/sst2-lengthdrop-evolve --budget 0.5 --storage journal:/mnt/shared/sst2.log`
    """

    folder: Path = option(..., "A supernet, a search run, or a folder of runs.", argument="FOLDER")
    clean: bool = option(False, "Of a folder of runs: remove what killed processes left, after asking.")
    save: Path | None = option(None, "Write the chosen sub-network here, as --subnet takes it.")


@dataclass(frozen=True, kw_only=True)
class DistillData(DecodingOptions, DataFiles):
    """Decode the training sources with MODEL: sequence-level distillation (Kim & Rush 2016).

    Only rows that a training on the data would train on are decoded. Train on what is written with the
    original --validation, so that scores are against real targets. The same command goes on after an
    interruption.

    **Examples**

    - `ldsearch distill-data runs/teacher --data multi30k/ --out multi30k-distilled.jsonl`
    - `ldsearch distill-data ./my-bart --task summarisation --data papers.jsonl --validation dev.jsonl
      --no-repeat-ngram 3 --max-source 512 --out papers-distilled.jsonl`
    """

    model: str = option(..., "Folder of an encoder-decoder or a supernet, or a hub id.", argument="MODEL")
    data: str = option(..., "File (csv, tsv, json, jsonl, parquet; gz too), folder or hub id.")
    out: Path = option(..., "File to write (.jsonl): a source and its new target a line.")
    task: str = option("translation", "translation or summarisation.")
    beams: int = option(4, "Of beam search; 1 is greedy.")
    min_target: int = option(1, "The fewest tokens of a text.")
    max_source: int = option(128, "Tokens that sources are cut to.")
    batch_size: int = option(32, "Sources decoded at once.", least=1)


Options = (
    Compress | TrainSupernet | Evolve | Evaluate | Compare | Profile | Export | Report | Info | DistillData
)


VERBS: Mapping[str, type[Options]] = MappingProxyType(
    {
        "compress": Compress,
        "train-supernet": TrainSupernet,
        "evolve": Evolve,
        "evaluate": Evaluate,
        "compare": Compare,
        "profile": Profile,
        "export": Export,
        "report": Report,
        "info": Info,
        "distill-data": DistillData,
    }
)


# Options of earlier versions that changed no result.
_GONE: Mapping[str, tuple[str, ...]] = MappingProxyType({"evolve": ("cache",)})


def flags(verb: str, values: Mapping[str, Any]) -> str:
    """The command line that gives these options.

    Args:
        verb: A key of ``VERBS``.
        values: As ``changed`` gives them.
    """
    known = {one.name: one.metadata for one in fields(VERBS[verb])}
    arguments: list[str] = []
    words: list[str] = []
    for name, value in values.items():
        if name in _GONE.get(verb, ()):
            continue  # of an old record
        if name == "trainer":
            words += trainer_words(without_tokens(value))  # of an old record
        elif known[name]["argument"]:
            arguments += map(str, value if isinstance(value, list) else [value])
        elif value is True:
            words.append(flag_of(name))
        elif isinstance(value, list) and known[name]["read"] is None:
            words += [word for part in value for word in (flag_of(name), str(part))]
        elif isinstance(value, Mapping):
            words += [flag_of(name), ",".join(f"{stack}={_text(part)}" for stack, part in value.items())]
        else:
            words += [flag_of(name), _text(value)]
    return shlex.join(["ldsearch", verb, *arguments, *words])


def _text(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def panel_of(options: type[object], name: str) -> str | None:
    """The heading that an option stands under: of the nearest class with one that declares it."""
    owners = [owner for owner in options.__mro__ if name in inspect.get_annotations(owner)]
    return next((vars(owner)["PANEL"] for owner in owners if "PANEL" in vars(owner)), None)


def flag_of(name: str) -> str:
    """The flag of an option."""
    return f"--{name.replace('_', '-')}"
