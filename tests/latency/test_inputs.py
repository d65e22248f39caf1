"""Cells: random tokens that are no padding, rows of a split, and the lengths that MACs count."""

import pytest
import torch

from ldsearch.costs.workload import Workload
from ldsearch.errors import DataError, LdsearchError
from ldsearch.latency.measure import DATA_BATCHES, data_cell, random_cell
from ldsearch.supernet import Supernet
from tests.tiny import tiny_decoder, tiny_encoder_decoder, tiny_model


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_random_rows_hold_no_padding_and_repeat(family):
    supernet = Supernet(tiny_model(family, positions=2000))
    (inputs,) = random_cell(supernet, 3, 1000).batches
    ids = inputs["input_ids"]
    assert ids.shape == (3, 1000)
    assert bool(inputs["attention_mask"].all())
    # Every id but the one of padding.
    assert set(ids.unique().tolist()) == set(range(60)) - {supernet.model.config.pad_token_id}
    assert torch.equal(ids, random_cell(supernet, 3, 1000).batches[0]["input_ids"])


def test_what_the_model_has_no_positions_for_is_refused():
    encoder, decoder = Supernet(tiny_model("bert", positions=32)), Supernet(tiny_decoder("gpt2"))
    both = Supernet(tiny_encoder_decoder("bart"))
    for supernet, length, written in ((encoder, 33, 0), (decoder, 60, 5), (both, 65, 5), (both, 5, 65)):
        with pytest.raises(LdsearchError, match="positions, too few for"):
            random_cell(supernet, 1, length, written)
    for supernet, length, written in ((encoder, 32, 0), (decoder, 60, 4), (both, 64, 64)):
        random_cell(supernet, 1, length, written)
    with pytest.raises(LdsearchError, match="1 row or more"):
        random_cell(encoder, 0, 8)


def test_rows_of_a_split_are_sorted_and_padded_within_a_batch():
    supernet = Supernet(tiny_model("bert"))
    features = [{"input_ids": [1] * n, "labels": 0} for n in (*range(40, 0, -1), 7)]

    def collate(rows):
        longest = max(len(row["input_ids"]) for row in rows)
        ids = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
        return {"input_ids": torch.tensor(ids), "labels": torch.zeros(len(rows))}

    cell = data_cell(supernet, features, collate, 4)
    assert len(cell.batches) == DATA_BATCHES
    assert all(set(batch) == {"input_ids"} for batch in cell.batches)
    # The 41 rows make ten whole batches: 1-4, 5-7 and the second 7, ...; the ends are among the eight.
    assert cell.lengths[:4] == (1, 2, 3, 4)
    assert cell.lengths[-4:] == (36, 37, 38, 39)
    assert list(cell.lengths) == sorted(cell.lengths)
    assert [batch["input_ids"].shape[1] for batch in cell.batches] == [*cell.lengths[3::4]]
    with pytest.raises(DataError, match="a batch of 42"):
        data_cell(supernet, features, collate, 42)
    with pytest.raises(LdsearchError, match="one running text"):
        data_cell(Supernet(tiny_decoder("gpt2")), features, collate, 4)


def test_macs_count_what_is_read_and_written():
    supernet = Supernet(tiny_decoder("gpt2"))
    cell = random_cell(supernet, 2, 10, 5)
    assert cell.workload(0, causal=False) == Workload(((10, 1),), 10)
    assert cell.workload(5, causal=False) == Workload(((10, 1),), 10, (5,))
    # The last token that a decoder writes it does not read.
    assert cell.workload(1, causal=True) == Workload(((10, 1),), 10)
    assert cell.workload(5, causal=True) == Workload(((14, 1),), 14)
