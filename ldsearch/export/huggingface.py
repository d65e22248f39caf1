"""Hugging Face folders of sub-networks: stock where only depth changed, one line of ldsearch else."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.errors import RunError, SupernetError
from ldsearch.export.card import Provenance, model_card
from ldsearch.files import write_atomic, write_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.folder import load_classifier, save_model
from ldsearch.supernet.supernet import inference, renumbered

SUBNET_FILE = "ldsearch_subnet.json"


def export_subnet(
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    subnet: Subnet,
    folder: Path,
    provenance: Provenance,
) -> Path:
    """Write a sub-network as a Hugging Face folder and check it before it appears.

    Without lengths the folder is an ordinary one. With lengths it holds the depth-pruned stock model
    and ``ldsearch_subnet.json``, which ``ldsearch.load`` obeys.

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
        stock = model.model if isinstance(model, FixedSubnet) else model
        save_model(stock, tokenizer, staging)
        if isinstance(model, FixedSubnet):
            own = json.loads(renumbered(subnet).to_json())
            write_json(staging / SUBNET_FILE, {"subnet": own, "score": supernet.score})
        write_atomic(staging / "README.md", model_card(subnet, provenance))
        _check(supernet, subnet, staging)
        if folder.exists():
            folder.rmdir()
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return folder


def load_exported(folder: str | Path) -> PreTrainedModel | FixedSubnet:
    """Load what ``export_subnet`` wrote, in eval mode; called like the stock model either way.

    Raises:
        SupernetError: If the folder holds no model of a supported family.
    """
    model, _ = load_classifier(str(folder))
    model.train(False)
    path = Path(folder) / SUBNET_FILE
    if not path.is_file():
        return model
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        subnet = Subnet.from_json(json.dumps(fields["subnet"]))
        return FixedSubnet(model, subnet, fields["score"]).eval()
    except (json.JSONDecodeError, KeyError) as error:
        raise SupernetError(f"{path} is damaged: {error}") from error


def _check(supernet: Supernet, subnet: Subnet, folder: Path) -> None:
    """Reloaded outputs must equal the supernet's (1e-5) on a padded batch of mixed lengths."""
    device = next(supernet.parameters()).device
    model = load_exported(folder)
    nn.Module.to(model, device)
    config = supernet.model.config
    generator = torch.Generator().manual_seed(0)
    longest = min(64, supernet.longest)
    ids = torch.randint(0, config.vocab_size, (4, longest), generator=generator)
    mask = (torch.arange(longest) < torch.tensor([[longest], [longest // 2], [7], [2]])).long()
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    expected = inference(supernet, batch, subnet)
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    with torch.inference_mode():
        difference = float((model(**batch).logits - expected).abs().max())
    if not difference <= 1e-5:
        raise RunError(
            f"the exported model differs from the supernet by {difference:.2g}; nothing was written"
        )
