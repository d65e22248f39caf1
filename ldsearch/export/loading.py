"""Loads what was exported, from a folder or the Hub: as itself, whatever runs it."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import constants, snapshot_download
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.generic import ModelOutput

from ldsearch.disk.files import read_fields, read_json
from ldsearch.disk.hub import HTTP_ERROR, go_offline_if_unreachable, refused
from ldsearch.disk.records import typed
from ldsearch.errors import LdsearchError, MachineError, SupernetError, one_line, shortened
from ldsearch.export.elastic import keep_within
from ldsearch.export.names import INDEX_FILE, ONNX_FILE
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.subnet import SUBNET_FILE, Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.folder import load_model, refuse_missing
from ldsearch.supernet.graph import KEEP
from ldsearch.supernet.remote_code import unwarned
from ldsearch.supernet.saliency import WEIGHTS_FILE, require_weights

_WEIGHTS = "model*.safetensors"
# All that is read but the weights themselves: it says which of them there are.
_SMALL = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", WEIGHTS_FILE)


class OnnxModel(nn.Module):
    """A graph in the runtime it was checked in, called like the stock model it is of; by a pipeline too.

    It runs in as many threads as torch has when it is opened, as it was timed.

    Args:
        folder: Of an export.
        keep: Of an elastic graph: the lengths of calls that name none; None: the graph's own.

    Raises:
        ExportError: If that runtime is not installed.
    """

    def __init__(self, folder: Path, keep: tuple[int, ...] | None = None) -> None:
        super().__init__()
        runtime = graph_runtime(read_fields(folder / SUBNET_FILE, SupernetError).get("runtime", "onnx"))
        runtime.require()
        self.config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        self.session = runtime.open(folder / ONNX_FILE, torch.get_num_threads())
        self.keep = None if keep is None else torch.tensor([keep])

    @property
    def device(self) -> torch.device:
        """The device that it runs on."""
        return torch.device("cpu")

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        return_dict: bool = True,
        keep: Tensor | None = None,
    ) -> Any:  # as of FixedSubnet
        """Outputs by name; inputs of shape (B, n), padded on the right.

        Args:
            input_ids: Tokens.
            attention_mask: 1 where a position is no padding; None: everywhere.
            token_type_ids: Segments; None: one.
            return_dict: Whether outputs have names.
            keep: Of an elastic graph: how many of the reference's tokens leave each block that drops any,
                as rows of ``budgets.json`` have it, (1 or B, such blocks).
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        named = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": segments}
        wanted = {name: named[name] for name in self.session.inputs}
        if (lengths := self.keep if keep is None else keep) is not None:
            wanted[KEEP] = lengths
        answers = self.session.run({name: tensor.cpu().numpy() for name, tensor in wanted.items()})
        output = ModelOutput(zip(self.session.outputs, map(torch.from_numpy, answers), strict=True))
        return output if return_dict else output.to_tuple()


def load_exported(
    name: str | Path,
    *,
    revision: str | None = None,
    subfolder: str = "",
    budget: str | float | None = None,
    cache_only: bool = False,
) -> PreTrainedModel | FixedSubnet | OnnxModel:
    """Load an export, in eval mode; called like the stock model.

    Args:
        name: A folder or a repository of the Hub.
        revision: Branch, tag or commit of the repository.
        subfolder: Which model of an exported frontier.
        budget: Of an elastic export, as of ``compress``: what a call may cost, ``8ms@batch=8,length=128`` or
            ``0.4``.
        cache_only: Do not ask the Hub.

    Raises:
        SupernetError: If it holds no model of a supported family, or several, or has no budgets.
        BudgetError: If nothing in it is within the budget.
        MachineError: If the Hub cannot be reached and its cache holds less than is needed.
    """
    folder = _local(str(name), revision, subfolder, cache_only)
    if not (folder / "config.json").is_file() and (folder / INDEX_FILE).is_file():
        models = ", ".join(_names(folder / INDEX_FILE))
        raise SupernetError(
            f"{name} holds several models, which {INDEX_FILE} lists: subfolder= one of {models}"
        )
    keep = None if budget is None else keep_within(folder, budget)
    if _is_onnx(folder):
        return OnnxModel(folder, keep).eval()
    if not (folder / SUBNET_FILE).is_file():
        model, _ = load_model(str(folder))
        return cast(PreTrainedModel, model.train(False))
    supernet, subnet, _ = open_exported(folder)
    return FixedSubnet(supernet, subnet).eval()


def open_exported(folder: Path) -> tuple[Supernet, Subnet, PreTrainedTokenizerBase]:
    """The stock model in a folder as a supernet, the sub-network of it that runs, and the tokenizer.

    Of a folder that names no sub-network, all of it runs.

    Raises:
        SupernetError: If either is damaged.
    """
    with unwarned():
        model, tokenizer = load_model(str(folder))
    path = folder / SUBNET_FILE
    if not path.is_file():
        return (supernet := Supernet(model)), supernet.full, tokenizer
    fields = read_fields(path, SupernetError)
    require_weights(fields.get("score"), folder)
    try:
        how = fields.get("memory", "restored"), fields.get("skipped", "identity")
        supernet, subnet = Supernet(model, fields["score"], *how), Subnet.from_fields(fields["subnet"])
        supernet.check(subnet)
    except (KeyError, LdsearchError) as error:
        raise SupernetError(f"{path} is damaged: {one_line(error)}") from error
    return supernet, subnet, tokenizer


class ExportedModel:
    """Entry point of transformers for an exported folder loaded with ``trust_remote_code=True``."""

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        config: Any = None,
        revision: str | None = None,
        subfolder: str = "",
        local_files_only: bool = False,
        dtype: torch.dtype | str | None = None,
        trust_remote_code: bool | None = None,
        adapter_kwargs: Any = None,
        _from_auto: bool = False,
        **others: Any,
    ) -> Any:
        """As ``ldsearch.load``, in the words of transformers.

        Args:
            name: Folder or repository.
            config: Read again from there.
            revision: Of the repository.
            subfolder: In it.
            local_files_only: Read the cache alone.
            dtype: Of the weights; None or "auto": float32.
            trust_remote_code: Has been asked.
            adapter_kwargs: There are none.
            others: Refused. Not as a ``TypeError``, after which a pipeline would take the stock class.

        Raises:
            SupernetError: For an option that it would have to ignore.
        """
        if others:
            raise SupernetError(
                f"{name} is loaded without {', '.join(others)}: move and change it afterwards"
            )
        model = load_exported(name, revision=revision, subfolder=subfolder, cache_only=local_files_only)
        return nn.Module.to(model, dtype) if isinstance(dtype, torch.dtype) else model

    @classmethod
    def register_for_auto_class(cls, auto_class: str) -> None:
        """Nothing: the folders that ``save_pretrained`` writes name this class by themselves."""


def _is_onnx(folder: Path) -> bool:
    path = folder / SUBNET_FILE
    return path.is_file() and read_fields(path, SupernetError).get("format") == "onnx"


def _names(index: Path) -> list[str]:
    try:
        entries = typed(read_json(index, SupernetError), list[dict[str, Any]], INDEX_FILE)
        return [str(entry["folder"]) for entry in entries]
    except (ValueError, KeyError) as error:
        raise SupernetError(f"{index} is damaged: {one_line(error)}") from error


def _local(name: str, revision: str | None, subfolder: str, cache_only: bool) -> Path:
    """The folder itself, or what is needed of a repository, in the Hub's cache."""
    refuse_missing(name)
    if Path(name).is_dir():
        if revision is not None:
            raise SupernetError(f"{name} is a folder, which has no revision {revision}")
        return Path(name) / subfolder
    go_offline_if_unreachable()
    download = partial(_snapshot, name, cache_only or constants.HF_HUB_OFFLINE)
    # In these patterns a star stands for slashes too.
    inside = f"{subfolder}/" if subfolder else ""
    home = download(revision, [inside + one for one in _SMALL], [f"{inside}*/*"])
    folder = home / subfolder
    if not (folder / "config.json").is_file():
        if not (folder / INDEX_FILE).is_file():
            where = f"{name} {subfolder}".strip()
            raise SupernetError(f"{where} is no model: its repository has no {inside}config.json")
        return folder
    wanted = ONNX_FILE if _is_onnx(folder) else _WEIGHTS
    # By its commit: the branch may have moved on.
    folder = download(home.name, [inside + wanted], []) / subfolder
    if not any(folder.glob(wanted)):
        if cache_only or constants.HF_HUB_OFFLINE:
            raise MachineError(f"the cache holds no {inside}{wanted} of {name}, and the Hub is not asked")
        raise SupernetError(f"{name} has no {inside}{wanted}")
    return folder


def _snapshot(
    name: str, cache_only: bool, revision: str | None, wanted: list[str], unwanted: list[str]
) -> Path:
    try:
        place = snapshot_download(
            name,
            revision=revision,
            local_files_only=cache_only,
            allow_patterns=wanted,
            ignore_patterns=unwanted or None,
        )
    except (OSError, HTTP_ERROR, ValueError) as error:
        raise refused(f"cannot load the model {shortened(name)!r}", error, SupernetError) from error
    return Path(place)
