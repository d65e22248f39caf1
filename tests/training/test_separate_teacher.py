"""Which models may teach another: those that answer alike and read what it reads."""

from pathlib import Path
from typing import Any

import pytest

from ldsearch.errors import SupernetError
from ldsearch.options import TrainSupernet
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import save_model
from ldsearch.tasks import TASKS
from ldsearch.training.start import separate_teacher
from tests.export.test_export import TOKENIZER
from tests.tiny import tiny_model


def teacher_of(
    folder: Path, task: str = "classification", pair: str | None = None, given: Any = None, **changes: Any
) -> Supernet | None:
    """What teaches a tiny BERT, of a folder with another of other sizes."""
    names = {"classification": ("a", "b", "c"), "ranking": ("relevance",)}[task]
    model = tiny_model("bert", **changes)
    model.config.id2label = dict(enumerate(names)) if task == "classification" else {0: "LABEL_0"}
    save_model(model, TOKENIZER, folder)
    source = {"columns": {"text": "text", "pair": pair, "label": "label"}}
    options = TrainSupernet(teacher=str(folder), max_length=16, **(given or {}))
    kind = TASKS[task](source, names, {})
    return separate_teacher(options, kind, Supernet(tiny_model("bert")), TOKENIZER)


def test_a_teacher_of_one_number_may_call_it_anything(tmp_path: Path) -> None:
    model = teacher_of(tmp_path / "one", "ranking", labels=1)
    assert model is not None
    assert model.model.config.num_labels == 1


def test_what_reads_less_or_has_other_states_is_refused(tmp_path: Path) -> None:
    assert teacher_of(tmp_path / "alike") is not None
    with pytest.raises(SupernetError, match="reads 8 tokens, fewer than --max-length 16"):
        teacher_of(tmp_path / "short", positions=8)
    wide = {"width": 32, "given": {"state_weight": 1.0}}
    with pytest.raises(SupernetError, match="--state-weight compares states"):
        teacher_of(tmp_path / "wide", **wide)
    assert teacher_of(tmp_path / "wide again", width=32) is not None
