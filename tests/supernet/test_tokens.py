"""Token scores, selection and gathered rows, by hand on small tensors."""

import pytest
import torch

from ldsearch.supernet.tokens import TOKEN_SCORES, Attention, gather, pairs, select, select_alike

ALL, PADDED = torch.tensor([[True, True, True], [True, True, False]])
PROBABILITIES = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.5, 0.1, 0.4]])
NEAR = (torch.arange(3)[:, None] - torch.arange(3)).abs() < 2
# Real tokens, who sees whom, and the probabilities renormalised over the keys that are seen.
KINDS = {
    "all": (ALL, None, PROBABILITIES),
    "a pad": (PADDED, None, [[7 / 9, 2 / 9, 0], [0.5, 0.5, 0], [5 / 6, 1 / 6, 0]]),
    "a window": (ALL, NEAR[None, None], [[7 / 9, 2 / 9, 0], [0.3, 0.3, 0.4], [0, 0.2, 0.8]]),
}


@pytest.mark.parametrize("score", TOKEN_SCORES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_score_sums_what_each_token_receives(kind, score):
    """``power`` leaves out what a token gives itself; what pads give counts only for parity."""
    real, allowed, wanted = KINDS[kind]
    rows = torch.as_tensor(wanted)
    keys = torch.eye(3)[None, None]
    attention = Attention(PROBABILITIES.log()[None, None], keys, keys, real[None], 1.0, allowed)
    torch.testing.assert_close(attention.probabilities[0, 0], rows)
    received = rows.sum(dim=0) if score == "column-with-pads" else rows[real].sum(dim=0)
    own = rows.diagonal() * real if score == "power" else 0
    torch.testing.assert_close(TOKEN_SCORES[score](attention)[0], received - own)


@pytest.mark.parametrize(
    ("scores", "lengths", "counts", "keep_first", "kept"),
    [
        ([[0.1, 5.0, 0.2, 4.0, 9.0]], [5], [3], False, [[1, 3, 4]]),
        ([[0.0, 5.0, 0.2, 4.0]], [4], [2], True, [[0, 1]]),
        # Ties go to the earlier token, and pads leave first.
        ([[0.0] * 4, [-1.0, -1.0, 0.0, 0.0]], [4, 2], [3, 1], False, [[0, 1, 2], [0]]),
    ],
)
def test_the_best_tokens_stay_in_their_original_order(scores, lengths, counts, keep_first, kept):
    scores = torch.tensor(scores)
    real = torch.arange(scores.shape[1]) < torch.tensor(lengths)[:, None]
    index, stays = select(scores, real, torch.tensor(counts), keep_first)
    assert [row[there].tolist() for row, there in zip(index, stays, strict=True)] == kept


@pytest.mark.parametrize("keep_first", [True, False])
def test_rows_that_keep_alike_keep_what_select_keeps(keep_first):
    """Ties too; and the scores are left as they were."""
    scores = torch.randint(4, (5, 9), generator=torch.Generator().manual_seed(0)).float()
    before, real = scores.clone(), torch.ones(5, 9, dtype=torch.bool)
    for count in (1, 4, 9):
        expected, _ = select(scores, real, torch.full((5,), count), keep_first)
        assert torch.equal(select_alike(scores, count, keep_first), expected)
        assert torch.equal(scores, before)


@pytest.mark.parametrize("tables", [1, 3])
def test_gathered_rows_and_pairs_are_those_rows_and_pairs(tables):
    """Of states laid out in two ways, and of one table of pairs for all rows or one for each."""
    torch.manual_seed(0)
    index = torch.tensor([[3, 0], [1, 1], [0, 4]])
    hidden, whole = torch.randn(3, 5, 4), torch.randn(tables, 2, 5, 5)
    strided = hidden.transpose(0, 1).contiguous().transpose(0, 1)
    for row, own in enumerate(index.tolist()):
        for states in (hidden, strided):
            assert torch.equal(gather(states, index)[row], hidden[row, own])
        assert torch.equal(pairs(whole, index)[row], whole[row % tables][:, own][:, :, own])
