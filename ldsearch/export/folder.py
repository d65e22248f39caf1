"""Hugging Face folders of sub-networks: stock where only depth changed, one line of ldsearch else."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.errors import RunError, SupernetError
from ldsearch.export.card import Alone, Provenance, Written, model_card, torch_usage
from ldsearch.export.reader import ONNX_FILE
from ldsearch.subnet import Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.cutting import silence
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.supernet.supernet import SUBNET_FILE

TOLERANCE = 1e-5


def write_huggingface(
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    subnet: Subnet,
    folder: Path,
    provenance: Provenance,
) -> Written:
    """Write a sub-network as a Hugging Face folder.

    Fewer blocks, or one narrower feed-forward width, give an ordinary folder. Everything else gives the
    stock model of the blocks that run and ``ldsearch_subnet.json``, which ``ldsearch.load`` obeys.

    Raises:
        SubnetError: If the sub-network does not fit.
    """
    model = supernet.materialise(subnet)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, FixedSubnet):
        stock, own, alone = _stand_in(supernet, subnet)
        save_model(stock, tokenizer, folder)
        FixedSubnet.save_subnet(folder, supernet, own)
    else:
        alone = Alone.SAME
        save_model(model, tokenizer, folder)
    head = supernet.head.name
    card = partial(model_card, subnet, provenance, head, torch_usage(head, alone))
    return Written(folder, subnet, _READERS[alone], TOLERANCE, card)


# What the card says of stock AutoModel is checked like what it says of ldsearch.load.
_READERS = {
    Alone.SAME: ("stock AutoModel",),
    Alone.SLOWER: ("ldsearch.load", "stock AutoModel"),
    Alone.LONGER: ("ldsearch.load",),
    Alone.OTHER: ("ldsearch.load",),
}


def _stand_in(supernet: Supernet, subnet: Subnet) -> tuple[PreTrainedModel, Subnet, Alone]:
    """Stock model saved for a ``FixedSubnet``, its sub-network, and its behaviour in stock classes.

    What is off inside its blocks is zeroed, so that stock classes come as close as they can.
    """
    model, own = supernet.cut(subnet)
    stack = own.stacks()[supernet.stack]
    layers = model.get_submodule(supernet.stacks[supernet.stack])
    assert isinstance(layers, nn.ModuleList)
    if supernet.family is not None and stack.structured:
        for block in stack.blocks:
            silence(supernet.family.parts(layers[block]), stack.groups(block))
    silent = not stack.sublayers_off or (supernet.family is not None and supernet.family.pre_norm)
    if len(stack.blocks) < len(layers) or not silent:
        return model, own, Alone.OTHER
    return model, own, Alone.SLOWER if stack.lengths is None else Alone.LONGER


def load_exported(folder: str | Path) -> PreTrainedModel | FixedSubnet:
    """Load what ``export_subnet`` wrote, in eval mode; called like the stock model either way.

    Raises:
        SupernetError: If the folder holds no model of a supported family.
    """
    if (Path(folder) / ONNX_FILE).is_file():
        raise SupernetError(f"{folder} holds an ONNX model: its README says how ONNX Runtime runs it")
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


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder next to the target, renamed to it at the end, and removed if anything goes wrong.

    Raises:
        RunError: If the target holds something or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} already exists and is not empty: choose another folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    try:
        staging.chmod(0o755)
        yield staging
        if folder.exists():
            folder.rmdir()
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
