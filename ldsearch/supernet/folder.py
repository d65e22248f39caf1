"""A supernet on disk: a stock model folder with a supernet.json."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ldsearch.errors import SupernetError, one_line
from ldsearch.files import make_readable, write_json
from ldsearch.network import without_network_offline
from ldsearch.subnet import Subnet
from ldsearch.supernet.heads import Head, head_named
from ldsearch.supernet.stock import refuse_config
from ldsearch.supernet.supernet import Memory, Skipped, Supernet
from ldsearch.workload import Workload

RECORD = "supernet.json"


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

    @property
    def full(self) -> Subnet:
        """The full model."""
        return Subnet.full(**(self.depths or {"encoder": self.blocks}))

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


def read_record(folder: Path) -> SupernetRecord:
    """Read ``supernet.json``.

    Raises:
        SupernetError: If the folder is not a supernet.
    """
    if not folder.is_dir():
        raise SupernetError(f"{folder} is not a folder")
    try:
        fields = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return SupernetRecord(**fields)
    except FileNotFoundError:
        raise SupernetError(f"{folder} is not a supernet: it has no {RECORD}") from None
    except (ValueError, TypeError) as error:
        raise SupernetError(f"{folder / RECORD} is damaged: {error}") from error


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """A stock model folder, with the permissions of the folder."""
    model.save_pretrained(folder)
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
    supernet = Supernet(model, record.score, record.memory, record.skipped)
    return supernet.eval(), record, tokenizer


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
    config = load_config(name)
    if any(Path(name).glob("pytorch_model*.bin")) and not any(Path(name).glob("model*.safetensors")):
        raise SupernetError(
            f"{name} holds its weights only as .bin, which is pickled and never read: "
            "save the model as safetensors (save_pretrained) first"
        )
    if (Path(name) / "adapter_config.json").is_file():
        raise SupernetError(
            f"{name} holds PEFT adapters: merge them into the weights first (merge_and_unload)"
        )
    if head is None:
        head = head_named((config.architectures or [""])[0])
    config.update(dict(head_config or {}))
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = head.auto.from_pretrained(
            name,
            config=config,
            # Not the checkpoint's own precision: training takes bf16 as autocast, scores are fp32.
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        # Missing files and unknown tokenizers; weights of other shapes; damaged weights.
        raise SupernetError(f"cannot load the model {name!r}: {one_line(error)}") from error
    # Whatever side its model generated from: heads read position 0, and outputs are cut by length.
    tokenizer.padding_side = "right"
    return cast(PreTrainedModel, model), tokenizer


def load_config(name: str) -> PreTrainedConfig:
    """The configuration of a model that is not refused, from a folder or a hub id.

    Raises:
        SupernetError: If there is none, or it is refused.
    """
    # Hub ids have one slash at most and no leading dot; a path that is not there is no hub id.
    if (name.startswith((".", "/")) or name.count("/") > 1) and not Path(name).exists():
        raise SupernetError(f"no model folder {name}")
    if not Path(name).exists():
        without_network_offline()
    try:
        fields, _ = PreTrainedConfig.get_config_dict(name)
        refuse_config(fields, name)
        # Not left out: transformers would ask on the terminal, and run the code after a "y".
        return cast(PreTrainedConfig, AutoConfig.from_pretrained(name, trust_remote_code=False))
    except (OSError, ValueError, KeyError) as error:
        raise SupernetError(f"cannot load the model {name!r}: {one_line(error)}") from error
