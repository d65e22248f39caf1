"""Searches a supernet: what each strategy asks, with which controls beside it."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ldsearch.bench import Workbench
from ldsearch.commands.imitation import shortlist
from ldsearch.commands.latencies import know_latency
from ldsearch.commands.searching import Question, RunOutcome, run
from ldsearch.costs.objective import Objective
from ldsearch.search.constant_ratio import ConstantRatio
from ldsearch.search.evolve import EvolveSettings
from ldsearch.search.random_search import RandomSearch
from ldsearch.search.searches import Asked, search_named
from ldsearch.selector import Selector, WithinBudget, parse_selector
from ldsearch.space import LengthSpace
from ldsearch.subnet import Subnet
from ldsearch.watching import Unwatched, Watcher
from ldsearch.workflows.searching.spaces import identity_of, search_space

# What controls and held-out scoring add to a search: random search as many measurements again, the
# constant-ratio line and the frontiers on the held-out rows some more.
_CONTROL_SHARE = 1.5


@dataclass(frozen=True)
class Plan:
    """What a search would do.

    Args:
        space: Name of the search space.
        size: How many sub-networks it holds, those too that cost less than the cheapest one searched.
        cheapest: Share of the full model's MACs of its cheapest sub-network.
        dearest: The same of its dearest.
        evaluations: The most evaluations the search makes, its controls not counted.
        minutes: Of search, controls and held-out scoring, were they run one by one; estimated from one
            measured batch and the mean cost of the space's two ends.
    """

    space: str
    size: int
    cheapest: float
    dearest: float
    evaluations: int
    minutes: float


def plan_evolve(
    bench: Workbench,
    *,
    selector: Selector,
    strategy: str | None,
    space: str | None,
    evaluations: int | None,
    parity: bool,
    objective: str = "score",
    genes: str | None = None,
    latency_table: Path | None = None,
) -> Plan:
    """What ``evolve`` would do, without running it.

    Raises:
        LdsearchError: One line for a bad strategy, budget or space.
    """
    usual = search_named(strategy, parity).evaluations
    chosen = search_space(bench, space, genes, parity)
    know_latency(bench, objective_of(objective, selector), latency_table)
    check_reachable(bench, selector, chosen.smallest())
    cheap, dear, full = bench.macs([chosen.smallest(), chosen.largest(), bench.full])
    count = min(usual if evaluations is None else evaluations, chosen.size() + 1)
    mean_share = (cheap + dear) / 2 / full
    passes = count * (1 + _CONTROL_SHARE)
    minutes = bench.evaluator.seconds_per_full_pass() * mean_share * passes / 60
    return Plan(chosen.name, chosen.size(), cheap / full, dear / full, count, minutes)


def evolve(
    bench: Workbench,
    folder: str | Path,
    *,
    selector: Selector | None = None,
    strategy: str | None = None,
    objective: str = "score",
    space: str | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    parity: bool = False,
    genes: str | None = None,
    latency_table: Path | None = None,
    watcher: Watcher | None = None,
) -> RunOutcome:
    """Search lengths, depths and groups, alone or together; run again to go on or to ask something else.

    Random search and the space's regular configurations (of lengths: constant ratio) are measured beside it
    with at most as many evaluations in the same space, and every frontier once on the rows that nothing was
    chosen by.

    Args:
        bench: The supernet.
        folder: Where reports go.
        selector: Which sub-network to take, as ``parse_selector("0.4")`` reads it; None: the best score.
        strategy: ``surrogate``, which measures only the children that a Gaussian process thinks most of;
            ``nsga``, which measures all; ``greedy``, which goes down one step after the other; ``random``;
            ``lat``, the reference code's; or one that was registered (``ldsearch.search.searches``). None:
            ``surrogate``, with ``parity`` ``nsga``.
        objective: As ``Objective.parse`` reads it. With ``kl`` the search goes by the divergence from the
            full model's outputs, without labels, and only the frontier of that is measured by the score.
            Costs are minimised beside it: ``macs``, ``parameters``, registered ones, and
            ``latency@batch=8,length=128``, as a table predicts it; then what is found is timed.
        space: A shipped search space or a YAML file; None: the range that was trained.
        evaluations: The most sub-networks to measure, the full model included, controls and what ``kl``
            measures by the score not; None: 150, of ``greedy`` and ``lat`` all that they ask.
        seed: Of the search.
        parity: The reference code's grid and numbers of children.
        genes: What is searched, where no space says it: ``"lengths"``, ``"depth"``, ``"ffn"``, ``"head"``,
            ``"sublayer"``, or several joined by ``+``. None: lengths, where the model can drop tokens.
        latency_table: Where a latency is asked for: what ``ldsearch profile --table`` wrote on this device.
            None: ``<supernet>-latency.csv`` beside the supernet.
        watcher: Is told what happens.

    Raises:
        LdsearchError: One line for a bad strategy, objective, budget, space or folder.
        Interrupted: After SIGINT or SIGTERM; what was measured is stored.
    """
    found = search_named(strategy, parity)
    selector = selector or parse_selector()
    goal = objective_of(objective, selector)
    evaluations = found.evaluations if evaluations is None else evaluations
    watcher = watcher or Unwatched()
    bench.require_supernet()
    chosen = search_space(bench, space, genes, parity)
    know_latency(bench, goal, latency_table)
    check_reachable(bench, selector, chosen.smallest())
    cost, *others = (bench.cost(name) for name in goal.costs)
    settings = EvolveSettings.parity() if parity else EvolveSettings()
    # A short search starts from fewer configurations, still spread over the whole cost range.
    short = replace(settings, initial=max(1, min(settings.initial, evaluations - 1)))
    # The full model is measured first in any case; a control that proposes it too may ask for one more.
    spare = int(chosen.contains(bench.full))
    asked = found.build(Asked(chosen, cost, seed, evaluations, short, tuple(others)))
    identity = {
        **goal.identity,
        "seed": seed,
        "space": identity_of(chosen),
        "settings": asdict(settings),
    }
    regular = "constant-ratio" if isinstance(chosen, LengthSpace) else "regular"
    by_kl = goal.score == "kl"
    question = Question(
        shortlist(bench, asked, evaluations, found.patience, watcher, costs=goal.costs) if by_kl else asked,
        {**identity, "evaluations": evaluations} if by_kl else identity,
        None if by_kl else evaluations,
        controls=lambda count: (
            ConstantRatio(chosen, cost, count + spare, regular),
            RandomSearch(chosen, cost, seed, count + spare),
        ),
        objective=goal,
        patience=found.patience,
        screened=evaluations if by_kl else 0,
    )
    return run(bench, Path(folder), question, selector, watcher)


def objective_of(text: str, selector: Selector) -> Objective:
    """What is minimised, given what the user wrote and what is to be taken.

    Raises:
        RunError: If nothing is searched by it.
    """
    return Objective.parse(text, selector.budget if isinstance(selector, WithinBudget) else None)


def check_reachable(bench: Workbench, selector: Selector, cheapest: Subnet) -> None:
    """Refuse a budget below the cheapest sub-network that there is.

    Raises:
        LdsearchError: If it is one.
    """
    if isinstance(selector, WithinBudget):
        least, full = bench.evaluator.costs_of([cheapest, bench.full])
        selector.budget.check_reachable(least, full, cheapest.describe())
