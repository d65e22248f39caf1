"""One command from a fine-tuned model and some texts to a faster file, checked: fit, search, export.

A folder holds all of it: ``data``, ``supernet``, ``search`` (a search run) and ``model`` (an export).
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ldsearch.bench import Bench
from ldsearch.compression.search import (
    COMPARED_ROWS,
    MARGIN,
    MARGIN_OF_AGREEMENT,
    Found,
    export_points,
    full_model_times,
    points_of,
    short_search,
)
from ldsearch.compression.sentences import on_choice, on_data, on_times
from ldsearch.compression.texts import OwnTexts, read_texts
from ldsearch.disk.files import read_fields, write_json
from ldsearch.disk.fingerprint import start_fingerprint
from ldsearch.disk.staging import staged
from ldsearch.errors import BudgetError, RunError
from ldsearch.export.export import BATCHES, export
from ldsearch.latency.fastest import AUTO, FullModel
from ldsearch.latency.runtimes import graph_runtime
from ldsearch.options import Compress, TrainSupernet
from ldsearch.options.binding import changed
from ldsearch.runs.compressed import Compressed
from ldsearch.runs.folder import claim
from ldsearch.runs.run import COMPRESSED_FILE, RUN_FILE, SEARCH_FOLDER, SUPERNET_FILE, Choice
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.graph import refuse
from ldsearch.tasks import EMBEDDED, DataSource
from ldsearch.tasks.embedding import SentenceEmbedding
from ldsearch.tasks.ranking import Ranking
from ldsearch.tasks.tables import Columns
from ldsearch.training.shallower import most_missed
from ldsearch.training.start import known_labels, named_labels
from ldsearch.training.train_supernet import steps_within, train_supernet
from ldsearch.trials.goal import Goal, NoWorse
from ldsearch.work.progress import NO_PROGRESS, Progress

# What their budget chose is trained alone (results/embeddings/budget, results/reranker/epyc-avx512).
_ALONE = (SentenceEmbedding.kind, Ranking.kind)
_ROUND = 0.001  # of a share: a budget that is written down still has the choice in it
NO_DATA = (
    "compress needs texts such as the model will read: --data texts.csv; some hundreds are enough, and "
    "labels are not needed"
)


def folder_of(options: Compress) -> Path:
    """The folder to write to: as named, or after the model."""
    model = EMBEDDED if options.model is None else Path(options.model).name
    return options.place(f"{model}-compressed")


def compress_into(
    folder: Path,
    options: Compress,
    *,
    progress: Progress = NO_PROGRESS,
    note: Callable[[str], None] = lambda text: None,
) -> Compressed:
    """Fit the token score, search lengths in the fastest runtime, export one file for every budget.

    Args:
        folder: Where everything goes; a call that was interrupted goes on there.
        options: See ``Compress``.
        progress: Receives phases.
        note: Called with what the user should know.

    Raises:
        LdsearchError: One line for a bad model, bad data, a budget that nothing meets, or a failed check.
        Interrupted: After SIGINT or SIGTERM.
    """
    began = time.monotonic()
    work = _opened(folder, options, progress, note)
    begins = claim(folder, COMPRESSED_FILE, work.identity)
    work.write_texts()
    home = work.trained("supernet", work.training(work.model, trainer={"max_steps": "0"}))
    length = max(1, round(home.record.lengths_seen.mean_length))
    goal = Goal.parse("score", *_take(options), cell=(BATCHES[-1], length))
    full = full_model_times(folder, home, goal, progress, runtime=options.runtime)
    given = bench = replace(home, runtime=_runtime(folder, options, full))
    search = partial(
        short_search, default=work.margin, seed=options.seed, progress=progress, rival=full.fastest()
    )
    found = None
    try:
        found = search(folder / SEARCH_FOLDER, given, goal, refuses=options.train is None)
    except BudgetError:
        if options.train is None:
            raise  # what is trained, of fewer blocks perhaps, may meet it

    def chosen(base: Bench) -> Found:
        """The budget's choice among sub-networks of a model of which nothing is trained."""
        if base is home and found is not None:
            return found
        other = replace(base, runtime=given.runtime, beside=given)
        return search(folder / f"{SEARCH_FOLDER}-untrained", other, goal, refuses=False)

    if options.train is not None:
        alone = options.budget is not None and home.task.kind in _ALONE
        taught, met = work.taught(home, options.train, chosen if alone else None)
        other = replace(taught, runtime=given.runtime, beside=given)
        within = goal
        if met:  # times are noisy, and what was trained is not to miss by them the budget that chose it
            within = _costing(_aim(other))
        elif found is not None and found.sure is None and goal.in_time is None:
            # Neither a margin to the full model nor time: what is better at equal cost.
            within = _costing(_share(found.run.best))
        refuses = found is None or found.sure is False
        again = search(folder / f"{SEARCH_FOLDER}-trained", other, within, refuses=refuses)
        if options.blocks is not None:
            words = f"{again.words}, {options.blocks} of the {work.supernet.blocks} blocks"
            again = replace(again, words=words)
        how = f"for {options.train:g} minutes"
        if other.record.at is not None:
            how += f" at {_aim(other):.2f} of the MACs"
        bench, found = _taken((given, found), (other, again), how)
    assert found is not None
    run = found.run
    exported = export_points(folder, bench, run, full, progress)
    rows = points_of(given, bench, run, full, exported)
    metric = bench.task.metric.name
    name = metric if "report" in work.texts.labelled else f"agreement ({metric})"
    done = Compressed(rows, name, (), folder, str(bench.runtime), time.monotonic() - began)
    said = [*on_data(work.texts, bench), *on_choice(done, found, goal), *on_times(done, exported, begins)]
    done = replace(done, words=said)
    record = {"identity": work.identity, "options": changed(options), "search": run.folder.name}
    write_json(folder / COMPRESSED_FILE, {**record, **done.to_dict()})
    return done


@dataclass(frozen=True)
class _Work:
    """A compression under way: what was asked for, the model and the texts, and what is trained on them.

    Args:
        folder: Where everything goes.
        options: What was asked for.
        model: The fine-tuned model.
        supernet: Of its network.
        tokenizer: Its own.
        texts: The texts, split.
        cut: Tokens that an input is cut to; None: as its tokenizer does.
        progress: Receives phases.
        note: Called with what the user should know.
    """

    folder: Path
    options: Compress
    model: str
    supernet: Supernet
    tokenizer: PreTrainedTokenizerBase
    texts: OwnTexts
    cut: int | None
    progress: Progress
    note: Callable[[str], None]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Fields that every call in one folder shares."""
        options, network = self.options, self.supernet.model
        return {
            "model": start_fingerprint(network.state_dict(), network.config.to_dict()),
            "data": self.texts.fingerprint,
            "labelled": sorted(self.texts.labelled),
            "labels": list(self.texts.names),
            "max_length": self.texts.reference,
            "seed": options.seed,
            "metric": options.metric,
            "train": options.train,
            **({} if options.task is None else {"task": options.task}),
            **({"pin_query": True} if options.pin_query else {}),
            **({} if options.blocks is None else {"blocks": options.blocks}),
            **({} if options.runtime == AUTO else {"runtime": options.runtime}),
        }

    @property
    def data(self) -> Path:
        """Folder of the texts."""
        return self.folder / "data"

    @property
    def margin(self) -> NoWorse | None:
        """The loss allowed by default; None where a budget or a margin was asked for."""
        if any(_take(self.options)):
            return None
        return NoWorse(MARGIN if "search" in self.texts.labelled else MARGIN_OF_AGREEMENT)

    def write_texts(self) -> None:
        """Write the texts, unless they are there."""
        if not self.data.is_dir():
            with staged(self.data) as staging:
                self.texts.write(staging, self.supernet, self.tokenizer, self.progress)

    def training(self, model: str, **changes: Any) -> TrainSupernet:
        """A training of a model's lengths on the texts."""
        texts, options = self.texts, self.options
        return TrainSupernet(
            task=texts.kind.kind,
            data=str(self.data),
            model=model,
            genes="lengths",
            max_length=texts.reference,
            keep_overlap=True,  # no rows were drawn that share text
            labels=options.labels,
            metric=options.metric,
            pin_query=options.pin_query,
            seed=options.seed,
            **{f"{name}_column": column for name, column in asdict(texts.columns).items()},
            **changes,
        )

    def trained(self, name: str, how: TrainSupernet, at: Subnet | None = None) -> Bench:
        """The supernet of a training, made where it is not there yet; its tokenizer cuts as asked for."""
        place = self.folder / name
        if not (place / SUPERNET_FILE).is_file():
            # The search scores it.
            train_supernet(place, how, self.note, self.progress, scored=False, at=at)
        if self.cut is not None:
            tokenizer = AutoTokenizer.from_pretrained(place)
            if tokenizer.model_max_length > self.cut:
                tokenizer.model_max_length = self.cut
                tokenizer.save_pretrained(place)
        return Bench.open(place, runs=self.folder)

    def taught(
        self, home: Bench, minutes: float, chosen: Callable[[Bench], Found] | None
    ) -> tuple[Bench, bool]:
        """A supernet that learns from the model alone, frozen, in so many minutes.

        Args:
            home: The model, its token score fitted.
            minutes: Of the training.
            chosen: Names the one sub-network that is trained, of the model that it starts from; those like it
                gain as well (results/embeddings/budget). None: all are (results/imdb).

        Returns:
            The supernet, and whether it is of one sub-network that met this budget.
        """
        start, base, blocks = self.model, home, self.supernet.blocks
        if self.options.blocks is not None:
            blocks = self.options.blocks
            start = str(self.shallower(home, blocks))
        # The smallest keeps a ninth of all blocks' tokens.
        bound = min(
            (place / 100 for place in range(1, 100)),
            key=lambda p: abs(sum((1 - p) ** (block + 1) for block in range(blocks)) / blocks - 1 / 9),
        )
        how = self.training(
            start,
            teacher=self.model,
            drop_bound=bound,
            sandwich="taught",
            label_share=0.0,
            state_weight=float(self.supernet.reads_first),
        )
        path = self.folder / "taught.json"
        if not path.is_file():  # an interrupted training goes on with as many steps, of the same
            if chosen is not None and start != self.model:
                base = self.trained(
                    f"{blocks}-blocks-fitted", self.training(start, trainer={"max_steps": "0"})
                )
            found = None if chosen is None else chosen(base)
            subnet = None if found is None else found.run.best.subnet
            write_json(
                path,
                {
                    "steps": steps_within(how, minutes, subnet),
                    "subnet": subnet and json.loads(subnet.to_json()),
                    "met": self.options.budget if found is not None and found.sure is not False else None,
                },
            )
        fields = read_fields(path)
        at = None if fields["subnet"] is None else Subnet.from_fields(fields["subnet"])
        steps = int(fields["steps"])
        saved = {"save_strategy": "steps", "save_steps": str(max(1, steps // 16))}
        how = replace(how, average_last=min(6, steps), trainer={"max_steps": str(steps), **saved})
        return self.trained("trained", how, at), at is not None and fields.get("met") == self.options.budget

    def shallower(self, home: Bench, blocks: int) -> Path:
        """The model with the blocks that it would miss most, so many, made where it is not there yet."""
        place = self.folder / f"{blocks}-blocks"
        if not place.is_dir():
            rows = home.task.encode("train", home.tokenizer, home.record.reference)
            kept = most_missed(
                *(home.supernet, home.task, rows, home.tokenizer, blocks, self.options.seed, self.progress)
            )
            subnet = Subnet.of_encoder(kept).to_json()
            export(home.folder, place, subnet=subnet, limit=COMPARED_ROWS)
        return place


def _opened(folder: Path, options: Compress, progress: Progress, note: Callable[[str], None]) -> _Work:
    """Model and texts, read; nothing is written but the small model, where none was named.

    Raises:
        LdsearchError: One line for what cannot be done with them.
    """
    Goal.parse("score", *_take(options), cell=(BATCHES[-1], 1))
    if options.runtime != AUTO:
        graph_runtime(options.runtime).require()
    if options.model is None and options.data is not None:
        raise RunError("name the fine-tuned model: ldsearch compress MODEL --data FILE")
    if options.model is not None and options.data is None:
        raise RunError(NO_DATA)
    model = options.model or str(_small_model(folder, options, note, progress))
    progress.phase("reading data and model", None)
    network, tokenizer = load_model(model)
    supernet = Supernet(network).eval()
    refuse(supernet)
    known = named_labels(known_labels(model, supernet.head.name), options.labels) or []
    columns = Columns(options.text_column, options.pair_column, options.label_column)
    source = DataSource(options.data or EMBEDDED, columns=columns)
    # The small one was trained on inputs cut alike.
    cut = options.max_length or (TrainSupernet().tokens if options.model is None else None)
    trains = options.train is not None
    if options.blocks is not None and not trains:
        raise RunError(
            "--blocks leaves blocks out, which takes a training: say for how long, as by --train 15"
        )
    if options.blocks is not None and not 1 <= options.blocks < supernet.blocks:
        raise RunError(f"--blocks must lie in 1..{supernet.blocks - 1} for this model, not {options.blocks}")
    texts = read_texts(source, known, supernet, tokenizer, cut, trains=trains, task=options.task)
    if texts.note:
        note(texts.note)
    return _Work(folder, options, model, supernet, tokenizer, texts, cut, progress, note)


def _take(options: Compress) -> tuple[str | None, str | None, bool]:
    """The options that choose: a budget, a margin, or the most accurate."""
    return options.budget, options.at_least, options.most_accurate


def _small_model(folder: Path, options: Compress, note: Callable[[str], None], progress: Progress) -> Path:
    """A small plain model of the text that comes with ldsearch, beside the folder; trained once."""
    place = folder.with_name(f"{EMBEDDED}-plain")
    if not (place / SUPERNET_FILE).is_file():
        train_supernet(place, TrainSupernet(strategy="plain", seed=options.seed), note, progress)
    return place


def _runtime(folder: Path, options: Compress, full: FullModel) -> str:
    """The runtime to score and serve in: as named, that of a search which has begun, or the fastest."""
    if options.runtime != AUTO:
        return options.runtime
    path = folder / SEARCH_FOLDER / RUN_FILE
    known = read_fields(path).get("identity", {}) if path.is_file() else {}
    return str(known.get("scored_in") or full.fastest(files=True))


def _taken(plain: tuple[Bench, Found | None], trained: tuple[Bench, Found], how: str) -> tuple[Bench, Found]:
    """The better of two choices on the rows that chose; its words name the other, if there is one."""
    (bench, found), (other, again) = plain, trained
    if found is None:
        words = f"{again.words}; trained {how}: without, nothing is within it"
        return other, replace(again, words=words)
    first, second = found.run.best, again.run.best
    gap = bench.difference(
        other.evaluator.statistics(second.subnet), bench.evaluator.statistics(first.subnet)
    )
    told = f"{gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f}) on the rows that chose"
    if {found.sure, again.sure} != {None}:
        told = f"{_share(second):.2f} of the MACs instead of {_share(first):.2f}, {told}"
    better = gap.mean if bench.task.metric.higher_is_better else -gap.mean
    if _rank(again, better) > _rank(found, 0.0):
        return other, replace(again, words=f"{again.words}; trained {how}: {told}")
    words = f"{found.words}; training {how} gave {told}, and was not taken"
    return bench, replace(found, words=words)


def _aim(trained: Bench) -> float:
    """The share of the MACs of the one sub-network that was trained."""
    assert trained.record.at is not None
    macs, full = (one["macs"] for one in trained.evaluator.costs_of([trained.record.at, trained.whole]))
    return macs / full


def _costing(share: float) -> Goal:
    """The best within a share of the MACs."""
    return Goal.parse(budget=f"{min(1.0, share + _ROUND):.3f}")


def _rank(found: Found, better: float) -> tuple[bool, float, float]:
    """A sort key of choices: first whether it keeps what was asked for, then cost by a margin, then score."""
    return found.sure is not False, -_share(found.run.best) if found.sure else 0.0, better


def _share(choice: Choice) -> float:
    """Share of the full model's MACs."""
    return choice.costs["macs"] / choice.full_costs["macs"]
