"""The options of train-supernet."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ldsearch.options.binding import names, number, numbers, option, per_stack
from ldsearch.options.shared import DataFiles, RunFolder, Seed

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
    labels: tuple[str, ...] = option(
        (),
        "The model's labels in the order of its ids, as the data spell them: negative,positive.",
        shown="the names that it has",
        read=names,
    )
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
    pin_query: bool = option(False, "Of --task ranking: no token of the query is dropped.")
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
    run of `evolve` or `compress` as `--model` (or a supernet and `--subnet`) the full model is distilled
    into that one sub-network instead, 300 steps unless --max_steps says otherwise; the result is reported
    beside the score it inherits, and is evaluated and exported like a run.

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

    task: str | None = option(
        None,
        "classification, regression, multi-label, ranking, embedding, tokens, questions, masked, causal, "
        "translation or summarisation.",
        shown="what the model classifies, tags or answers; else classification",
    )
    data: str = option(
        "docstrings", "File (csv, tsv, json, jsonl, parquet; gz too), folder, hub id, or docstrings."
    )
    model: str | None = option(
        None,
        "Hub id, folder, a config.json to start from scratch, or a run of evolve or compress: its choice.",
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
    def folder(self) -> Path:
        """Folder of the supernet."""
        stem = Path(self.data).name.split(".")[0] or "supernet"
        return self.place(f"{stem}-{self.strategy}")
