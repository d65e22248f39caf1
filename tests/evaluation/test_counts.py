"""What measuring took: sums that are known another way, and the sentence that says them."""

import numpy as np
import pytest

from ldsearch.costs.macs import Macs
from ldsearch.evaluation.evaluator import Counts, peak_memory
from ldsearch.subnet import Subnet
from ldsearch.workload import Workload
from tests.evaluation.test_evaluator import RATIOS, encoded, evaluator_for

__all__ = ["encoded"]


def test_a_search_is_counted_in_passes_of_the_full_model():
    counts = Counts(1e6, 12, 3, 2.5e6, 5e6, 25e6, 40, 8, 61.4)
    said = counts.describe()
    assert said.startswith(
        "12 sub-networks were measured in 61 s, 3 more were known; that took 2.5 passes of"
    )
    assert "(one by one 5.0; padded too, as the papers' code runs them, 25.0); peak memory" in said
    assert Counts(1e6, cached=1_234).describe() == "nothing was run: all 1,234 measurements were known"


def test_the_peak_grows_with_what_is_allocated():
    before = peak_memory()
    block = np.ones(2**27, dtype=np.uint8)
    assert peak_memory() >= max(before, block.nbytes)


def test_the_equivalents_are_the_costs_of_every_subnetwork(encoded):
    evaluator = evaluator_for(encoded)
    evaluator(RATIOS[:4])
    evaluator(RATIOS[4:])
    shape = evaluator.supernet.shape
    assert evaluator.counts.full_pass_macs == pytest.approx(
        41 * Macs(shape, encoded.workload)([Subnet.full(4)])[0]
    )
    assert evaluator.counts.padded_macs == pytest.approx(41 * Macs(shape, Workload.padded(24))(RATIOS).sum())
    assert evaluator.counts.alone_macs == pytest.approx(41 * Macs(shape, encoded.workload)(RATIOS).sum())


@pytest.mark.parametrize("cache_budget", [0, 2**20, 2**30])
def test_generations_share_and_the_budget_changes_no_score(encoded, cache_budget):
    evaluator, whole = evaluator_for(encoded, cache_budget=cache_budget), evaluator_for(encoded)
    together = {trial.subnet: trial.score.value for trial in whole(RATIOS)}
    for first in range(0, len(RATIOS), 2):
        for trial in evaluator(RATIOS[first : first + 2]):
            assert trial.score.value == together[trial.subnet]
    assert (evaluator.counts.hits > 0) == (cache_budget > 0)
    assert whole.counts.hits == 0
