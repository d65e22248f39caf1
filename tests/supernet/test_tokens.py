"""Token scores and selection, by hand on small attention."""

from dataclasses import replace

import pytest
import torch

from ldsearch.supernet.tokens import (
    TOKEN_SCORES,
    Attention,
    column,
    column_with_pads,
    power,
    select,
    select_alike,
)


def planted(probabilities: torch.Tensor, real: torch.Tensor) -> Attention:
    """Attention whose probabilities are given: log-probabilities as products of one-hot queries."""
    n = probabilities.shape[-1]
    keys = torch.eye(n).expand(*probabilities.shape[:2], n, n)
    return Attention(probabilities.log(), keys, keys, real, 1.0)


PROBABILITIES = torch.tensor([[[[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.5, 0.1, 0.4]]]])
ALL = torch.ones(1, 3, dtype=torch.bool)


def test_column_sums_what_each_token_receives():
    torch.testing.assert_close(column(planted(PROBABILITIES, ALL)), torch.tensor([[1.5, 0.6, 0.9]]))


def test_power_leaves_out_what_a_token_gives_itself():
    torch.testing.assert_close(power(planted(PROBABILITIES, ALL)), torch.tensor([[0.8, 0.3, 0.5]]))


def test_pads_are_attended_by_nobody_and_their_rows_count_only_under_parity():
    real = torch.tensor([[True, True, False]])
    attention = planted(PROBABILITIES, real)
    # Rows renormalised over the two real keys: 7/9 2/9, 1/2 1/2, 5/6 1/6.
    first, second = [7 / 9, 2 / 9], [1 / 2, 1 / 2]
    expected = torch.tensor([[first[0] + second[0], first[1] + second[1], 0.0]])
    torch.testing.assert_close(column(attention), expected)
    with_pads = expected + torch.tensor([[5 / 6, 1 / 6, 0.0]])
    torch.testing.assert_close(column_with_pads(attention), with_pads)


def test_every_score_of_a_pad_is_zero():
    real = torch.tensor([[True, True, False]])
    for score in TOKEN_SCORES.values():
        assert score(planted(PROBABILITIES, real))[0, 2] == 0


def test_the_best_tokens_stay_in_their_original_order():
    scores = torch.tensor([[0.1, 5.0, 0.2, 4.0, 9.0]])
    real = torch.ones(1, 5, dtype=torch.bool)
    index, kept = select(scores, real, torch.tensor([3]), keep_first=False)
    assert index.tolist() == [[1, 3, 4]]
    assert kept.all()


def test_cls_always_stays_where_the_head_reads_it():
    scores = torch.tensor([[0.0, 5.0, 0.2, 4.0]])
    real = torch.ones(1, 4, dtype=torch.bool)
    assert select(scores, real, torch.tensor([2]), keep_first=True)[0].tolist() == [[0, 1]]


def test_ties_go_to_the_earlier_token_and_pads_leave_first():
    scores = torch.zeros(2, 4)
    real = torch.tensor([[True, True, True, True], [True, True, False, False]])
    index, kept = select(scores, real, torch.tensor([3, 1]), keep_first=True)
    assert index[0].tolist() == [0, 1, 2]
    assert index[1, 0].item() == 0
    assert kept.tolist() == [[True, True, True], [True, False, False]]


@pytest.mark.parametrize("score", TOKEN_SCORES)
def test_a_window_hides_keys_and_their_scores_follow(score):
    n = 3
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() < 2
    attention = replace(planted(PROBABILITIES, ALL), allowed=near[None, None])
    # The corners are out of reach: 7/9 2/9 -, 3/10 3/10 4/10, - 1/5 4/5.
    expected = torch.tensor([[7 / 9, 2 / 9, 0], [0.3, 0.3, 0.4], [0, 0.2, 0.8]])
    torch.testing.assert_close(attention.probabilities[0, 0], expected)
    own = expected.diagonal() if score == "power" else 0
    torch.testing.assert_close(TOKEN_SCORES[score](attention)[0], expected.sum(dim=0) - own)


def test_some_of_the_heads_score_for_themselves():
    both = torch.cat([PROBABILITIES, PROBABILITIES.flip(-1)], dim=1)
    attention = planted(both, ALL)
    torch.testing.assert_close(column(attention.part(slice(None), [1])), torch.tensor([[0.9, 0.6, 1.5]]))
    torch.testing.assert_close(column(attention.part(slice(None), [0, 1])), column(attention))


@pytest.mark.parametrize("keep_first", [True, False])
def test_rows_that_keep_alike_keep_what_select_keeps(keep_first):
    """Ties too; and the scores are left as they were."""
    scores = torch.randint(4, (5, 9), generator=torch.Generator().manual_seed(0)).float()
    before, real = scores.clone(), torch.ones(5, 9, dtype=torch.bool)
    for count in (1, 4, 9):
        expected, _ = select(scores, real, torch.full((5,), count), keep_first)
        assert torch.equal(select_alike(scores, count, keep_first), expected)
        assert torch.equal(scores, before)
