"""A supernet on disk: a stock model folder with a supernet.json."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ldsearch.costs.workload import Workload
from ldsearch.disk.files import make_readable, read_fields, write_json
from ldsearch.disk.hub import go_offline_if_unreachable, refused
from ldsearch.disk.records import as_record, typed
from ldsearch.errors import LdsearchError, SupernetError, one_line, shortened
from ldsearch.space.lengths import as_rate
from ldsearch.subnet import MOST_BLOCKS, MOST_TOKENS, Subnet
from ldsearch.supernet.cutting import longest_input
from ldsearch.supernet.embedding import HEAD, longest_read, read_modules, write_modules
from ldsearch.supernet.heads import Head, Memory, head_named, head_of
from ldsearch.supernet.refusals import (
    REFUSALS,
    refuse_config,
    refuse_index,
    refuse_sizes,
    require_finite,
    require_vocabulary,
)
from ldsearch.supernet.remote_code import without_own_code
from ldsearch.supernet.saliency import load_weights, require_weights, save_with_weights
from ldsearch.supernet.supernet import Skipped, Supernet

RECORD = "supernet.json"
# What the parts of a record hold, where they are there.
_PARTS: Mapping[str, Mapping[str, Any]] = {
    "source": {
        "task": str,
        "data": str,
        "config": str | None,
        "validation": str | None,
        "columns": Mapping[str, str | None],
        "keep_overlap": bool,
        "search_rows": int | str,
        "metric": str | None,
        "stride": int,
        "sentences": bool,
    },
    "training": {
        "model": str | None,
        "supernet": str,
        "inherited": str,
        "chosen_on": str | None,
        "loss": str,
        "kept": str,
        "arguments": Mapping[str, Any],
        "plain_share": float | None,
        "drop_groups": str | None,
        "min_layers": int | None,
        "depth_tasks": Mapping[str, Any] | None,
        "at": Mapping[str, Any] | None,
    },
}


@dataclass(frozen=True)
class SupernetRecord:
    """Contents of ``supernet.json``.

    Args:
        strategy: The training strategy.
        seed: Of training.
        blocks: Number of blocks of the first stack.
        reference: Reference length l₀: inputs were cut to it.
        drop_bound: LengthDrop bound p as a fraction (``"9/25"``); None if lengths were not trained.
        layer_drop: Mean of the blocks' LayerDrop rates; 0 if depths were not trained.
        length_mode: ``"ratio"`` or ``"absolute"``.
        score: The token score.
        parity: Whether inputs are padded to the reference length and distilled by the reverse divergence, as
            in the length-adaptive reference code.
        source: Where the data came from.
        labels: Label names in id order.
        splits: Split name to ``{"examples", "fingerprint"}``.
        workload: True lengths of the search split.
        weights: Fingerprint of the weights.
        metrics: Scores of the full model after training, by split.
        training: The model it started from, the strategy's setting as resolved, and the Trainer's
            arguments that differ from the Trainer's defaults.
        versions: Library versions.
        overlap: What was dropped so that no text is on two sides, in words.
        subnet: The one sub-network that was trained on its own, as JSON fields; None: all of them.
        layer_rates: Rate at which each block's groups were off (which groups: ``training``), stack after
            stack; empty where none were.
        depths: Number of blocks of each stack by name; empty: an encoder's.
        memory: What a decoder attends to where the encoder dropped tokens.
        space: The space that training drew sub-networks from (``Space.to_dict``); None: supernets from before
            records carried it.
        skipped: What a sub-layer that is off is in a post-norm block.
    """

    strategy: str
    seed: int
    blocks: int
    reference: int
    drop_bound: str | None
    layer_drop: float
    length_mode: str
    score: str
    parity: bool
    source: dict[str, Any]
    labels: list[str]
    splits: dict[str, dict[str, Any]]
    workload: dict[str, Any]
    weights: str
    metrics: dict[str, float]
    training: dict[str, Any]
    versions: dict[str, str]
    overlap: str = ""
    subnet: dict[str, Any] | None = None
    layer_rates: list[float] = field(default_factory=list)
    depths: dict[str, int] = field(default_factory=dict)
    memory: Memory = "restored"
    space: dict[str, Any] | None = None
    skipped: Skipped = "identity"

    def __post_init__(self) -> None:
        problem = _wrong(self)
        if problem:
            raise SupernetError(problem)

    @property
    def full(self) -> Subnet:
        """The full model."""
        return Subnet.full(**(self.depths or {"encoder": self.blocks}))

    @property
    def at(self) -> Subnet | None:
        """The one sub-network that its training ran, for those like it too; None: it ran all of them."""
        fields = self.training.get("at")
        return None if fields is None else Subnet.from_fields(fields)

    @property
    def pad_to(self) -> int | None:
        """Tokens that every input is padded to; None: only to the longest of its batch."""
        return self.reference if self.parity else None

    def rates_of(self, stack: str) -> list[float]:
        """``layer_rates`` of one stack."""
        start = 0 if stack == next(iter(self.depths), stack) else self.blocks
        return self.layer_rates[start : start + self.depths.get(stack, self.blocks)]

    @property
    def lengths_seen(self) -> Workload:
        """The workload as a record."""
        return Workload.from_dict(self.workload)

    def save(self, folder: Path) -> None:
        """Write ``supernet.json``; its presence marks the folder as a finished supernet."""
        write_json(folder / RECORD, asdict(self))


def _wrong(record: SupernetRecord) -> str | None:
    """The first contradiction in a record, in words; None where there is none."""
    try:
        for name, kinds in _PARTS.items():
            own = getattr(record, name)
            for key in kinds.keys() & own.keys():
                typed(own[key], kinds[key], f"{name}.{key}")
        for name, needed in (("source", "data"), ("training", "model")):
            if needed not in getattr(record, name):
                return f"{name} has no {needed}"
        for name, split in record.splits.items():
            typed(split.get("examples"), int, f"splits.{name}.examples")
            typed(split.get("fingerprint"), str, f"splits.{name}.fingerprint")
        return _absurd(record)
    except (ValueError, LdsearchError) as error:
        return one_line(error)


def _absurd(record: SupernetRecord) -> str | None:
    """A size that no model has."""
    if strange := set(record.depths) - {"encoder", "decoder"}:
        return f"depths name {', '.join(strange)}"
    if not 1 <= record.reference <= MOST_TOKENS:
        return f"reference is {record.reference}, not in 1..{MOST_TOKENS}"
    if not all(1 <= depth <= MOST_BLOCKS for depth in (record.blocks, *record.depths.values())):
        return f"blocks are {record.blocks}, not in 1..{MOST_BLOCKS}"
    if record.drop_bound is not None:
        as_rate(record.drop_bound)
    _ = record.lengths_seen, record.at
    return None


def read_record(folder: Path) -> SupernetRecord:
    """Read ``supernet.json``.

    Raises:
        SupernetError: If the folder is not a supernet.
    """
    if not folder.is_dir():
        raise SupernetError(f"{folder} is not a folder")
    try:
        fields = read_fields(folder / RECORD, SupernetError)
    except FileNotFoundError:
        raise SupernetError(f"{folder} is not a supernet: it has no {RECORD}") from None
    return as_record(SupernetRecord, fields, str(folder / RECORD), SupernetError)


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """A stock model folder, with the permissions of the folder; ``SentenceTransformer`` reads its own too."""
    save_with_weights(model, folder)
    save_beside(tokenizer, folder)
    if head_of(type(model).__name__) == HEAD:
        write_modules(model.config, folder, min(tokenizer.model_max_length, longest_input(model)))


def save_beside(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """The tokenizer of a stock model that is there, which gets the permissions of the folder."""
    tokenizer.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        make_readable(weights)  # safetensors writes a private temporary file and renames it


def load_supernet(folder: Path) -> tuple[Supernet, SupernetRecord, PreTrainedTokenizerBase]:
    """The supernet, its record and its tokenizer.

    Raises:
        SupernetError: If the folder is not a supernet or cannot be read.
    """
    record = read_record(folder)
    model, tokenizer = load_model(str(folder))
    require_weights(record.score, folder)
    supernet = Supernet(model, record.score, record.memory, record.skipped).eval()
    if Subnet.full(**supernet.depths) != record.full or record.reference > supernet.longest:
        raise SupernetError(f"{folder / RECORD} is damaged: it describes another model than lies beside it")
    return supernet, record, tokenizer


def load_model(
    name: str, head: Head | None = None, head_config: Mapping[str, Any] | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A stock model with a head, and its tokenizer, from a folder or a hub id.

    Args:
        name: Folder or hub id.
        head: The head to load it with; None: the one it was saved with.
        head_config: What the configuration must say of a head that is new.

    Raises:
        SupernetError: If the model cannot be loaded or is not supported.
    """
    config = load_config(name, sentences=head is None or head.embeds)
    if any(Path(name).glob("pytorch_model*.bin")) and not any(Path(name).glob("model*.safetensors")):
        raise SupernetError(
            f"{name} holds its weights only as .bin, which is pickled and never read: "
            "save the model as safetensors (save_pretrained) first"
        )
    if (Path(name) / "adapter_config.json").is_file():
        raise SupernetError(
            f"{name} holds PEFT adapters: merge them into the weights first (merge_and_unload)"
        )
    whole = head is None
    if head is None:
        head = head_named(str((config.architectures or [""])[0]))
    refuse_index(Path(name))
    config.update(dict(head_config or {}))
    try:
        tokenizer = _load_tokenizer(name)
        model, found = head.auto.from_pretrained(
            name,
            config=config,
            # Not the checkpoint's own precision: training takes bf16 as autocast, scores are fp32.
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        load_weights(model, name)
    except REFUSALS as error:
        raise refused(f"cannot load the model {shortened(name)!r}", error, SupernetError) from error
    if whole and found["missing_keys"]:
        raise SupernetError(f"the weights of {name!r} are not whole: {min(found['missing_keys'])} is missing")
    require_finite(model, name)
    require_vocabulary(tokenizer, model, name)
    if head.pools and getattr(model.config, "pad_token_id", None) is None:
        # A decoder's classifier reads the last token that is no padding; texts end in no such token.
        model.config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
    if head.embeds and (limit := longest_read(name)) is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
    # Whatever side its model generated from: heads read position 0, and outputs are cut by length.
    tokenizer.padding_side = "right"
    return cast(PreTrainedModel, model), tokenizer


def refuse_missing(name: str) -> None:
    """Refuse a path that is not there and no hub id: those have one slash at most and no leading dot.

    Raises:
        SupernetError: If it is one.
    """
    if (name.startswith((".", "/")) or name.count("/") > 1) and not Path(name).exists():
        raise SupernetError(f"no model folder {shortened(name)}")


def _load_tokenizer(name: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        # What its library in Rust raises for a damaged file is an Exception and nothing more.
        if type(error) is Exception:
            raise SupernetError(f"the tokenizer of {name!r} is damaged: {one_line(error)}") from error
        raise


def load_config(name: str, *, sentences: bool = False) -> PreTrainedConfig:
    """The configuration of a model that is not refused, from a folder or a hub id.

    Args:
        name: Folder or hub id.
        sentences: Whether a bare encoder of sentence-transformers is a model with a head of theirs.

    Raises:
        SupernetError: If there is none, or it is refused.
    """
    refuse_missing(name)
    if not Path(name).is_dir():
        go_offline_if_unreachable()
    try:
        given, _ = PreTrainedConfig.get_config_dict(name)
        fields = without_own_code(given, name)
        refuse_config(fields, name)
        refuse_sizes(fields, name)
        # Not left out: transformers would ask on the terminal, and run the code after a "y".
        config = cast(PreTrainedConfig, AutoConfig.from_pretrained(name, trust_remote_code=False))
        if sentences:
            read_modules(config, name)
        if fields.keys() < given.keys():
            del config.auto_map
        # What a caller asks for, which some folders hold: outputs are read by name, attentions by nobody.
        config.return_dict, config.output_hidden_states = True, False
        if config.output_attentions:
            config.output_attentions = False
        return config
    except REFUSALS as error:
        raise refused(f"cannot load the model {shortened(name)!r}", error, SupernetError) from error
