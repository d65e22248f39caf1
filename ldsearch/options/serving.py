"""The options of evaluate, compare, profile and export."""

from dataclasses import dataclass
from pathlib import Path

from ldsearch.options.binding import numbers, option
from ldsearch.options.shared import RUNTIMES_OF_FILES, DecodingOptions, MovedData, NamedSubnet, RunFolder

# Predictions that int8 or bf16 must share with fp32; results/imdb has what trained models share.
LEAST_AGREEMENT = 0.98


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
    runtime: str = option("auto", f"Of an ONNX file: {RUNTIMES_OF_FILES}")
    elastic: bool = option(
        False,
        "One ONNX file for every budget: lengths are an input of it (keep) with the chosen ones as default, "
        "and budgets.json has those of the run's frontier with scores and milliseconds.",
    )
    least_agreement: float = option(
        LEAST_AGREEMENT,
        "Where a runtime rounds (all but onnx and openvino-f32): the least share of predictions that are the "
        "supernet's; of a regression, the correlation of outputs; of a ranking, how good the order is by the "
        "supernet's scores (nDCG@10).",
    )
    all: bool = option(False, "Every sub-network of the run's frontier, and index.json.")
    task: str | None = option(
        None, "Of a model that was not trained here, with --data.", shown="the one of its head"
    )
    text_column: str | None = option(None, "Of its data: column of the text.")
    label_column: str | None = option(None, "Of its data: column of the label.")
    push_to_hub: str | None = option(None, "Upload what was written as this model repository.")
