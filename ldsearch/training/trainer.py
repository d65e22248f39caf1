"""The one trainer: a Hugging Face Trainer that runs every pass a strategy names, backward by backward."""

import contextlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase, Trainer, TrainingArguments

from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import save_model
from ldsearch.tasks.classification import Encoded, TextClassification
from ldsearch.training.distillation import kl_divergence
from ldsearch.training.sampler import LengthGroupedSampler
from ldsearch.training.strategies import Draws, Pass, TrainingStrategy


class SupernetTrainer(Trainer):
    """Trains a supernet; everything but the passes and the data order is the stock Trainer.

    Args:
        supernet: What is trained.
        strategy: Names the sub-networks of each batch.
        args: The Trainer's arguments, all of which keep their meaning.
        task: Turns logits into the score of ``--eval_strategy``.
        train: Training examples.
        search: Examples for ``--eval_strategy``.
        tokenizer: Pads batches; saved with every checkpoint.
        reverse_kl: Distil with the reference code's divergence.
        pad_to: Pad every input to this length, as the reference code does.
        teacher: A frozen model whose full sub-network is distilled from; None: the first pass of the batch.
    """

    def __init__(
        self,
        supernet: Supernet,
        strategy: TrainingStrategy,
        args: TrainingArguments,
        *,
        task: TextClassification,
        train: Encoded,
        search: Encoded,
        tokenizer: PreTrainedTokenizerBase,
        reverse_kl: bool = False,
        pad_to: int | None = None,
        teacher: Supernet | None = None,
    ) -> None:
        super().__init__(
            model=supernet,
            args=args,
            data_collator=DataCollatorWithPadding(
                tokenizer, padding=True if pad_to is None else "max_length", max_length=pad_to
            ),
            train_dataset=cast(Any, train),
            eval_dataset=cast(Any, search),
            processing_class=tokenizer,
            compute_metrics=lambda held: _score(task, held),
        )
        self.supernet = supernet
        self.strategy = strategy
        self.search = search
        self.reverse_kl = reverse_kl
        self.teacher = None if teacher is None else teacher.eval().to(args.device)
        self._lengths = train.lengths.tolist()
        self._micro_step = (-1, -1)  # (optimizer step, micro-step within it)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Forward and backward of every pass; gradients add up, as one optimizer step needs them."""
        model.train()
        batch = self._prepare_inputs(inputs)
        labels = batch.pop("labels")
        total = torch.zeros((), device=labels.device)
        teacher = self._teach(batch)
        progress = self.state.global_step / max(1, self.state.max_steps)
        passes = self.strategy.passes(self._next_draws(), progress)
        for index, one in enumerate(passes):
            # Only the last backward may synchronise: the passes of a batch are one gradient.
            last = index == len(passes) - 1
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                logits = model(batch, one.subnet).logits
                loss = one.weight * self._loss(one, logits, labels, teacher)
                self.accelerator.backward(loss / self.current_gradient_accumulation_steps)
            if teacher is None:
                teacher = logits.detach()
            total += loss.detach() / self.current_gradient_accumulation_steps
        return total

    def _teach(self, batch: dict[str, Any]) -> Tensor | None:
        """The separate teacher's logits, shape (rows, labels)."""
        if self.teacher is None:
            return None
        with torch.no_grad(), self.compute_loss_context_manager():
            logits: Tensor = self.teacher(batch, Subnet.full(self.teacher.blocks)).logits
        return logits

    def _loss(self, one: Pass, logits: Tensor, labels: Tensor, teacher: Tensor | None) -> Tensor:
        if one.loss == "label":
            return nn.functional.cross_entropy(
                logits.float(), labels, label_smoothing=self.args.label_smoothing_factor
            )
        if teacher is None:
            raise ValueError("the first pass of a batch has nothing to be distilled from")
        return kl_divergence(teacher, logits, reverse=self.reverse_kl)

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
        """The full model's loss and logits."""
        batch = self._prepare_inputs(inputs)
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model(batch, Subnet.full(self.supernet.blocks)).logits
            loss = nn.functional.cross_entropy(logits.float(), labels)
        return loss, None if prediction_loss_only else logits, None if prediction_loss_only else labels

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:
        group = self.args.per_device_train_batch_size * self.args.world_size
        return LengthGroupedSampler(self._lengths, group, self.args.seed)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        # The stock model under its own key names: a checkpoint loads with AutoModel too.
        folder = output_dir or self.args.output_dir
        assert folder is not None
        assert self.processing_class is not None
        save_model(self.supernet.model, cast(PreTrainedTokenizerBase, self.processing_class), Path(folder))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        weights = load_file(Path(resume_from_checkpoint) / "model.safetensors")
        self.supernet.model.load_state_dict(weights)

    def _load_best_model(self) -> None:
        best = self.state.best_model_checkpoint
        if best is not None:
            self._load_from_checkpoint(best)


def _score(task: TextClassification, held: Any) -> dict[str, float]:
    return {task.metric: task.score(task.statistics(held.predictions, held.label_ids)).value}
