"""The laws of a token score."""

from dataclasses import replace

import torch
from torch import Tensor

from ldsearch.supernet.tokens import Attention

ROWS, HEADS, TOKENS, WIDTH = 3, 2, 9, 4
REAL = (9, 4, 1)  # tokens of each row that are no padding


class TokenScoreContract:
    """Laws of a token score; a test class inherits it.

    Attributes:
        counts_pads: Whether pad queries count on purpose, as in the length-adaptive reference code; then
            padding may change the score.
    """

    counts_pads = False

    def score(self, attention: Attention) -> Tensor:
        """The score under test."""
        raise NotImplementedError

    def test_there_is_one_finite_score_per_token(self) -> None:
        """Shape (B, n), also for one token, large products and half precision."""
        large = replace(_attention(), scaling=1e4)
        alone = _take(_attention(), torch.tensor([0]))
        queries, keys, values = (heads.bfloat16() for heads in _heads(_attention()))
        half = Attention(queries, keys, values, _attention().real, 0.5)
        for attention in (*_kinds(), large, alone, half):
            scores = self.score(attention)
            assert scores.shape == attention.real.shape
            assert scores.isfinite().all()

    def test_scores_tell_tokens_apart(self) -> None:
        """Equal scores would keep the first tokens, whatever they say."""
        for attention in _kinds():
            scores = self.score(attention)[0]
            assert float(scores.max() - scores.min()) > 1e-3

    def test_padding_changes_nothing(self) -> None:
        """Neither what pads hold nor how many there are."""
        if self.counts_pads:
            return
        for attention in _kinds():
            expected, real = self.score(attention), attention.real
            noise = torch.randn(attention.queries.shape, generator=torch.Generator().manual_seed(1))
            queries, keys, values = (
                torch.where(real[:, None, :, None], heads, 9 * noise) for heads in _heads(attention)
            )
            filled = replace(attention, queries=queries, keys=keys, values=values)
            _assert_close(self.score(filled)[real], expected[real])
            for row, n in enumerate(REAL):
                alone = _row(_take(attention, torch.arange(n)), row)
                _assert_close(self.score(alone)[0], expected[row, :n])

    def test_a_row_is_scored_on_its_own(self) -> None:
        """Whatever else is in the batch."""
        for attention in _kinds():
            expected = self.score(attention)
            for row in range(ROWS):
                _assert_close(self.score(_row(attention, row))[0], expected[row])

    def test_the_order_of_tokens_does_not_matter(self) -> None:
        """Permuted tokens have permuted scores: what a token is worth does not depend on its index."""
        order = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(2))
        for attention in _kinds():
            _assert_close(self.score(_take(attention, order)), self.score(attention)[:, order])

    def test_the_attention_is_left_as_it_was(self) -> None:
        """The block goes on with it."""
        attention, before = _attention(), _attention()
        assert torch.equal(attention.probabilities, before.probabilities)
        self.score(attention)
        for ours, theirs in zip(_heads(attention), _heads(before), strict=True):
            assert torch.equal(ours, theirs)
        assert torch.equal(attention.real, before.real)
        assert torch.equal(attention.probabilities, before.probabilities)


def _attention() -> Attention:
    """Padded on the right, every token seen by every real one."""
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(3, ROWS, HEADS, TOKENS, WIDTH, generator=generator)
    real = torch.arange(TOKENS) < torch.tensor(REAL)[:, None]
    return Attention(heads[0], heads[1], heads[2], real, 0.5)


def _heads(attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    return attention.queries, attention.keys, attention.values


def _kinds() -> tuple[Attention, ...]:
    """Everyone sees everyone; or the neighbours only, with pads that see themselves; or by a bias."""
    everywhere, generator = _attention(), torch.Generator().manual_seed(3)
    tokens = torch.arange(TOKENS)
    near = (tokens[:, None] - tokens).abs() < 3
    own = torch.eye(TOKENS, dtype=torch.bool) & ~everywhere.real[:, :, None]
    allowed = (near & everywhere.real[:, None, :]) | own
    biased = replace(everywhere, bias=torch.randn(1, HEADS, TOKENS, TOKENS, generator=generator))
    return everywhere, replace(everywhere, allowed=allowed[:, None]), biased


def _take(attention: Attention, index: Tensor) -> Attention:
    """The same with some tokens only, in the order of the index."""
    allowed, bias = attention.allowed, attention.bias
    return Attention(
        attention.queries[:, :, index],
        attention.keys[:, :, index],
        attention.values[:, :, index],
        attention.real[:, index],
        attention.scaling,
        None if allowed is None else allowed[:, :, index][..., index],
        bias=None if bias is None else bias[:, :, index][..., index],
    )


def _row(attention: Attention, row: int) -> Attention:
    """One sequence of the batch."""
    return attention.part(slice(row, row + 1), slice(None))


def _assert_close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
