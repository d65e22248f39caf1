"""A shortlist: the frontier by one score, proposed once for measuring by another."""

from ldsearch.costs.macs import EncoderShape, Macs
from ldsearch.search.constant_ratio import ConstantRatio
from ldsearch.search.loop import PATIENCE, search
from ldsearch.search.shortlist import Shortlist
from ldsearch.space import load_space
from ldsearch.trial import Score, Trial
from ldsearch.workload import Workload

DEMO = load_space("demo")
COST = Macs(EncoderShape(6, 128, 512), Workload.padded(64))


def measure(score):
    def evaluate(subnets, generation):
        return [
            Trial(s, "kl", Score(score(s), False), {"macs": float(c)}, 1, "search", 0.0, "f", generation)
            for s, c in zip(subnets, COST(subnets), strict=True)
        ]

    return evaluate


def test_only_what_is_on_the_first_scores_frontier_is_measured_by_the_second():
    line = ConstantRatio(DEMO, COST, 8)
    # The third is the best: of the dearer ones, and of the full model, none is worth its cost.
    losses = dict(zip(line.subnets, [5.0, 6.0, 1.0, 2.0, 3.0, 2.0, 1.5, 1.0], strict=True))
    strategy = Shortlist(line, measure(lambda s: losses.get(s, 1.0)), DEMO.full(), 100, PATIENCE, "line-kl")
    assert strategy.propose(0, ()) == [line.subnets[0], line.subnets[2]]
    measured = search(strategy, measure(lambda s: 0.0), DEMO.full())
    assert [trial.subnet for trial in measured.trials] == [DEMO.full(), line.subnets[0], line.subnets[2]]
    assert measured.stopped == "exhausted"


def test_the_first_search_has_its_own_evaluations_and_proposes_what_it_asked_for_only():
    line = ConstantRatio(DEMO, COST, 8)
    # Dearer is better, so that the full model, which was not asked for, is on the frontier too.
    strategy = Shortlist(line, measure(lambda s: -float(COST([s])[0])), DEMO.full(), 4, PATIENCE, "line-kl")
    assert strategy.propose(0, ()) == line.subnets[:3]
