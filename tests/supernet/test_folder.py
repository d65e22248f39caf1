"""Loading a model: its head, and nothing that lies beside it executed, no pickle, no Python of its own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.heads import HEADS
from ldsearch.supernet.supernet import inference
from ldsearch.testing.inputs import stock_output
from tests.export.test_export import TOKENIZER
from tests.supernet.test_generic import build
from tests.supernet.test_refusals import refused
from tests.tiny import HEADED, padded_batch, row, tiny_model
from tests.translators import EOS, word_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    tiny_model("bert").save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


def test_what_a_caller_may_ask_for_is_not_taken_from_the_folder(folder: Path) -> None:
    fields = {"return_dict": False, "output_attentions": True, "output_hidden_states": True}
    model, _ = load_model(str(folder))
    change(folder / "config.json", **fields)
    again = Supernet(load_model(str(folder))[0])
    batch = {"input_ids": torch.tensor([[2, 4, 3]])}
    assert torch.equal(inference(again, batch, again.full), inference(Supernet(model), batch, again.full))
    again.model.save_pretrained(folder)


def test_a_classifier_of_a_decoder_without_padding_pads_with_its_last_token(tmp_path: Path) -> None:
    model = build("gpt2-classifier", pad_token_id=None)
    model.save_pretrained(tmp_path)
    words = PreTrainedTokenizerFast(tokenizer_object=word_tokenizer().backend_tokenizer, eos_token="</s>")
    words.save_pretrained(tmp_path)
    read, tokenizer = load_model(str(tmp_path))
    assert tokenizer.eos_token_id == read.config.pad_token_id == EOS
    supernet, batch = Supernet(read.eval()), padded_batch([3, 2])  # with that token
    together = inference(supernet, batch, supernet.full)
    for index in (0, 1):
        torch.testing.assert_close(together[index : index + 1], stock_output(model, row(batch, index)))


def change(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.path,))


def test_a_model_comes_with_the_head_it_was_saved_with(folder: Path) -> None:
    for name in HEADED:
        tiny_model("bert", head=name).save_pretrained(folder)
        model, tokenizer = load_model(str(folder))
        assert type(model).__name__ == f"BertFor{name}"
        assert Supernet(model).head.name == name
        assert tokenizer.cls_token == "[CLS]"


def test_a_new_head_has_the_outputs_that_are_asked_for_and_the_encoder_its_weights(folder: Path) -> None:
    saved = tiny_model("bert", head="MaskedLM")
    saved.save_pretrained(folder)
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    asked = {**names, "problem_type": "multi_label_classification"}
    model, _ = load_model(str(folder), HEADS["TokenClassification"], asked)
    assert type(model).__name__ == "BertForTokenClassification"
    assert model.classifier.out_features == model.config.num_labels == 2
    assert {name: getattr(model.config, name) for name in asked} == asked
    own = model.bert.state_dict()
    assert all(torch.equal(saved.bert.state_dict()[name], tensor) for name, tensor in own.items())


@pytest.mark.parametrize("architectures", [["BertModel"], [], None])
def test_a_model_without_a_head_is_refused_where_none_is_asked_for(folder: Path, architectures) -> None:
    change(folder / "config.json", architectures=architectures)
    says = "BertModel" if architectures else "a model without a head"
    refused(lambda: load_model(str(folder)), f"^{says}: only heads for SequenceClassification")
    assert load_model(str(folder), HEADS["SequenceClassification"])


@pytest.fixture
def trap(folder: Path, tmp_path: Path) -> Iterator[Touches]:
    """What must not be unpickled; ``own.py`` beside the model must not run either."""
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    yield Touches(ran)
    assert not ran.exists()


def test_pickled_weights_are_not_unpickled_and_without_others_refused(folder: Path, trap: Touches) -> None:
    pickled = folder / "pytorch_model.bin"
    torch.save({"classifier.bias": trap}, pickled)
    load_model(str(folder))
    (folder / "model.safetensors").unlink()
    refused(lambda: load_model(str(folder)), r"only as \.bin, .* save the model as safetensors")
    pickled.unlink()
    refused(lambda: load_model(str(folder)), r"no file named model\.safetensors")


@pytest.mark.usefixtures("trap")
@pytest.mark.parametrize("model_type", ["bert", "own"])
def test_a_model_with_code_of_its_own_is_refused_and_its_code_not_run(folder: Path, model_type: str) -> None:
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnModel"}
    change(folder / "config.json", model_type=model_type, auto_map=own)
    refused(lambda: load_model(str(folder)), "brings code of its own")


@pytest.mark.usefixtures("trap")
def test_a_tokenizer_with_code_of_its_own_does_not_run_it(folder: Path) -> None:
    own = {"AutoTokenizer": ["own.OwnTokenizer", None]}
    change(folder / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=own)
    load_model(str(folder))
