"""Hugging Face folders of sub-networks: stock where only depth changed, one line of ldsearch else."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.errors import RunError, SupernetError
from ldsearch.export.card import Alone, Provenance, model_card
from ldsearch.files import write_atomic, write_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.cutting import silence
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference

SUBNET_FILE = "ldsearch_subnet.json"


def export_subnet(
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    subnet: Subnet,
    folder: Path,
    provenance: Provenance,
) -> Path:
    """Write a sub-network as a Hugging Face folder and check it before it appears.

    Fewer blocks, or one narrower feed-forward width, give an ordinary folder. Everything else gives the
    stock model of the blocks that run and ``ldsearch_subnet.json``, which ``ldsearch.load`` obeys.

    Args:
        supernet: Whose sub-network it is.
        tokenizer: Goes into the folder.
        subnet: What to export.
        folder: Must not exist or be empty.
        provenance: For the model card.

    Raises:
        RunError: If the folder holds something or cannot be written, or the reloaded logits differ.
        SubnetError: If the sub-network does not fit.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} already exists and is not empty: choose another folder")
    model = supernet.materialise(subnet)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    try:
        staging.chmod(0o755)
        if isinstance(model, FixedSubnet):
            stock, own, alone = _stand_in(supernet, subnet)
            save_model(stock, tokenizer, staging)
            fields = {
                "subnet": json.loads(own.to_json()),
                "score": supernet.score,
                "memory": supernet.memory,
            }
            write_json(staging / SUBNET_FILE, fields)
        else:
            alone = Alone.SAME
            save_model(model, tokenizer, staging)
        write_atomic(staging / "README.md", model_card(subnet, provenance, supernet.head.name, alone))
        _check(supernet, subnet, staging, alone)
        if folder.exists():
            folder.rmdir()
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return folder


def _stand_in(supernet: Supernet, subnet: Subnet) -> tuple[PreTrainedModel, Subnet, Alone]:
    """What is saved for a ``FixedSubnet``: a stock model, what runs of it, and what it makes on its own.

    What is off inside its blocks is zeroed, so that stock classes come as close as they can.
    """
    model, own = supernet.cut(subnet)
    stack = own.stacks()[supernet.stack]
    layers = model.get_submodule(supernet.stacks[supernet.stack])
    assert isinstance(layers, nn.ModuleList)
    if supernet.family is not None and stack.structured:
        head_width = model.config.hidden_size // model.config.num_attention_heads
        for block in stack.blocks:
            silence(supernet.family.parts(layers[block]), stack.groups(block), head_width)
    silent = not stack.sublayers_off or (supernet.family is not None and supernet.family.pre_norm)
    if len(stack.blocks) < len(layers) or not silent:
        return model, own, Alone.OTHER
    return model, own, Alone.SLOWER if stack.lengths is None else Alone.LONGER


def load_exported(folder: str | Path) -> PreTrainedModel | FixedSubnet:
    """Load what ``export_subnet`` wrote, in eval mode; called like the stock model either way.

    Raises:
        SupernetError: If the folder holds no model of a supported family.
    """
    model, _ = load_model(str(folder))
    model.train(False)
    path = Path(folder) / SUBNET_FILE
    if not path.is_file():
        return model
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        subnet = Subnet.from_json(json.dumps(fields["subnet"]))
        memory = fields.get("memory", "restored")
        return FixedSubnet(Supernet(model, fields["score"], memory), subnet).eval()
    except (json.JSONDecodeError, KeyError) as error:
        raise SupernetError(f"{path} is damaged: {error}") from error


def _check(supernet: Supernet, subnet: Subnet, folder: Path, alone: Alone) -> None:
    """Reloaded outputs must equal the supernet's (1e-5) on a padded batch of mixed lengths."""
    device = next(supernet.parameters()).device
    config = supernet.model.config
    generator = torch.Generator().manual_seed(0)
    longest = min(64, supernet.longest)
    ids = torch.randint(0, config.vocab_size, (4, longest), generator=generator)
    mask = (torch.arange(longest) < torch.tensor([[longest], [longest // 2], [7], [2]])).long()
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    if len(supernet.stacks) > 1:
        batch["decoder_input_ids"] = ids
    # What a decoder makes of pads at an encoder's end counts like everything else.
    real = torch.ones_like(mask) if len(supernet.stacks) > 1 else mask
    expected = _real(inference(supernet, batch, subnet), real)
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    # What the card says of stock AutoModel is checked like what it says of ldsearch.load.
    models = [load_exported(folder)]
    if alone is Alone.SLOWER:
        models.append(load_model(str(folder))[0].eval())
    for model in models:
        nn.Module.to(model, device)
        with torch.inference_mode():
            difference = float((_real(logits_of(model(**batch)), real) - expected).abs().max())
        # Of the logits' own size: a language model's are large.
        if not difference <= 1e-5 * max(1.0, float(expected.abs().max())):
            raise RunError(
                f"the exported model differs from the supernet by {difference:.2g}; nothing was written"
            )


def _real(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits without those of pads, where there is one per token."""
    return logits[mask.bool()] if logits.ndim == 3 else logits
