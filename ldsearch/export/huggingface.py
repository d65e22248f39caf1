"""Hugging Face folders of sub-networks: stock where only depth changed, one line of ldsearch else."""

import json
from functools import partial
from pathlib import Path

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.export.card import Alone, Provenance, model_card, torch_usage
from ldsearch.export.loading import SUBNET_FILE
from ldsearch.export.staging import Written, staged
from ldsearch.export.verification import random_rows, verify
from ldsearch.files import write_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.cutting import silence
from ldsearch.supernet.folder import save_model

TOLERANCE = 1e-5


def export_subnet(
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    subnet: Subnet,
    folder: Path,
    provenance: Provenance,
) -> Path:
    """Write a sub-network as a Hugging Face folder and check it, in this process, before it appears.

    Args:
        supernet: Whose sub-network it is.
        tokenizer: Goes into the folder.
        subnet: What to export.
        folder: Must not exist or be empty.
        provenance: For the model card.

    Raises:
        RunError: If the folder holds something or cannot be written.
        ExportError: If the reloaded logits differ.
        SubnetError: If the sub-network does not fit.
    """
    with staged(folder) as staging:
        written = write_huggingface(supernet, tokenizer, subnet, staging, provenance)
        verify(supernet, [written], random_rows(supernet))
    return folder


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
        fields = {"subnet": json.loads(own.to_json()), "score": supernet.score, "memory": supernet.memory}
        write_json(folder / SUBNET_FILE, fields)
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
