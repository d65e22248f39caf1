"""One folder for onnxruntime: the graph of an encoder's sub-network, its configuration and tokenizer."""

import json
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ldsearch.export.card import Provenance, Written, model_card, onnx_usage
from ldsearch.export.reader import ONNX_FILE
from ldsearch.files import make_readable, write_json
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import OPSET, refuse, trace
from ldsearch.supernet.supernet import SUBNET_FILE

TOLERANCE = 1e-4


def write_onnx(
    supernet: Supernet,
    tokenizer: PreTrainedTokenizerBase,
    subnet: Subnet,
    folder: Path,
    provenance: Provenance,
) -> Written:
    """Write ``model.onnx`` with configuration, tokenizer and sub-network beside it; float32.

    Inputs ``input_ids``, ``attention_mask`` and, where the model has segments, ``token_type_ids``, each
    int64 of shape (batch, length), padded on the right. Output ``logits``; a span head's ``start_logits``
    and ``end_logits``.

    Raises:
        ExportError: If the model is no encoder of a registered family, too large, or a library is missing.
        SubnetError: If the sub-network does not fit.
    """
    refuse(supernet)
    folder.mkdir(parents=True, exist_ok=True)
    graph = trace(supernet, subnet, folder / ONNX_FILE)
    config, names, outputs = graph.model.config, graph.names, graph.outputs
    make_readable(folder / ONNX_FILE)
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    fields = {
        "subnet": json.loads(subnet.to_json()),
        "score": supernet.score,
        "format": "onnx",
        "opset": OPSET,
        "inputs": names,
        "outputs": outputs,
    }
    write_json(folder / SUBNET_FILE, fields)
    card = partial(model_card, subnet, provenance, supernet.head.name, onnx_usage(names, outputs, OPSET))
    return Written(folder, subnet, ("onnxruntime",), TOLERANCE, card)
