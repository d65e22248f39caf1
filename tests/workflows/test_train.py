"""What a training says and refuses before it starts: prime depths, options of other tasks, scratch models."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    PreTrainedConfig,
    TrainerState,
)

from ldsearch.errors import LdsearchError, SupernetError, TrainingError
from ldsearch.options import TrainSupernet
from ldsearch.supernet.folder import load_supernet, read_record
from ldsearch.training.run import checkpoints_of, length_of, training_arguments
from ldsearch.training.start import peak_rate
from ldsearch.training.train_supernet import train_supernet
from ldsearch.training.trainer import SupernetTrainer
from ldsearch.work.interruption import Interrupted
from tests.cli.conftest import trained
from tests.stops import ask_to_stop
from tests.workflows.conftest import texts_options

__all__ = ["trained"]  # a fixture of the command line's tests
FLAGS = {"max_steps": "2", "disable_tqdm": "True", "save_strategy": "steps", "save_steps": "1"}


def options(texts: Path, encoder: int = 2, decoder: int = 2, **changes: object) -> TrainSupernet:
    depths = {"encoder_layers": encoder, "decoder_layers": decoder}
    options = texts_options(texts, "translation", depths, strategy="flexible-depth", trainer=FLAGS)
    return replace(options, **changes)


def test_a_prime_depth_is_noted_and_trained(texts, tmp_path):
    notes: list[str] = []
    folder = train_supernet(tmp_path / "prime", options(texts, 3, 4), notes.append)
    assert len(notes) == 1
    assert "3" in notes[0]
    record = read_record(folder)
    assert record.depths == {"encoder": 3, "decoder": 4}
    assert record.training["depth_tasks"]["assignment"] == "optimal"
    assert record.workload["written"]
    supernet, _, tokenizer = load_supernet(folder)
    # From scratch, BART begins a text with the token that ends one.
    config = supernet.model.config
    assert config.decoder_start_token_id == config.eos_token_id == tokenizer.eos_token_id
    assert config.vocab_size == len(tokenizer)


def test_the_last_checkpoints_are_averaged_or_the_wish_is_refused(texts, tmp_path):
    last = train_supernet(tmp_path / "last", options(texts))
    mean = train_supernet(tmp_path / "mean", options(texts, average_last=2))
    one, two = (dict(load_supernet(folder)[0].named_parameters()) for folder in (last, mean))
    assert one.keys() == two.keys()
    assert any((one[name] != two[name]).any() for name in one)
    limited = options(texts, average_last=2, trainer={**FLAGS, "save_total_limit": "1"})
    with pytest.raises(TrainingError, match=r"--average-last must lie in 1..--save_total_limit"):
        train_supernet(tmp_path / "limited", limited)


def test_a_causal_model_from_scratch_tears_no_line_on_request_and_no_other_task_takes_the_wish(
    texts, tmp_path
):
    how = texts_options(texts, "causal", {}, strategy="layerdrop", model=None, sentences=True)
    record = read_record(train_supernet(tmp_path / "causal", how))
    assert record.source["sentences"]
    assert record.depths == {"decoder": 8}
    with pytest.raises(LdsearchError, match="--sentences is for --task causal, not translation"):
        train_supernet(tmp_path / "refused", options(texts, sentences=True))
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("task", "strategy", "config"),
    [
        ("masked", "plain", {"num_hidden_layers": 2}),
        ("causal", "layerdrop", {"tie_word_embeddings": True}),
        ("translation", "flexible-depth", {}),
    ],
)
def test_a_training_of_tied_weights_goes_on_where_it_was_stopped(
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    strategy: str,
    config: dict[str, object],
) -> None:
    flags = {**FLAGS, "max_steps": "4", "save_steps": "9"}
    how = texts_options(texts, task, config, strategy=strategy, trainer=flags)
    whole = train_supernet(tmp_path / "whole", how)
    step, calls = SupernetTrainer.training_step, []

    def stopped(self: SupernetTrainer, *batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            ask_to_stop()
        return step(self, *batch)

    monkeypatch.setattr(SupernetTrainer, "training_step", stopped)
    folder = tmp_path / "stopped"
    with pytest.raises(Interrupted):
        train_supernet(folder, how)
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["checkpoint-2"]
    train_supernet(folder, how)
    assert len(calls) == 4
    ours, wanted = (load_file(one / "model.safetensors") for one in (folder, whole))
    assert load_supernet(folder)[0].model.state_dict().keys() > ours.keys()  # some are tied
    for name, tensor in wanted.items():
        assert torch.equal(ours[name], tensor), name


def test_a_model_type_that_would_not_come_back_with_its_tokenizer_is_refused(trained, tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = tmp_path / "qwen2.json"
    model.write_text(json.dumps({"model_type": "qwen2", **sizes, "intermediate_size": 32}))
    data = str(trained / "reviews.csv")
    how = TrainSupernet(data=data, model=str(model), max_length=16, strategy="plain", trainer=FLAGS)
    with pytest.raises(SupernetError, match="would not reload a qwen2 model"):
        train_supernet(tmp_path / "qwen2", how)


def test_a_pretrained_encoder_has_its_epochs_after_those_of_its_new_head(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine_tuned = trained / "runs/tiny"
    how = TrainSupernet(data=str(trained / "reviews.csv"), max_length=16)
    AutoModel.from_pretrained(fine_tuned).save_pretrained(tmp_path / "encoder")
    AutoTokenizer.from_pretrained(fine_tuned).save_pretrained(tmp_path / "encoder")

    class BegunError(Exception):
        pass

    def stop(trainer: Any, *_: object, **__: object) -> None:
        raise BegunError(trainer.args.num_train_epochs)

    monkeypatch.setattr("ldsearch.training.train_supernet.run_training", stop)

    def epochs(model: Path, **changes: object) -> float:
        with pytest.raises(BegunError) as begun:
            train_supernet(Path(tempfile.mkdtemp(dir=tmp_path)), replace(how, model=str(model), **changes))
        return begun.value.args[0]

    encoder = tmp_path / "encoder"
    assert epochs(encoder) == 5  # 2 of 5 is the head's share of 0.4
    assert epochs(encoder, plain_share=0.25) == 4
    assert epochs(encoder, strategy="layerdrop", layer_drop=(0.1,)) == 3
    assert epochs(encoder, seed=1, trainer={"num_train_epochs": "2"}, max_length=15) == 2
    assert epochs(fine_tuned) == 3
    assert epochs(trained / "config.json") == 3


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (BertConfig(hidden_size=512), 1e-4),
        (BertConfig(), 5e-5),
        (DistilBertConfig(dim=384), 1e-4),
        (GPT2Config(), 5e-5),
    ],
)
def test_narrow_pretrained_models_learn_faster_and_vectors_are_learned_faster(
    tmp_path: Path, config: PreTrainedConfig, rate: float
) -> None:
    config.save_pretrained(tmp_path)
    assert peak_rate(TrainSupernet(model=str(tmp_path))) == rate
    assert peak_rate(TrainSupernet(model=str(tmp_path)), alone=True) == 5e-5
    for alone in (False, True):
        vectors = TrainSupernet(model=str(tmp_path), task="embedding")
        assert peak_rate(vectors, alone=alone) == pytest.approx(3 * rate)
    assert peak_rate(TrainSupernet(model=str(tmp_path / "config.json"))) == 5e-4  # from scratch


@pytest.mark.parametrize("share", [0.33, 0.34, 0.5, 0.07])
def test_as_many_checkpoints_are_expected_as_the_trainer_saves(tmp_path: Path, share: float) -> None:
    flags = {"max_steps": 10, "save_strategy": "steps", "save_steps": share}
    arguments = training_arguments(tmp_path, flags, seed=0)
    state = TrainerState(max_steps=10)
    state.compute_steps(arguments, 10)
    saves = {*range(state.save_steps, 11, state.save_steps)} | {10}
    assert checkpoints_of(arguments, 10, 1) == len(saves)


def test_a_training_is_as_long_as_the_trainer_makes_it(tmp_path: Path) -> None:
    for rows, flags, expected in (
        (13_654, {"max_steps": 400}, 400),  # whatever the quotients round to
        (100, {"num_train_epochs": 3}, 3 * 4),
        (100, {"num_train_epochs": 0.3}, 2),  # 1.2
        (100, {"num_train_epochs": 0.5, "gradient_accumulation_steps": 2}, 1),
    ):
        arguments = training_arguments(tmp_path, flags, seed=0)
        assert length_of(arguments, rows)[0] == expected
