"""What scripts/bench_inference.py times beside ours: the reference's way, bare products, ONNX Runtime."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sst2_minilm_train import minilm
from torch import Tensor
from torch.nn.functional import linear
from transformers import AutoTokenizer, BertForSequenceClassification, PreTrainedTokenizerBase

from ldsearch.export.card import Provenance
from ldsearch.export.folder import write_onnx
from ldsearch.export.names import ONNX_FILE
from ldsearch.latency.runtimes import in_session
from ldsearch.latency.sessions import open_onnxruntime
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_supernet

Call = Callable[[], object]


def subject(folder: Path | None) -> tuple[Supernet, PreTrainedTokenizerBase]:
    """A trained supernet, or MiniLM-L6 with a new head of two labels: weights do not change the time."""
    if folder is not None:
        supernet, _, tokenizer = load_supernet(folder)
        return supernet, tokenizer
    model = minilm()
    torch.manual_seed(0)
    stock = BertForSequenceClassification.from_pretrained(model, num_labels=2).eval()
    return Supernet(stock), AutoTokenizer.from_pretrained(model)


class Reference:
    """A BERT classifier as the length-adaptive reference runs it, in our own lines.

    Attention of all heads and rows is computed at once and kept for the scores, pads' rows counted; the mask
    is always added; the attention sub-layer runs to its end before tokens are dropped; [CLS] stays, and the
    best of the rest in their order; a row keeps as many tokens as the others, by the batch's width.

    Args:
        model: The stock model.
        lengths: Tokens that leave each block, at ``width`` tokens.
        width: Of the configuration.
    """

    def __init__(self, model: Any, lengths: Sequence[int], width: int) -> None:
        self.model, self.lengths, self.width = model, lengths, width

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits (B, labels)."""
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        hidden = self.model.bert.embeddings(input_ids=ids, token_type_ids=inputs.get("token_type_ids"))
        added = (1.0 - mask[:, None, None, :].to(hidden.dtype)) * torch.finfo(hidden.dtype).min
        for layer, tokens in zip(self.model.bert.encoder.layer, self.lengths, strict=True):
            kept = -(-ids.shape[1] * tokens // self.width)
            hidden, added = self._block(layer, hidden, added, kept)
        return self.model.classifier(self.model.bert.pooler(hidden))

    def _block(self, layer: Any, hidden: Tensor, added: Tensor, kept: int) -> tuple[Tensor, Tensor]:
        own = layer.attention.self
        rows, n, d = hidden.shape
        query, key, value = (
            part(hidden).view(rows, n, own.num_attention_heads, own.attention_head_size).permute(0, 2, 1, 3)
            for part in (own.query, own.key, own.value)
        )
        products = torch.matmul(query, key.transpose(-1, -2)) / own.attention_head_size**0.5
        probabilities = torch.softmax(products + added, dim=-1)
        context = torch.matmul(probabilities, value).permute(0, 2, 1, 3).contiguous().view(rows, n, d)
        hidden = layer.attention.output(context, hidden)
        if kept < n:
            received = probabilities.sum(dim=1).sum(dim=1)
            best = received[:, 1:].topk(kept - 1, dim=1).indices + 1
            index = torch.cat([best.new_zeros(rows, 1), best], dim=1).sort(dim=1).values
            hidden = hidden.gather(1, index[..., None].expand(-1, -1, d))
            added = added.gather(3, index[:, None, None, :])
        return layer.output(layer.intermediate(hidden), hidden), added


class Products:
    """Nothing but a configuration's matrix products, in preallocated memory, a row's heads at a time.

    Args:
        model: A stock BERT classifier, for its weights.
        rows: Of the batch.
        enters: Tokens that enter each block, and after the last one those that leave it.
    """

    def __init__(self, model: Any, rows: int, enters: Sequence[int]) -> None:
        self.rows, self.steps = rows, list(zip(model.bert.encoder.layer, enters, enters[1:], strict=False))
        d, heads = model.config.hidden_size, model.config.num_attention_heads
        self.hidden = torch.randn(rows, enters[0], d)
        self.heads = torch.randn(rows, heads, enters[0], d // heads)
        self.square = torch.empty(heads, enters[0] ** 2)

    def __call__(self) -> None:
        """All blocks."""
        for layer, n, left in self.steps:
            entered, own = self.hidden[:, :n].reshape(-1, self.hidden.shape[2]), layer.attention.self
            for part in (own.query, own.key, own.value):
                linear(entered, part.weight, part.bias)
            products = self.square[:, : n * n].reshape(-1, n, n)
            for heads in self.heads[:, :, :n]:
                torch.bmm(heads, heads.transpose(1, 2), out=products)
                torch.bmm(products, heads)
            kept = self.hidden[:, :left].reshape(-1, self.hidden.shape[2])
            for dense in (layer.attention.output.dense, layer.intermediate.dense):
                units = linear(kept, dense.weight, dense.bias)
            linear(units, layer.output.dense.weight, layer.output.dense.bias)


def session(
    supernet: Supernet, tokenizer: PreTrainedTokenizerBase, subnet: Subnet, folder: Path
) -> Callable[[Mapping[str, Tensor]], object]:
    """A sub-network's exported graph in ONNX Runtime, its threads asleep between calls."""
    nowhere = Provenance("bench", "", "", "", "")
    write_onnx(supernet, tokenizer, subnet, folder, nowhere)
    return in_session(open_onnxruntime(folder / ONNX_FILE, torch.get_num_threads()))
