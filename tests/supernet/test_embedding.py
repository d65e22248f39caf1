"""Models of sentence-transformers: read as theirs, the mean of what is left, and other ones refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, PreTrainedTokenizerBase

from ldsearch.errors import DataError, SupernetError
from ldsearch.supernet import Supernet
from ldsearch.supernet.embedding import OUTPUT, write_modules
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.tasks.classification import TextExamples
from ldsearch.tasks.embedding import SentenceEmbedding
from ldsearch.tasks.tokenizer import train_wordpiece
from ldsearch.testing.inputs import stock_output
from tests.tiny import tiny_model

POOLING = "1_Pooling/config.json"
TEXTS = ["a b c d e f g h", "c d", "b b a h g f e d c b a a b c", "h"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_wordpiece([" ".join(TEXTS)] * 9, 60)


def sentence_folder(
    folder: Path, tokenizer: PreTrainedTokenizerBase, pooling: str, *, normalised: bool
) -> Path:
    """A folder as sentence-transformers saves it: a bare encoder, and how its vectors are made."""
    model = tiny_model("bert", head="SentenceEmbedding")
    model.base_model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    setattr(model.config, OUTPUT, {"pooling": pooling, "normalised": normalised})
    write_modules(model.config, folder, 12)
    return folder


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalised", [True, False])
def test_its_vectors_are_those_of_sentence_transformers(
    tmp_path: Path, tokenizer, pooling, normalised
) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = sentence_folder(tmp_path / "model", tokenizer, pooling, normalised=normalised)
    wanted = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    model, own = load_model(str(folder))
    inputs = own(TEXTS, padding=True, truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape[1] == 12  # as sentence_bert_config.json says
    found = stock_output(model.eval(), inputs)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    # Saved as a model of transformers it is the same again, for them too.
    (tmp_path / "saved").mkdir()
    save_model(model, own, tmp_path / "saved")
    theirs = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), wanted, atol=1e-5)
    again, _ = load_model(str(tmp_path / "saved"))
    torch.testing.assert_close(stock_output(again.eval(), inputs), found)
    assert Supernet(again).reads_first == (pooling == "cls")
    assert np.allclose(np.linalg.norm(wanted, axis=1), 1.0) == normalised


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", {"type": "sentence_transformers.models.Dense"}, "its vectors by Transformer, Dense"),
        (POOLING, {"pooling_mode_max_tokens": True}, "pools by mean and pooling_mode_max_tokens"),
        (POOLING, {"pooling_mode": "lasttoken"}, "pools by lasttoken: mean and cls"),
    ],
)
def test_other_ways_to_make_a_vector_are_one_line(tmp_path: Path, tokenizer, file, change, message) -> None:
    folder = sentence_folder(tmp_path / "model", tokenizer, "mean", normalised=True)
    fields = json.loads((folder / file).read_text())
    if isinstance(fields, list):
        fields[1] |= change
    else:
        fields |= change
    (folder / file).write_text(json.dumps(fields))
    with pytest.raises(SupernetError, match=message):
        load_model(str(folder))


def test_newer_files_name_the_way_in_one_word(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    folder = sentence_folder(tmp_path / "model", tokenizer, "mean", normalised=False)
    fields = {"embedding_dimension": 16, "pooling_mode": "cls", "include_prompt": True}
    (folder / POOLING).write_text(json.dumps(fields))
    assert Supernet(load_model(str(folder))[0]).reads_first


def test_vectors_of_another_width_are_refused_in_whatever_split_they_are() -> None:
    config = BertConfig(hidden_size=2)
    right, wrong = (TextExamples(("a",), None, (vector,)) for vector in ((1.0, 0.0), (1.0,)))
    SentenceEmbedding({}, (), {"train": right}).check_model(config)
    with pytest.raises(DataError, match="vectors have 1 numbers, the model's 2"):
        SentenceEmbedding({}, (), {"train": right, "report": wrong}).check_model(config)
