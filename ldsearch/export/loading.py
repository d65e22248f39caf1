"""Loads exported folders: stock models, and those with a sub-network beside them."""

import json
from pathlib import Path

from transformers import PreTrainedModel

from ldsearch.errors import SupernetError
from ldsearch.export.staging import ONNX_FILE
from ldsearch.subnet import Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.folder import load_model

SUBNET_FILE = "ldsearch_subnet.json"


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
