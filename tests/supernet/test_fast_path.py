"""The fast path: attention in chunks is attention, nothing is masked where nothing is padded."""

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
SUBNET = Subnet.of_encoder([0, 1, 2], [14, 9, 4], 24)


def attention_of(lengths: list[int], *, window: bool = False) -> Attention:
    torch.manual_seed(0)
    queries, keys, values = torch.randn(3, ROWS, TOKENS, HEADS, WIDTH).transpose(2, 3)
    real = torch.arange(TOKENS) < torch.tensor(lengths)[:, None]
    near = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs() < 3
    own = torch.eye(TOKENS, dtype=torch.bool) & ~real[:, :, None]
    allowed = ((near & real[:, None, :]) | own)[:, None] if window else None
    return Attention(queries, keys, values, real, WIDTH**-0.5, allowed)


def by_hand(attention: Attention) -> tuple[Tensor, Tensor]:
    """Context and column sums, a row and a head at a time, without its pads."""
    context = torch.zeros_like(attention.queries)
    scores = torch.zeros(attention.real.shape)
    for row, n in enumerate(attention.real.sum(dim=1).tolist()):
        for head in range(HEADS):
            q, k, v = (t[row, head, :n] for t in (attention.queries, attention.keys, attention.values))
            products = q @ k.T / WIDTH**0.5
            if attention.allowed is not None:
                products = products + attention.allowed[row, 0, :n, :n].float().log()
            probabilities = products.exp() / products.exp().sum(dim=1, keepdim=True)
            context[row, head, :n] = probabilities @ v
            scores[row, :n] += probabilities.sum(dim=0)
    return context, scores


@pytest.fixture
def parts(monkeypatch):
    """One entry for each chunk."""
    seen, plain = [], Attention.part
    monkeypatch.setattr(Attention, "part", lambda self, *own: seen.append(own) or plain(self, *own))
    return seen


# Of one head, two heads, one row, two rows and a little, and everything.
@pytest.mark.parametrize("heads", [0.5, 1, 2, HEADS, 2.5 * HEADS, 1000])
@pytest.mark.parametrize("lengths", [[10, 10, 10, 10], [10, 3, 7, 1]])
@pytest.mark.parametrize("window", [False, True])
def test_attention_in_chunks_is_attention(monkeypatch, parts, heads, lengths, window):
    attention = attention_of(lengths, window=window)
    monkeypatch.setattr(tokens, "CHUNK_BYTES", int(heads * PROBABILITIES_OF_A_HEAD))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    context, scores = attend(attention, tokens.column)
    expected, received = by_hand(attention)
    real = attention.real
    ours, theirs = (one.transpose(1, 2)[real] for one in (context, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    torch.testing.assert_close(scores[real], received[real], atol=1e-5, rtol=1e-6)
    assert len(parts) == {0.5: 12, 1: 12, 2: 8, HEADS: 4, 2.5 * HEADS: 2, 1000: 0}[heads]


@pytest.mark.parametrize("score", TOKEN_SCORES)
def test_every_shipped_score_is_the_same_in_chunks(monkeypatch, score):
    attention = attention_of([10, 3, 7, 1])
    monkeypatch.setattr(tokens, "CHUNK_BYTES", PROBABILITIES_OF_A_HEAD)
    _, scores = attend(attention, TOKEN_SCORES[score])
    torch.testing.assert_close(scores, TOKEN_SCORES[score](attention), atol=1e-5, rtol=1e-6)


def test_a_score_that_is_no_sum_over_heads_sees_all_of_them(monkeypatch):
    attention = attention_of([10, 3, 7, 1])
    monkeypatch.setattr(tokens, "CHUNK_BYTES", PROBABILITIES_OF_A_HEAD)
    context, scores = attend(attention, lambda given: given.probabilities.amax(dim=1).sum(dim=1))
    assert torch.equal(scores, attention.probabilities.amax(dim=1).sum(dim=1))
    torch.testing.assert_close(context, attention.probabilities @ attention.values)


def test_gradients_do_not_depend_on_chunks(monkeypatch):
    """Also where only the values have one, which the choice of chunks does not look at."""
    attention = attention_of([10, 3, 7, 1])
    expected, _ = by_hand(attention)
    weights = torch.randn(expected.shape) * attention.real[:, None, :, None]
    names = ("queries", "keys", "values")
    for asked in (names, ("values",)):
        monkeypatch.setattr(tokens, "CHUNK_BYTES", PROBABILITIES_OF_A_HEAD)
        leaves = {name: getattr(attention, name).clone().requires_grad_() for name in asked}
        ours, _ = attend(replace(attention, **leaves), tokens.column)
        theirs, _ = by_hand(replace(attention, **leaves))
        found = torch.autograd.grad((ours * weights).sum(), list(leaves.values()))
        wanted = torch.autograd.grad((theirs * weights).sum(), list(leaves.values()))
        for own, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("lengths", "masks"), [([24, 24, 24], 0), ([24, 9, 24], 3)])
def test_only_padded_products_are_masked(monkeypatch, lengths, masks):
    """Three blocks; of 24, 24 and 24 tokens as many are left in each row after every one."""
    masked = []
    plain = Tensor.masked_fill_

    def watched(self: Tensor, *given: object) -> Tensor:
        if self.dim() == 4:
            masked.append(self.shape)
        return plain(self, *given)

    monkeypatch.setattr(Tensor, "masked_fill_", watched)
    inference(Supernet(tiny_model("bert", blocks=3)), padded_batch(lengths), SUBNET)
    assert len(masked) == masks


def test_a_chunk_is_as_much_as_the_threads_caches_hold(monkeypatch, parts):
    monkeypatch.setattr(tokens, "CHUNK_BYTES", PROBABILITIES_OF_A_HEAD)
    for threads, chunks in ((1, 12), (2, 8), (3, 4), (12, 0)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        parts.clear()
        attend(attention_of([10, 3, 7, 1]), tokens.column)
        assert len(parts) == chunks


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


def test_the_output_projection_sees_kept_rows_only():
    model = tiny_model("bert", blocks=3)
    supernet, seen = Supernet(model), []
    for layer in supernet.layers_of("encoder"):
        layer.attention.output.dense.register_forward_hook(lambda *given: seen.append(given[1][0].shape[1]))
    inference(supernet, padded_batch([24, 9, 24]), SUBNET)
    assert seen == [14, 9, 4]


def test_gathered_rows_are_the_rows():
    hidden, index = torch.randn(3, 7, 5), torch.tensor([[0, 6], [2, 3], [5, 4]])
    by_row = torch.stack([hidden[row, own] for row, own in enumerate(index.tolist())])
    assert torch.equal(tokens.gather(hidden, index), by_row)
    strided = hidden.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(tokens.gather(strided, index), by_row)
