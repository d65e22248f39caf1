"""The fast path: attention in chunks or fused is attention, nothing is masked where nothing is padded."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet, tokens
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import TOKEN_SCORES, Attention, attend
from tests.tiny import padded_batch, tiny_model

ROWS, HEADS, TOKENS, WIDTH = 4, 3, 10, 8
PROBABILITIES_OF_A_HEAD = 4 * TOKENS * TOKENS
PADDED = [10, 3, 7, 1]
# Tables of biases, where there are some: one for all rows, or one for each.
KINDS = {"everywhere": 0, "window": 0, "bias": 1, "bias of a row": ROWS}
SUBNET = Subnet.of_encoder([0, 1, 2], [14, 9, 4], 24)

kinds = pytest.mark.parametrize("kind", KINDS)
lengths = pytest.mark.parametrize("lengths", [[TOKENS] * ROWS, PADDED])


def attention_of(lengths: list[int], kind: str = "everywhere") -> Attention:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, ROWS, TOKENS, HEADS, WIDTH).transpose(2, 3)
    real = torch.arange(TOKENS) < torch.tensor(lengths)[:, None]
    near = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs() < 3
    own = torch.eye(TOKENS, dtype=torch.bool) & ~real[:, :, None]
    allowed = ((near & real[:, None, :]) | own)[:, None] if kind == "window" else None
    bias = torch.randn(KINDS[kind], HEADS, TOKENS, TOKENS) if KINDS[kind] else None
    return Attention(queries, keys, values, real, WIDTH**-0.5, allowed, bias=bias)


def by_hand(attention: Attention) -> tuple[Tensor, Tensor]:
    """Context and column sums, a row and a head at a time, without its pads."""
    context = torch.zeros_like(attention.queries)
    scores = torch.zeros(attention.real.shape)
    for row, n in enumerate(attention.real.sum(dim=1).tolist()):
        for head in range(HEADS):
            q, k, v = (t[row, head, :n] for t in (attention.queries, attention.keys, attention.values))
            products = q @ k.T / WIDTH**0.5
            if attention.bias is not None:
                products = products + attention.bias[row % len(attention.bias), head, :n, :n]
            if attention.allowed is not None:
                products = products + attention.allowed[row, 0, :n, :n].float().log()
            probabilities = products.exp() / products.exp().sum(dim=1, keepdim=True)
            context[row, head, :n] = probabilities @ v
            scores[row, :n] += probabilities.sum(dim=0)
    return context, scores


# Of one head, two heads, one row, two rows and a little, and everything, at a time.
@pytest.mark.parametrize(
    ("heads", "parts"), [(0.5, 12), (1, 12), (2, 8), (HEADS, 4), (2.5 * HEADS, 2), (1000, 0)]
)
@lengths
@kinds
def test_attention_in_chunks_is_attention(monkeypatch, heads, parts, lengths, kind):
    """A chunk is as much as the caches of two threads hold."""
    seen, plain = [], Attention.part
    monkeypatch.setattr(Attention, "part", lambda self, *own: seen.append(own) or plain(self, *own))
    monkeypatch.setattr(tokens, "CHUNK_BYTES", int(heads * PROBABILITIES_OF_A_HEAD / 2))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    attention = attention_of(lengths, kind)
    context, scores = attend(attention, tokens.column)
    expected, received = by_hand(attention)
    real = attention.real
    ours, theirs = (one.transpose(1, 2)[real] for one in (context, expected))
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=0)
    torch.testing.assert_close(scores[real], received[real], atol=1e-5, rtol=1e-6)
    assert len(seen) == parts


@lengths
@kinds
def test_fused_attention_and_that_of_the_first_queries_are_attention(lengths, kind):
    attention = attention_of(lengths, kind)
    expected, _ = by_hand(attention)
    for found, n in ((attend(attention, None, rate=0), TOKENS), (attend(attention.of_queries(2), None), 2)):
        ours, theirs = (one[:, :, :n].transpose(1, 2)[attention.real[:, :n]] for one in (found[0], expected))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("score", TOKEN_SCORES)
def test_every_shipped_score_is_the_same_in_chunks(monkeypatch, score):
    attention = attention_of(PADDED)
    monkeypatch.setattr(tokens, "CHUNK_BYTES", PROBABILITIES_OF_A_HEAD)
    _, scores = attend(attention, TOKEN_SCORES[score])
    torch.testing.assert_close(scores, TOKEN_SCORES[score](attention), atol=1e-5, rtol=1e-6)


def test_a_score_that_is_no_sum_over_heads_sees_all_of_them(monkeypatch):
    attention = attention_of(PADDED)
    monkeypatch.setattr(tokens, "CHUNK_BYTES", PROBABILITIES_OF_A_HEAD)
    context, scores = attend(attention, lambda given: given.probabilities.amax(dim=1).sum(dim=1))
    assert torch.equal(scores, attention.probabilities.amax(dim=1).sum(dim=1))
    torch.testing.assert_close(context, attention.probabilities @ attention.values)


@pytest.mark.parametrize("names", [("queries", "keys", "values"), ("values",)])
def test_gradients_do_not_depend_on_chunks(monkeypatch, names):
    """Also where only the values have one, which the choice of chunks does not look at."""
    monkeypatch.setattr(tokens, "CHUNK_BYTES", PROBABILITIES_OF_A_HEAD)
    attention = attention_of(PADDED)
    leaves = {name: getattr(attention, name).clone().requires_grad_() for name in names}
    asked = replace(attention, **leaves)
    weights = torch.randn(attention.queries.shape) * attention.real[:, None, :, None]
    contexts = attend(asked, tokens.column)[0], by_hand(asked)[0]
    ours, theirs = (torch.autograd.grad((one * weights).sum(), list(leaves.values())) for one in contexts)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("lengths", "masks"), [([24, 24, 24], 0), ([24, 9, 24], 3)])
def test_only_padded_products_are_masked_and_kept_rows_projected(monkeypatch, lengths, masks):
    """Three blocks; of 24, 24 and 24 tokens as many are left in each row after every one."""
    masked, projected, plain = [], [], Tensor.masked_fill_

    def watched(self: Tensor, *given: object) -> Tensor:
        if self.dim() == 4:
            masked.append(self.shape)
        return plain(self, *given)

    monkeypatch.setattr(Tensor, "masked_fill_", watched)
    supernet = Supernet(tiny_model("bert", blocks=3))
    for layer in supernet.layers_of("encoder"):
        output = layer.attention.output.dense
        output.register_forward_hook(lambda *given: projected.append(given[1][0].shape[1]))
    inference(supernet, padded_batch(lengths), SUBNET)
    assert len(masked) == masks
    assert projected == [14, 9, 4]


class Looks(TorchDispatchMode):
    """How often a number is read from a tensor, for which a device is waited for."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_no_block_looks_at_data_that_are_not_padded():
    supernet, batch = Supernet(tiny_model("bert", blocks=3)), padded_batch([24, 24])
    seen = []
    for kept in ([14], [14, 9], [14, 9, 4]):
        with Looks() as looks:
            inference(supernet, batch, Subnet.of_encoder(range(len(kept)), kept, 24))
        seen.append(looks.count)
    assert seen[0] == seen[1] == seen[2]
