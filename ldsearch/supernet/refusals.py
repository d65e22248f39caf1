"""Models that would train or export into something else than they say, refused with a sentence."""

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from ldsearch.errors import SupernetError

# What mixture-of-experts configurations call their number of experts.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok")


def refuse_model(model: PreTrainedModel) -> None:
    """Refuse PEFT-wrapped, quantised and mixture-of-experts models.

    Raises:
        SupernetError: If it is one.
    """
    if hasattr(model, "peft_config") or type(model).__module__.partition(".")[0] == "peft":
        raise SupernetError(
            "the model carries PEFT adapters: merge them into the weights first (merge_and_unload)"
        )
    refuse_config(vars(model.config), type(model).__name__)


def refuse_config(fields: Mapping[str, Any], name: str) -> None:
    """Refuse what a configuration says before any weight is read.

    Raises:
        SupernetError: For code beside the model, quantised weights, mixtures of experts, and blocks that
            depend on their number.
    """
    if fields.get("auto_map"):
        raise SupernetError(
            f"the model {name!r} brings code of its own (auto_map), which ldsearch never runs"
        )
    if fields.get("quantization_config"):
        raise SupernetError(
            f"the model {name!r} is quantised: train and search in full precision, quantise the export"
        )
    if fields.get("scale_attn_by_inverse_layer_idx"):
        raise SupernetError(
            f"the model {name!r} scales attention by the block's number, so no block can be left out"
        )
    if any(isinstance(fields.get(key), int) and fields[key] > 1 for key in _EXPERTS):
        raise SupernetError(f"the model {name!r} is a mixture of experts, which ldsearch does not support")
