"""The one trainer: a Hugging Face Trainer that runs every pass a strategy names, backward by backward."""

import contextlib
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import PreTrainedTokenizerBase, Trainer, TrainingArguments

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import save_model
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.processor import keep_freed_memory
from ldsearch.supernet.tokens import State
from ldsearch.tasks.base import Batch, Encoded, Task, score, trimmed
from ldsearch.training.checkpoints import load_weights, read_weights
from ldsearch.training.distillation import Distillation, Targets, state_distance
from ldsearch.training.drop_rates import LEARNING_RATE, RateTraining
from ldsearch.training.saliency import fit_saliency, is_fitted, learn_score
from ldsearch.training.sampler import LengthGroupedSampler
from ldsearch.training.strategies import Draws, Pass, Plan
from ldsearch.training.strategies.lengthdrop import Sampled
from ldsearch.work.interruption import interruptible

# Of the generators of a batch, the one that prepares it; the passes count from 0.
_BATCH_DRAW = 1_000_000
# Key of a batch's training row numbers.
_ROWS = "training_rows"
# Number of clipped updates, in the part of the Trainer's state that is saved for callbacks.
_CLIPPED = "clipped_steps"
# Batch size of the teacher's pass over the training rows.
_TAUGHT_ROWS = 64


class SupernetTrainer(Trainer):
    """Trains a supernet; everything but the passes and the data order is the stock Trainer.

    Args:
        supernet: What is trained.
        strategy: Names the sub-networks of each batch. Where its space has lengths and the supernet names no
            token score, one is learned.
        args: The Trainer's arguments, all of which keep their meaning.
        task: Makes batches and losses, and the score of ``--eval_strategy``.
        train: Training examples.
        search: Examples for ``--eval_strategy``.
        tokenizer: Pads batches; saved with every checkpoint.
        distillation: The loss of what learns from a teacher.
        pad_to: Pad every input to this length, as the reference code does.
        teacher: A frozen model whose full sub-network is distilled from; None: the first pass of the batch.
        taught: What the teacher reads for each training row. Its outputs are computed once, before the first
            step; for a head with one output a row. None: it reads every batch as it comes.
    """

    def __init__(
        self,
        supernet: Supernet,
        strategy: Plan,
        args: TrainingArguments,
        *,
        task: Task,
        train: Encoded,
        search: Encoded,
        tokenizer: PreTrainedTokenizerBase,
        distillation: Distillation | None = None,
        pad_to: int | None = None,
        teacher: Supernet | None = None,
        taught: Encoded | None = None,
    ) -> None:
        if args.use_cpu:
            keep_freed_memory()
        space = getattr(strategy, "space", None)
        if not supernet.names_score and space is not None and space.lengths is not None:
            learn_score(supernet)
        self._collate = task.collate(tokenizer, pad_to)
        super().__init__(
            model=supernet,
            args=args,
            data_collator=self._collated,
            train_dataset=cast(Any, train if taught is None else _numbered(train)),
            eval_dataset=cast(Any, search),
            processing_class=tokenizer,
            compute_metrics=lambda held: _score(task, search, held.predictions),
        )
        self.supernet = supernet
        self.strategy = strategy
        self.task = task
        self.search = search
        self.distillation = distillation or Distillation()
        self.teacher = None if teacher is None else teacher.eval().to(args.device)
        self.taught = taught
        self._targets: Targets | None = None
        # Drop rates that are learned beside the weights.
        self._rates: RateTraining | None = None
        if isinstance(strategy, Sampled) and strategy.setting.learned is not None:
            learned = strategy.setting.learned.to(args.device)
            mean = partial(self.accelerator.reduce, reduction="mean")
            self._rates = RateTraining(learned, LEARNING_RATE, mean)
        self.train_rows = train
        self._lengths = train.lengths.tolist()
        self._micro_step = (-1, -1)  # (optimizer step, micro-step within it)
        self._summed = 1.0  # losses whose gradients an update adds up
        self._fitted = is_fitted(supernet)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """The micro-batches of an update on this rank, and their labelled items on all ranks.

        The stock Trainer counts items only for models that take their number.
        """
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        items = sum((self._items(batch) for batch in batches), torch.zeros(())).to(device)
        return batches, self.accelerator.gather(items).sum() if self.args.world_size > 1 else items

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Forward and backward of every pass; gradients add up, as one optimizer step needs them.

        The losses of a micro-batch are means over its items. Each counts by its share of the items of the
        update, so that a token weighs the same in a short batch, in a long one, and on every rank.
        """
        model.train()
        # Autocast keeps the weights that it casts until the outermost context ends: once for all passes.
        with torch.autocast(self.args.device.type, enabled=False):
            return self._passes(model, inputs, num_items_in_batch)

    def _passes(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None
    ) -> Tensor:
        share: Tensor | float = 1 / self.current_gradient_accumulation_steps
        if num_items_in_batch is not None:
            # Ranks average their gradients: each takes its share of the sum.
            share = self._items(inputs).to(self.args.device) / num_items_in_batch * self.args.world_size
        draws = self._next_draws()
        rng = draws(_BATCH_DRAW)
        tokenizer = cast(PreTrainedTokenizerBase, self.processing_class)
        rows = inputs.pop(_ROWS, None)
        batch = self.task.prepare(self._prepare_inputs(inputs), tokenizer, rng)
        progress = self.state.global_step / max(1, self.state.max_steps)
        passes = self.strategy.passes(draws, progress)
        self._summed = sum(named.weight for named in passes)
        if not self._fitted and any(named.subnet.shortens for named in passes):
            self.fit_saliency()
        distils = self.distillation.label_share is not None or any(one.loss == "distill" for one in passes)
        targets = self._teach(batch, rows) if distils else None
        total = self._run(model, batch, passes, targets, share)
        if self._rates is not None and self.accelerator.sync_gradients:
            self._rates.step()
        return total

    def _batch(self, encoded: Encoded, rows: NDArray[np.int64]) -> Batch:
        features = [encoded[row] for row in rows.tolist()]
        return cast(Batch, self._prepare_inputs(self._collate(features)))

    def _run(
        self,
        model: nn.Module,
        batch: Batch,
        passes: Sequence[Pass],
        targets: Targets | None,
        share: Tensor | float = 1.0,
    ) -> Tensor:
        """Forward and backward of all passes over a batch; the sum of their losses."""
        total = torch.zeros((), device=batch["labels"].device)
        for index, named in enumerate(passes):
            part = _rows(named, len(batch["labels"]))
            seen = {name: tensor[part] for name, tensor in batch.items()}
            # Only the last backward may synchronise: the passes of a batch are one gradient.
            last = index == len(passes) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                outputs = self._outputs(model, self.supernet.inputs(seen), named.subnet, self._rates)
                taught = None if targets is None else targets.take(part)
                loss = share * named.weight * self._loss(named, outputs, seen, taught)
                self.accelerator.backward(loss)
            if targets is None:
                states = None if outputs.states is None else outputs.states.detach()
                targets = Targets(outputs.logits.detach(), states)
            total += loss.detach()
        return total

    def step_seconds(self, steps: Sequence[Sequence[Pass]]) -> tuple[float, float]:
        """Mean seconds of the passes of these steps, and of a separate teacher's over a batch.

        The batches are of those that train, at equal distances in the order of their padded tokens. Gradients
        and random numbers are as before afterwards.
        """
        order, size = np.array([*self._get_train_sampler()]), self.args.train_batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        batches.sort(key=lambda rows: len(rows) * max(self._lengths[row] for row in rows))
        tokenizer, rng = cast(PreTrainedTokenizerBase, self.processing_class), np.random.default_rng(0)
        seconds, targets = [], None
        self.supernet.train()
        rates = None if self._rates is None else self._rates.rates
        before = {} if rates is None else copy.deepcopy(rates.state_dict())
        with torch.random.fork_rng():
            for place, passes in [(0, steps[0]), *enumerate(steps)]:  # the first time is a warm-up
                rows = batches[int(len(batches) * (place + 0.5) / len(steps))]
                batch = self.task.prepare(self._batch(self.train_rows, rows), tokenizer, rng)
                begun = time.perf_counter()
                if self.teacher is not None:
                    read = self._batch(self.taught or self.train_rows, rows)
                    targets = self._teacher_outputs(self.teacher, read)
                taught = time.perf_counter()
                with self.accelerator.autocast():  # which a prepared model enters by itself
                    self._run(self.supernet, batch, passes, targets).item()  # waits for an accelerator
                seconds.append((time.perf_counter() - taught, taught - begun))
        self.supernet.zero_grad()
        if rates is not None:
            rates.zero_grad()
            rates.load_state_dict(before)  # they keep means of what they saw
        own, teaching = np.mean(seconds[1:], axis=0).tolist()
        return own, teaching

    def fit_saliency(self) -> None:
        """Fit the learned token score to the model as it is, on some of the training rows."""
        tokenizer = cast(PreTrainedTokenizerBase, self.processing_class)
        with torch.random.fork_rng(), self.accelerator.autocast():
            fit_saliency(self.supernet, self.task, self.train_rows, tokenizer, self.args.seed)
        self._fitted = True

    @property
    def clipped_share(self) -> float:
        """Share of the updates so far whose gradient was clipped; one that was interrupted counts on."""
        return self._counts.get(_CLIPPED, 0) / max(1, self.state.global_step)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """The Trainer's own, with the share of clipped updates beside the norm of the gradient."""
        if "grad_norm" in logs:
            logs["clipped_share"] = self.clipped_share
        super().log(logs, start_time)

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        """Clip the gradient of an update; returns its norm before.

        ``max_grad_norm`` bounds the gradient of one loss. A sum of many, as flexible depth has it, is
        bounded by as many times that: nearly every update would be clipped otherwise.
        """
        bound = self.args.max_grad_norm * self._summed
        norm = cast(Tensor, self.accelerator.clip_grad_norm_(model.parameters(), bound))
        self._counts[_CLIPPED] = self._counts.get(_CLIPPED, 0) + int(norm > bound)
        return norm

    @property
    def _counts(self) -> dict[str, int]:
        # Saved with every checkpoint, and read again.
        return cast(dict[str, int], self.state.stateful_callbacks)

    def _items(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Number of labels that a loss is a mean over; of tokens where training makes the labels."""
        labels = batch.get("labels")
        if labels is None:
            return batch["attention_mask"].sum().float()
        if labels.is_floating_point():  # numbers, which may be -100
            return torch.tensor(float(labels.numel()))
        # A token's label is the next token.
        return (labels[:, 1:] if self.supernet.head.causal else labels).ne(-100).sum().float()

    def _outputs(
        self, model: nn.Module, inputs: Batch, subnet: Subnet, learns: RateTraining | None = None
    ) -> Targets:
        """Logits of a sub-network, with first-token states if they are distilled.

        Rates learn from all blocks: where there are any to learn, those left out are computed too, and then
        gated away.
        """
        if learns is not None:
            (stack,) = subnet.stacks().values()
            return Targets(logits_of(model(inputs, self.supernet.full, learns.rates.gates(stack.blocks))))
        if not self.distillation.state_weight:
            return Targets(logits_of(model(inputs, subnet)))
        states: list[Tensor] = []

        def record(block: int, before: State, after: State) -> Tensor:
            states.append(after.hidden[:, 0])
            return after.hidden

        logits = logits_of(model(inputs, subnet, record))
        return Targets(logits, torch.stack(states, dim=1) if states else None)

    def _teach(self, batch: Batch, rows: Tensor | None) -> Targets | None:
        """Outputs of the separate teacher: looked up by training row, or computed for this batch."""
        if self.teacher is None:
            return None
        if rows is None:
            return self._teacher_outputs(self.teacher, batch)
        if self._targets is None:
            self._targets = self._all_targets(self.teacher)
        return self._targets.take(rows.to(self._targets.logits.device))

    def _teacher_outputs(self, teacher: Supernet, batch: Batch) -> Targets:
        with torch.no_grad(), self.accelerator.autocast():
            return self._outputs(teacher, teacher.inputs(batch), teacher.full)

    def _all_targets(self, teacher: Supernet) -> Targets:
        """Targets of every training row, in batches fixed by length: a resumed training gets the same.

        Raises:
            Interrupted: On a stop request; before the first step there is nothing to save.
        """
        assert self.taught is not None
        order = np.argsort(self.taught.lengths, kind="stable")
        parts = []
        with interruptible() as stop:
            for start in range(0, len(order), _TAUGHT_ROWS):
                stop.check()
                rows = order[start : start + _TAUGHT_ROWS]
                parts.append(self._teacher_outputs(teacher, self._batch(self.taught, rows)))
        states = [part.states for part in parts if part.states is not None]
        sorted_targets = Targets(
            torch.cat([part.logits for part in parts]), torch.cat(states) if states else None
        )
        return sorted_targets.take(torch.from_numpy(np.argsort(order)))

    def _loss(self, named: Pass, outputs: Targets, batch: Batch, targets: Targets | None) -> Tensor:
        how, objective = self.distillation, self.task.objective
        if named.loss == "label" and (how.label_share is None or targets is None):
            return objective.loss(outputs.logits, batch, self.args.label_smoothing_factor)
        if targets is None:
            raise ValueError("the first pass of a batch has nothing to be distilled from")
        loss = objective.divergence(targets.logits, outputs.logits, batch, how.reverse_kl)
        if how.label_share is not None:
            labels = objective.loss(outputs.logits, batch, self.args.label_smoothing_factor)
            loss = how.label_share * labels + (1 - how.label_share) * loss
        if targets.states is not None and outputs.states is not None:
            loss = loss + how.state_weight * state_distance(targets.states, outputs.states)
        return loss

    def _collated(self, features: Sequence[Mapping[str, Any]]) -> Batch:
        """Collate features; keep their training row numbers, if they have any."""
        batch = self._collate([{k: v for k, v in row.items() if k != _ROWS} for row in features])
        if _ROWS in features[0]:
            batch[_ROWS] = torch.tensor([row[_ROWS] for row in features])
        return batch

    def _next_draws(self) -> Draws:
        """Generators for this micro-step: functions of counters only, so the same on every rank."""
        step, micro = self._micro_step
        micro = micro + 1 if step == self.state.global_step else 0
        self._micro_step = (self.state.global_step, micro)
        counters = [self.args.seed, self.state.global_step, micro]
        return lambda index: np.random.default_rng([*counters, index])

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The full model's loss, and what the task reads of its logits."""
        batch = self._prepare_inputs(inputs)
        with torch.no_grad():
            logits = logits_of(model(self.supernet.inputs(batch), self.supernet.full))
            loss = self.task.objective.loss(logits, batch)
            outputs = self.task.read(logits, batch)
        return (
            loss,
            None if prediction_loss_only else outputs,
            None if prediction_loss_only else batch["labels"],
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:
        group = self.args.per_device_train_batch_size * self.args.world_size
        together = self.train_rows.origins if self.task.together else None
        return LengthGroupedSampler(self._lengths, group, self.args.seed, together)

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        # Whatever order trains: the score pairs outputs with the split's features.
        return SequentialSampler(eval_dataset)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        # The stock model under its own key names: a checkpoint loads with AutoModel too.
        folder = output_dir or self.args.output_dir
        assert folder is not None
        assert self.processing_class is not None
        save_model(self.supernet.model, cast(PreTrainedTokenizerBase, self.processing_class), Path(folder))
        if self._rates is not None:
            self._rates.save(Path(folder))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_weights(self.supernet.model, read_weights(Path(resume_from_checkpoint)))
        self._fitted = is_fitted(self.supernet)
        if self._rates is not None:
            self._rates.load(Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        best = self.state.best_model_checkpoint
        if best is not None:
            self._load_from_checkpoint(best)


def _numbered(train: Encoded) -> Encoded:
    """Add its row number to each feature."""
    features = tuple({**feature, _ROWS: row} for row, feature in enumerate(train))
    return replace(train, features=features)


def _rows(named: Pass, count: int) -> slice:
    """The rows a pass sees; all of them where a batch, the last one, has too few to be shared."""
    offset, stride = named.rows
    return slice(offset, None, stride) if offset < count else slice(None)


def _score(task: Task, encoded: Encoded, outputs: Any) -> dict[str, float]:
    rows = trimmed(outputs, encoded.lengths.tolist(), task.per_token)
    return {task.metric.name: score(task.metric, task.statistics(rows, encoded)).value}
