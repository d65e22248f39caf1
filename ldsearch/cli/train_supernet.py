"""ldsearch train-supernet: train once, so that every depth and length works."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ldsearch.cli.console import Name, Runs, Seed, print_notes, quiet_libraries, resumable

_DATA, _LAYERDROP, _LENGTHDROP = "Data", "LayerDrop", "LengthDrop"
_FLEXIBLE = "Flexible depth"


def train_supernet(
    context: typer.Context,
    task: Annotated[
        str,
        typer.Option(
            help="classification, regression, multi-label, tokens, questions, masked, causal, translation or "
            "summarisation."
        ),
    ] = "classification",
    data: Annotated[
        str,
        typer.Option(help="File (csv, tsv, json, jsonl, parquet; gz too), folder, hub id, or docstrings."),
    ] = "docstrings",
    config: Annotated[
        str | None, typer.Option(help="Configuration of a hub dataset.", rich_help_panel=_DATA)
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            help="File with rows to search and report on: halves, without a test split.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    keep_overlap: Annotated[
        bool,
        typer.Option(
            "--keep-overlap",
            help="Use every row, also those that share text across splits.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    search_rows: Annotated[
        str,
        typer.Option(
            help="Without a test split: train (4,000 training rows search, all validation rows report), half "
            "(of the validation rows search), or how many of them; auto: train from 20,000 training rows on.",
            rich_help_panel=_DATA,
        ),
    ] = "auto",
    metric: Annotated[
        str | None,
        typer.Option(
            help="Score: accuracy, f1, mcc, pearson, ... as the task has them.",
            show_default="the task's own",
            rich_help_panel=_DATA,
        ),
    ] = None,
    stride: Annotated[
        int,
        typer.Option(
            help="Tokens that two windows of a long context share (questions).", rich_help_panel=_DATA
        ),
    ] = 128,
    sentences: Annotated[
        bool,
        typer.Option("--sentences", help="Tear no line of running text (causal).", rich_help_panel=_DATA),
    ] = False,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the text, or of the source.", rich_help_panel=_DATA)
    ] = None,
    pair_column: Annotated[
        str | None, typer.Option(help="Column of the second text of a pair.", rich_help_panel=_DATA)
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the label, or of the target.", rich_help_panel=_DATA)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Hub id, folder, or a config.json to start from scratch.",
            show_default="a small one from scratch",
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="plain, layerdrop, lengthdrop or flexible-depth.")
    ] = "lengthdrop",
    max_length: Annotated[
        int | None, typer.Option(help="Tokens that inputs are cut to.", show_default="64 or 128")
    ] = None,
    drop_bound: Annotated[
        float | None,
        typer.Option(
            help="LengthDrop bound p; given with flexible-depth, lengths are trained beside the depths.",
            show_default="by depth: 0.36 for 6 blocks",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = None,
    layer_drop: Annotated[
        str | None,
        typer.Option(
            help="LayerDrop probability, or one per block: 0,0.1,0.2.",
            show_default="0.2",
            rich_help_panel=_LAYERDROP,
        ),
    ] = None,
    layer_drop_schedule: Annotated[
        str,
        typer.Option(
            help="constant, or linear: rising to --layer-drop at the last block.", rich_help_panel=_LAYERDROP
        ),
    ] = "constant",
    target_layers: Annotated[
        int | None,
        typer.Option(help="Blocks that run on average, instead of --layer-drop.", rich_help_panel=_LAYERDROP),
    ] = None,
    min_layers: Annotated[
        int, typer.Option(help="The fewest blocks that run.", rich_help_panel=_LAYERDROP)
    ] = 0,
    drop_groups: Annotated[
        str,
        typer.Option(
            help="What --strategy layerdrop drops: layer, sublayer, head, ffn, head+layer, ...",
            rich_help_panel=_LAYERDROP,
        ),
    ] = "layer",
    sandwich: Annotated[
        str,
        typer.Option(
            help="LengthDrop's sub-networks see all of a batch (paper) or parts of it (shares); with "
            "--teacher FOLDER the full model may see a quarter (taught).",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = "paper",
    plain_share: Annotated[
        float | None,
        typer.Option(
            help="Share of a LengthDrop training that trains the full model alone first.",
            show_default="0.4 for a new head, 0 for a fine-tuned classifier",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = None,
    teacher: Annotated[
        str,
        typer.Option(
            help="LengthDrop distils from the full pass (in-place), a model's folder, or none.",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = "in-place",
    label_share: Annotated[
        float | None,
        typer.Option(
            help="Weight of the labels' loss beside the teacher's; 0.5 mixes them evenly.",
            show_default="the paper's: full model from labels, the others from the teacher",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = None,
    state_weight: Annotated[
        float,
        typer.Option(
            help="Also learn what the teacher's [CLS] holds after each block, with this weight.",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = 0.0,
    token_score: Annotated[
        str | None,
        typer.Option(
            help="Which tokens leave a block: column, power (PoWER-BERT's), or one of your own.",
            show_default="column; with --parity pads score too",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            help="A decoder reads all of the encoder's tokens (restored) or the kept ones.",
            rich_help_panel=_LENGTHDROP,
        ),
    ] = "restored",
    assignment: Annotated[
        str,
        typer.Option(
            help="Flexible depth's blocks: head, seq, left, middle-left or optimal.",
            rich_help_panel=_FLEXIBLE,
        ),
    ] = "optimal",
    encoder_tasks: Annotated[
        int | None,
        typer.Option(
            help="Encoder depths trained at a step.", show_default="all divisors", rich_help_panel=_FLEXIBLE
        ),
    ] = None,
    decoder_tasks: Annotated[
        int | None,
        typer.Option(
            help="Decoder depths trained at a step.", show_default="all divisors", rich_help_panel=_FLEXIBLE
        ),
    ] = None,
    batch_share: Annotated[
        str,
        typer.Option(
            help="Share of the batch that flexible depth's tasks see: 1, 1/2, 1/4, ...",
            rich_help_panel=_FLEXIBLE,
        ),
    ] = "1",
    always_full: Annotated[
        bool,
        typer.Option(
            "--always-full", help="The full depth is among those of every step.", rich_help_panel=_FLEXIBLE
        ),
    ] = False,
    reduction: Annotated[
        str,
        typer.Option(
            help="Flexible depth's gradients: sum, or mean over the tasks.", rich_help_panel=_FLEXIBLE
        ),
    ] = "sum",
    average_last: Annotated[
        int, typer.Option(help="The model is the mean of the last checkpoints.", min=1)
    ] = 1,
    parity: Annotated[bool, typer.Option("--parity", help="Follow the papers' reference code.")] = False,
    name: Name = None,
    runs: Runs = Path("runs"),
    seed: Seed = 0,
) -> dict[str, Any]:
    """Train a supernet. Flags that ldsearch does not know go to Hugging Face's TrainingArguments.

    An interrupted training goes on from its last checkpoint when the same command is run again.

    **Examples**

    - `ldsearch train-supernet`

    - `ldsearch train-supernet --data reviews.csv --model bert-base-uncased --bf16 --num_train_epochs 5`

    - `ldsearch train-supernet --task questions --data train.jsonl --validation dev.jsonl --model ./my-bert`

    - `ldsearch train-supernet --task causal --data text.txt --strategy layerdrop --layer-drop 0.2`

    - `ldsearch train-supernet --task translation --data distilled.jsonl --validation valid.jsonl
      --model ./my-marian --strategy flexible-depth`

    - `ldsearch train-supernet --data nyu-mll/glue --config sst2 --model ./my-finetuned-bert --name sst2`
    """
    from ldsearch.commands.info import info
    from ldsearch.commands.train_options import TrainOptions
    from ldsearch.commands.train_supernet import train_supernet as train
    from ldsearch.tasks.splits import parse_search_rows
    from ldsearch.tasks.tables import Columns
    from ldsearch.training.depth_tasks import DepthTasks
    from ldsearch.training.rates import parse

    quiet_libraries()
    options = TrainOptions(
        task=task,
        metric=metric,
        stride=stride,
        sentences=sentences,
        teacher=teacher,
        label_share=label_share,
        state_weight=state_weight,
        data=data,
        config=config,
        validation=validation,
        columns=Columns(text_column, pair_column, label_column),
        keep_overlap=keep_overlap,
        search_rows=parse_search_rows(search_rows),
        model=model,
        strategy=strategy,
        reference=max_length,
        drop_bound=drop_bound,
        layer_drop=None if layer_drop is None else parse(layer_drop),
        layer_drop_schedule=layer_drop_schedule,
        target_layers=target_layers,
        min_layers=min_layers,
        drop_groups=drop_groups,
        sandwich=sandwich,
        plain_share=plain_share,
        depth_tasks=DepthTasks(
            assignment, encoder_tasks, decoder_tasks, _share(batch_share), always_full, cast(Any, reduction)
        ),
        token_score=token_score,
        memory=cast(Any, memory),
        average_last=average_last,
        parity=parity,
        seed=seed,
        trainer=tuple(context.args),
    )
    stem = Path(data).name.split(".")[0] or "supernet"
    with resumable("run the same command again to go on from the last checkpoint"):
        folder = train(runs / (name or f"{stem}-{strategy}"), options, lambda text: print_notes([text]))
    facts = info(folder)
    print(f"splits: {facts['splits']}; {facts['overlap']}")
    hint = _NEXT.get(strategy, "evaluate {folder} --subnet full")
    print(f"supernet {folder}: full model {facts['metrics']}; next: ldsearch {hint.format(folder=folder)}")
    return {"supernet": str(folder), "metrics": facts["metrics"], "splits": facts["splits"]}


def _share(text: str) -> float:
    from ldsearch.errors import TrainingError

    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise TrainingError(f"--batch-share takes 1, 1/2, 1/4, ..., not {text!r}") from None


_NEXT = {
    "flexible-depth": "grid --supernet {folder}",
    "lengthdrop": "evolve --supernet {folder} --budget 0.4",
    "layerdrop": "select --supernet {folder} --strategy every-other",
}
