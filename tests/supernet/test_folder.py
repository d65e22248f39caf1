"""Loading a model: its head, and nothing that lies beside it executed, no pickle, no Python of its own."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import BertTokenizer, GPT2Config, GPT2ForSequenceClassification, PreTrainedTokenizerFast

from ldsearch.errors import SupernetError
from ldsearch.supernet import Supernet
from ldsearch.supernet.folder import load_model
from ldsearch.supernet.heads import HEADS
from ldsearch.supernet.supernet import inference
from tests.tiny import HEADED, tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    tiny_model("bert").save_pretrained(folder)
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    BertTokenizer(vocab={token: index for index, token in enumerate(tokens)}).save_pretrained(folder)
    load_model(str(folder))
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
    fields = {"vocab_size": 9, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, "num_labels": 2}
    torch.manual_seed(0)
    model = GPT2ForSequenceClassification(GPT2Config(**fields, eos_token_id=8, bos_token_id=8)).eval()
    assert model.config.pad_token_id is None
    model.save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({**{f"w{i}": i for i in range(8)}, "<|end|>": 8}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|end|>").save_pretrained(tmp_path)
    read, tokenizer = load_model(str(tmp_path))
    assert tokenizer.eos_token_id == read.config.pad_token_id == 8
    supernet = Supernet(read.eval())
    batch = {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 8]])}
    batch["attention_mask"] = (batch["input_ids"] != 8).long()
    together = inference(supernet, batch, supernet.full)
    for row, length in ((0, 3), (1, 2)):
        with torch.no_grad():
            alone = model(input_ids=batch["input_ids"][row : row + 1, :length]).logits
        torch.testing.assert_close(together[row : row + 1], alone)


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
    asked = {
        "id2label": {0: "bad", 1: "good"},
        "label2id": {"bad": 0, "good": 1},
        "problem_type": "multi_label_classification",
    }
    model, _ = load_model(str(folder), HEADS["TokenClassification"], asked)
    assert type(model).__name__ == "BertForTokenClassification"
    assert model.classifier.out_features == model.config.num_labels == 2
    assert model.config.id2label == asked["id2label"]
    assert model.config.problem_type == asked["problem_type"]
    own = model.bert.state_dict()
    assert all(torch.equal(saved.bert.state_dict()[name], tensor) for name, tensor in own.items())


@pytest.mark.parametrize("architectures", [["BertModel"], [], None])
def test_a_model_without_a_head_is_refused_where_none_is_asked_for(
    folder: Path, architectures: list[str] | None
) -> None:
    change(folder / "config.json", architectures=architectures)
    says = "BertModel" if architectures else "a model without a head"
    with pytest.raises(SupernetError, match=f"^{says}: only heads for SequenceClassification") as refused:
        load_model(str(folder))
    assert "\n" not in str(refused.value)
    assert load_model(str(folder), HEADS["SequenceClassification"])


def test_pickled_weights_are_refused_in_one_line_and_not_unpickled(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"classifier.bias": Touches(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(SupernetError, match=r"only as \.bin, .* save the model as safetensors") as refused:
        load_model(str(folder))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_safetensors_are_read_where_pickled_weights_lie_beside_them(folder: Path, tmp_path: Path) -> None:
    torch.save({"classifier.bias": Touches(tmp_path / "ran")}, folder / "pytorch_model.bin")
    load_model(str(folder))
    assert not (tmp_path / "ran").exists()


def test_no_weights_at_all_are_one_line(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(SupernetError, match=r"no file named model\.safetensors") as refused:
        load_model(str(folder))
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
        load_model(str(folder))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_with_code_of_its_own_does_not_run_it(folder: Path, tmp_path: Path) -> None:
    (folder / "own.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    own = {"AutoTokenizer": ["own.OwnTokenizer", None]}
    change(folder / "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map=own)
    load_model(str(folder))
    assert not (tmp_path / "ran").exists()
