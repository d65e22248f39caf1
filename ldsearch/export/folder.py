"""Folders of sub-networks, for transformers or for ONNX Runtime: written, put on the Hub.

A Hugging Face folder is stock where only depth changed, and needs one line of ldsearch else.
"""

import json
import shutil
from collections.abc import Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, cast

from huggingface_hub import HfApi
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # lazily exported
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ldsearch.disk.files import make_readable, write_json
from ldsearch.disk.hub import HTTP_ERROR, refused
from ldsearch.errors import ExportError, one_line
from ldsearch.export.card import Alone, Provenance, Written, file_dtype, model_card
from ldsearch.export.names import INT8_FILE, ONNX_FILE
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.subnet import SUBNET_FILE, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.cutting import blocks_of, silence
from ldsearch.supernet.embedding import write_modules
from ldsearch.supernet.folder import save_beside
from ldsearch.supernet.graph import OPSET, refuse
from ldsearch.supernet.remote_code import HOW, save_subnet
from ldsearch.supernet.saliency import stock_weights

TOLERANCE, ONNX_TOLERANCE = 1e-5, 1e-4


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
        save_subnet(stock, folder, own, {name: getattr(supernet, name) for name in HOW})
    else:
        alone = Alone.SAME
        if supernet.head.embeds:
            bare = cast(PreTrainedModel, model.base_model)  # as sentence-transformers saves it
            bare.save_pretrained(folder, state_dict=stock_weights(bare))
            write_modules(model.config, folder, _bounded(tokenizer, supernet).model_max_length)
        else:
            model.save_pretrained(folder, state_dict=stock_weights(model))  # drops no tokens
    save_beside(_bounded(tokenizer, supernet), folder)
    card = partial(model_card, subnet, provenance, supernet.head.name, alone)
    return Written(folder, subnet, _READERS[alone], TOLERANCE, card)


def write_onnx(
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    subnet: Subnet,
    folder: Path,
    provenance: Provenance,
    runtime: str = "onnx",
    *,
    fed: Sequence[int] = (),
) -> Written:
    """Write ``onnx/model.onnx`` with configuration, tokenizer and sub-network above it, for a runtime.

    An int8 graph is ``onnx/model_quantized.onnx`` too: who asks for int8 (transformers.js) looks there, who
    asks for a model (Text Embeddings Inference, sentence-transformers) knows the first name alone.

    Inputs ``input_ids``, ``attention_mask`` and, where the model has segments, ``token_type_ids``, each
    int64 of shape (batch, length), padded on the right. Output ``logits``; a span head's ``start_logits``
    and ``end_logits``, a vector's ``sentence_embedding``. An elastic graph has ``keep`` too, int64 of shape
    (1 or batch, places): how many of the reference's tokens leave the blocks at the places ``fed``, never
    more than before it; who feeds none runs ``subnet``.

    Raises:
        ExportError: If the model is no encoder of a registered family, too large, or a library is missing.
        SubnetError: If the sub-network does not fit.
    """
    library = graph_runtime(runtime)
    library.require()
    refuse(supernet)
    path = folder / ONNX_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    graph = library.write(supernet, subnet, path, fed=fed)
    make_readable(path)
    if runtime == "onnx-int8":
        _same(path, folder / INT8_FILE)
    write_json(folder / "config.json", _whole(graph.model))
    _bounded(tokenizer, supernet).save_pretrained(folder)
    fields = {
        "subnet": json.loads(subnet.to_json()),
        "score": supernet.score,
        "format": "onnx",
        "runtime": runtime,
        "dtype": file_dtype(runtime),
        "settings": dict(library.settings),
        "opset": OPSET,
        "inputs": graph.names,
        "outputs": graph.outputs,
    }
    write_json(folder / SUBNET_FILE, fields)
    card = partial(model_card, subnet, provenance, supernet.head.name, graph=graph, runtime=runtime)
    tolerance = None if library.rounds else ONNX_TOLERANCE
    # OpenVINO alone reads the default lengths as a constant.
    readers = ("ldsearch.load",) if fed and library.library == "openvino" else (library.library,)
    return Written(folder, subnet, readers, tolerance, card, runtime)


def onnx_file(folder: Path) -> str | None:
    """The name of an export's graph, from its folder on; None: it has none."""
    if not (folder / ONNX_FILE).is_file():
        return None
    return INT8_FILE if (folder / INT8_FILE).is_file() else ONNX_FILE


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
    layers = blocks_of(model, supernet.stacks[supernet.stack])
    if supernet.family is not None and stack.structured:
        for block in stack.blocks:
            silence(supernet.family.parts(layers[block]), stack.groups(block))
    family = supernet.family
    silent = not stack.sublayers_off or (family is not None and (family.pre_norm or family.norms_stay))
    if len(stack.blocks) < len(layers) or not silent:
        return model, own, Alone.OTHER
    return model, own, Alone.SLOWER if stack.lengths is None else Alone.LONGER


def _whole(model: PreTrainedModel) -> dict[str, Any]:
    """A configuration with what is usual in it too: servers know no defaults, nor a family's own names."""
    fields = model.config.to_dict()
    names = ("id2label", "label2id", "hidden_size", "num_hidden_layers", "pad_token_id")
    fields |= {name: getattr(model.config, name) for name in names}
    return {**fields, "architectures": [type(model).__name__]}


def _bounded(tokenizer: PreTrainedTokenizerBase, supernet: Supernet) -> PreTrainedTokenizerBase:
    """The tokenizer, cutting to what the model has positions for, where it knows no bound below."""
    bounded = copy(tokenizer)
    bounded.model_max_length = min(tokenizer.model_max_length, supernet.longest)
    return bounded


def _same(path: Path, other: Path) -> None:
    """The same file by another name, without its bytes where the file system can."""
    try:
        other.hardlink_to(path)
    except OSError:
        shutil.copyfile(path, other)


def check_hub_name(name: str) -> None:
    """Refuse what can be no repository's name, before anything is done.

    Raises:
        ExportError: If it is none.
    """
    try:
        validate_repo_id(name)
    except ValueError as error:
        raise ExportError(f"--push-to-hub {name}: {one_line(error)}") from error


def push(folder: Path, name: str) -> str:
    """Upload a folder as a model repository, made if it is not there; returns its address.

    The token is the one that ``hf auth login`` or ``HF_TOKEN`` left.

    Raises:
        ExportError: If the Hub cannot be reached or refuses.
    """
    api = HfApi()
    try:
        address = api.create_repo(name, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message="Export of ldsearch")
    except (OSError, HTTP_ERROR, ValueError) as error:
        raise refused(
            f"{folder} is written, but could not be pushed to {name}", error, ExportError
        ) from error
    return str(address)
