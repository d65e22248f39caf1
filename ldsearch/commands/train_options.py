"""What a training takes, and the data it names."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ldsearch.supernet.supernet import Memory
from ldsearch.tasks import EMBEDDED, DataSource
from ldsearch.tasks.splits import SearchRows
from ldsearch.tasks.tables import Columns
from ldsearch.training.depth_tasks import DepthTasks


@dataclass(frozen=True)
class TrainOptions:
    """What ``ldsearch train-supernet`` takes.

    Args:
        data: A file, a dataset folder, a hub id, or ``"docstrings"`` (the embedded default).
        task: A key of ``ldsearch.tasks.TASKS``.
        config: Configuration of a hub dataset.
        validation: A file with rows to search and report on.
        columns: Columns that are not found by name.
        keep_overlap: Use every row, also those that share text across splits.
        search_rows: Which rows search and which report, of data without report rows (``fix_splits``).
        metric: Name of the score; None takes the task's first.
        sentences: No block of running text tears a line (causal language modelling).
        stride: Tokens that two windows of one long context share (question answering).
        model: Hub id, folder, or a config.json to start from scratch; None: a small BERT from scratch.
        strategy: A key of ``ldsearch.training.strategies.STRATEGIES``.
        reference: Inputs are cut to this many tokens; None: 64 for the embedded default, else 128.
        drop_bound: LengthDrop bound p; None: by depth, so that the smallest keeps about 7%. Given with
            ``flexible-depth``, lengths are trained beside the depths.
        layer_drop: LayerDrop probability: one for the schedule, or one per block; None: 0.2.
        layer_drop_schedule: ``"constant"``, or ``"linear"``: rising to the probability at the last block.
        target_layers: Instead of a probability: how many blocks shall run on average.
        min_layers: The fewest blocks that run.
        drop_groups: What the strategy ``layerdrop`` drops: ``"layer"``, ``"sublayer"``, ``"head"``,
            ``"ffn"``, or several joined by ``+``.
        sandwich: ``"paper"``: each shortened sub-network of LengthDrop sees the whole batch; ``"shares"``: a
            part of it, which takes two thirds of the time and costs a little accuracy; ``"taught"``: all of
            it, and the full model a quarter, for a separate teacher.
        plain_share: Share of a LengthDrop training that trains the full model alone first; None: 0.4
            where the classification head starts untrained, 0 for a fine-tuned classifier.
        teacher: What LengthDrop's sub-networks are distilled from: ``"in-place"`` (the full pass of the
            batch), ``"none"`` (the labels instead), or the folder of a fine-tuned model.
        label_share: Weight of the task's own loss where a pass learns from the teacher; the full model's pass
            mixes the two as well where the teacher is separate. None: as in the paper.
        state_weight: Factor on the distance of the first token's states, added where a pass learns from the
            teacher.
        depth_tasks: Which depths the strategy ``flexible-depth`` trains at a step.
        token_score: Which tokens leave a block: a key of ``ldsearch.supernet.tokens.TOKEN_SCORES``. None:
            ``"column"``, with ``parity`` ``"column-with-pads"``.
        memory: What a decoder attends to where its encoder dropped tokens: all of them, ``"restored"``, or
            those that were ``"kept"``.
        average_last: The model is the mean of the last so many checkpoints; 1: the last weights.
        parity: Follow the papers' code where ldsearch departs from it.
        seed: Of everything random.
        trainer: More arguments, as the Hugging Face Trainer's command line takes them.
    """

    data: str = EMBEDDED
    task: str = "classification"
    config: str | None = None
    validation: str | None = None
    columns: Columns = field(default_factory=Columns)
    keep_overlap: bool = False
    search_rows: SearchRows = "auto"
    metric: str | None = None
    stride: int = 128
    sentences: bool = False
    model: str | None = None
    strategy: str = "lengthdrop"
    reference: int | None = None
    drop_bound: float | None = None
    layer_drop: tuple[float, ...] | None = None
    layer_drop_schedule: str = "constant"
    target_layers: int | None = None
    min_layers: int = 0
    drop_groups: str = "layer"
    sandwich: str = "paper"
    plain_share: float | None = None
    teacher: str = "in-place"
    label_share: float | None = None
    state_weight: float = 0.0
    depth_tasks: DepthTasks = field(default_factory=DepthTasks)
    token_score: str | None = None
    memory: Memory = "restored"
    average_last: int = 1
    parity: bool = False
    seed: int = 0
    trainer: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The reference length: what was asked for, or the default of the data."""
        default = 64 if self.data == EMBEDDED else 128
        return default if self.reference is None else self.reference

    @property
    def from_scratch(self) -> bool:
        """Whether the model starts without weights."""
        return self.model is None or self.model.endswith(".json")

    def identity(self) -> dict[str, Any]:
        """What makes two trainings the same; the data speak through their fingerprints."""
        naming_the_data = {field.name for field in fields(DataSource)} - {"metric", "stride", "sentences"}
        return {name: value for name, value in asdict(self).items() if name not in naming_the_data}

    @property
    def source(self) -> DataSource:
        """The data."""
        return DataSource(**{field.name: getattr(self, field.name) for field in fields(DataSource)})
