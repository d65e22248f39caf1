"""Loading a model executes nothing that lies beside it: no pickled weights, no Python of its own."""

import json
from pathlib import Path

import pytest
import torch
from transformers import BertTokenizer

from ldsearch.errors import SupernetError
from ldsearch.supernet.folder import load_classifier
from tests.tiny import tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    tiny_model("bert").save_pretrained(folder)
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    BertTokenizer(vocab={token: index for index, token in enumerate(tokens)}).save_pretrained(folder)
    load_classifier(str(folder))
    return folder


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.path,))


def test_pickled_weights_are_refused_in_one_line_and_not_unpickled(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"classifier.bias": Touches(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(SupernetError, match=r"only as \.bin, .* save the model as safetensors") as refused:
        load_classifier(str(folder))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_safetensors_are_read_where_pickled_weights_lie_beside_them(folder: Path, tmp_path: Path) -> None:
    torch.save({"classifier.bias": Touches(tmp_path / "ran")}, folder / "pytorch_model.bin")
    load_classifier(str(folder))
    assert not (tmp_path / "ran").exists()


def test_no_weights_at_all_are_one_line(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(SupernetError, match=r"no file named model\.safetensors") as refused:
        load_classifier(str(folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("model_type", ["bert", "own"])
def test_a_model_with_code_of_its_own_is_refused_in_one_line_and_its_code_not_run(
    folder: Path, tmp_path: Path, model_type: str
) -> None:
    (folder / "own.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    own = {
        "AutoConfig": "own.OwnConfig",
        "AutoModelForSequenceClassification": "own.OwnModel",
    }
    change(folder / "config.json", model_type=model_type, auto_map=own)
    with pytest.raises(SupernetError, match="brings code of its own") as refused:
        load_classifier(str(folder))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_with_code_of_its_own_does_not_run_it(folder: Path, tmp_path: Path) -> None:
    (folder / "own.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    own = {"AutoTokenizer": ["own.OwnTokenizer", None]}
    change(folder / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=own)
    load_classifier(str(folder))
    assert not (tmp_path / "ran").exists()
