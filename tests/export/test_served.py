"""Exported folders as other people's programs read them; a test skips where its program is not there."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, constants
from transformers import AutoTokenizer, BertTokenizer, pipeline

import ldsearch
from ldsearch.disk.hub import Origin, origin_of
from ldsearch.export.check import random_rows, verify
from ldsearch.subnet import Subnet
from ldsearch.supernet import Supernet
from tests.export.conftest import FORMS
from tests.export.test_export import LENGTHS, PROVENANCE
from tests.tiny import tiny_model

WORDS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENIZER = BertTokenizer(vocab={word: index for index, word in enumerate([*SPECIAL, *WORDS])})
# Of several lengths, longer than the reference among them.
TEXTS = ["a b c d e f g h i j", "z", "m n o p q r s t u v w x y z a b c d e f g h i j k l m n"]
QUERIES = ["q u e r y"] * 3


def served(labels: int, form: str, folder: Path) -> None:
    """Write an export and check it; of a regression too, which is what rerankers are."""
    model = tiny_model("bert", labels=labels)
    if labels == 1:
        model.config.problem_type = "regression"
    supernet = Supernet(model)
    written = FORMS[form](supernet, TOKENIZER, LENGTHS, folder, PROVENANCE)
    verify(supernet, [written], random_rows(supernet), least_agreement=0.01)


def alone(folder: Path, *texts: list[str]) -> np.ndarray:
    """The logits of every text, or pair of texts, alone: ONNX Runtime scales an int8 batch as a whole."""
    loaded = ldsearch.load(folder)
    batches = [TOKENIZER(*parts, return_tensors="pt") for parts in zip(*texts, strict=True)]
    with torch.inference_mode():
        return torch.cat([loaded(**batch).logits for batch in batches]).numpy()


def printed(*command: object) -> Any:
    """What a program of another environment prints last, as JSON."""
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=elsewhere)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_graph_lies_where_each_of_them_looks(tmp_path):
    for form, names in (("onnx", {"model.onnx"}), ("onnx-int8", {"model.onnx", "model_quantized.onnx"})):
        served(3, form, tmp_path / form)
        assert {path.name for path in (tmp_path / form / "onnx").iterdir()} == names
        assert len({(tmp_path / form / "onnx" / name).read_bytes() for name in names}) == 1
        beside = {"tokenizer.json", "tokenizer_config.json", "README.md", "ldsearch_subnet.json"}
        assert {path.name for path in (tmp_path / form).iterdir()} == {"onnx", "config.json", *beside}


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "electra", "modernbert"])
def test_a_configuration_leaves_nothing_to_defaults(tmp_path, family):
    """Text Embeddings Inference knows no defaults of transformers; the fields are those it reads."""
    supernet = Supernet(tiny_model(family, labels=2))
    FORMS["onnx"](supernet, TOKENIZER, Subnet.of_encoder([0, 2]), tmp_path, PROVENANCE)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert fields["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"}
    assert fields["label2id"] == {"LABEL_0": 0, "LABEL_1": 1}
    assert (fields["hidden_size"], fields["num_hidden_layers"]) == (16, 2)
    assert fields["architectures"][0].endswith("ForSequenceClassification")
    for name in ("model_type", "max_position_embeddings", "pad_token_id"):
        assert name in fields
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.model_max_length == supernet.longest


def test_a_pipeline_of_transformers(tmp_path):
    for form in ("hf", "onnx"):
        served(3, form, tmp_path / form)
        classify = pipeline(
            "text-classification", ldsearch.load(tmp_path / form), tokenizer=TOKENIZER, top_k=None
        )
        found = [{one["label"]: one["score"] for one in answer} for answer in classify(TEXTS, batch_size=3)]
        probabilities = torch.from_numpy(alone(tmp_path / form, TEXTS)).softmax(-1).numpy()
        got = [[answer[f"LABEL_{label}"] for label in range(3)] for answer in found]
        np.testing.assert_allclose(got, probabilities, atol=1e-5)


@pytest.mark.usefixtures("modules")
def test_sentence_transformers_run_the_trusted_code(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    served(1, "hf", tmp_path / "out")
    model = library.CrossEncoder(str(tmp_path / "out"), trust_remote_code=True, device="cpu")
    found = model.predict(list(zip(QUERIES, TEXTS, strict=True)), activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(found, alone(tmp_path / "out", QUERIES, TEXTS)[:, 0], atol=1e-5)


PYTHON = """
import json, sys
from sentence_transformers import CrossEncoder
from torch.nn import Identity
pairs = json.loads(sys.argv[1])
answers = []
for folder, file, rows in json.loads(sys.argv[2]):
    options = {"model_kwargs": {"file_name": file}} if file else {}
    model = CrossEncoder(folder, backend="onnx", device="cpu", **options)
    answers.append(model.predict(pairs, batch_size=rows, activation_fn=Identity()).tolist())
print(json.dumps(answers))
"""


def test_sentence_transformers_run_the_graphs(tmp_path):
    """Where ``ONNX_PYTHON`` is a Python with ``sentence-transformers[onnx]``, of an older transformers."""
    python = os.environ.get("ONNX_PYTHON", "")
    if not Path(python).is_file():
        pytest.skip("ONNX_PYTHON names no Python with sentence-transformers[onnx]")
    served(1, "onnx", tmp_path / "fp32")
    served(1, "onnx-int8", tmp_path / "int8")
    jobs = [("fp32", "", 3), ("int8", "", 1), ("int8", "onnx/model_quantized.onnx", 1)]
    (tmp_path / "served.py").write_text(PYTHON)
    asked = [*zip(QUERIES, TEXTS, strict=True)], [(str(tmp_path / name), *how) for name, *how in jobs]
    answers = printed(python, tmp_path / "served.py", *map(json.dumps, asked))
    for (name, *_), found in zip(jobs, answers, strict=True):
        np.testing.assert_allclose(found, alone(tmp_path / name, QUERIES, TEXTS)[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("form", "file"), [("onnx", "onnx/model.onnx"), ("onnx-int8", "onnx/model_quantized.onnx")]
)
def test_fastembed_runs_the_graph(tmp_path, form, file):
    library = pytest.importorskip("fastembed.rerank.cross_encoder")
    source = pytest.importorskip("fastembed.common.model_description").ModelSource
    served(1, form, tmp_path)
    name = f"ours/{form}"
    library.TextCrossEncoder.add_custom_model(name, model_file=file, sources=source(hf=name))
    model = library.TextCrossEncoder(name, specific_model_path=str(tmp_path), cuda=False)
    found = list(model.rerank(QUERIES[0], TEXTS, batch_size=1 if "int8" in form else 3))
    np.testing.assert_allclose(found, alone(tmp_path, QUERIES, TEXTS)[:, 0], atol=1e-5)


JAVASCRIPT = """
import { createRequire } from "module";
import { pathToFileURL } from "url";
const require = createRequire(process.env.NODE_MODULES_OF + "/here.js");
const { env, pipeline } = await import(pathToFileURL(require.resolve("@huggingface/transformers")));
env.allowRemoteModels = false;
env.localModelPath = process.argv[2];
const answers = {};
for (const [name, dtype] of JSON.parse(process.argv[3])) {
    const classify = await pipeline("text-classification", name, { dtype });
    answers[name] = [];
    for (const text of JSON.parse(process.argv[4])) answers[name].push(await classify(text, { top_k: null }));
}
console.log(JSON.stringify(answers));
"""


def test_transformers_in_javascript_runs_the_graphs(tmp_path):
    """Where ``NODE_MODULES_OF`` names a folder in which ``npm install @huggingface/transformers`` was run."""
    home = os.environ.get("NODE_MODULES_OF", "")
    library = Path(home) / "node_modules" / "@huggingface" / "transformers"
    if not library.is_dir() or not shutil.which("node"):
        pytest.skip("NODE_MODULES_OF names no folder with @huggingface/transformers")
    served(3, "onnx", tmp_path / "fp32")
    served(3, "onnx-int8", tmp_path / "int8")
    (tmp_path / "served.mjs").write_text(JAVASCRIPT)
    forms = json.dumps([["fp32", "fp32"], ["int8", "q8"]])
    answers = printed("node", tmp_path / "served.mjs", tmp_path, forms, json.dumps(TEXTS))
    for name in ("fp32", "int8"):
        named = [{one["label"]: one["score"] for one in answer} for answer in answers[name]]
        found = [[answer[f"LABEL_{label}"] for label in range(3)] for answer in named]
        expected = torch.from_numpy(alone(tmp_path / name, TEXTS)).softmax(-1).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_only_what_is_known_is_said_of_where_a_model_comes_from(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    for home in ("models--somebody--base/snapshots/1", "models--bare", "datasets--somebody--reviews"):
        (tmp_path / "hub" / home).mkdir(parents=True)
    fields = "---\nlicense: mit\nbase_model: somebody/older\n---\n# A model\n"
    (tmp_path / "hub" / "models--somebody--base" / "snapshots" / "1" / "README.md").write_text(fields)
    for folder, card in (("mine", fields), ("damaged", "---\n{: [\n---\n"), ("somebody", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "README.md").write_text(card)

    def said(model: str | None, data: str) -> tuple[list[str], list[str], str]:
        found = origin_of(model, data)
        return [*found.base_model], [*found.datasets], found.licence

    assert said("somebody/base", "somebody/reviews") == (["somebody/base"], ["somebody/reviews"], "mit")
    assert said("bare", "reviews.csv") == (["bare"], [], "")
    assert said("mine", "somebody/other") == (["somebody/older"], [], "mit")
    for nothing in ("damaged", "somebody", "moved/away"):
        assert said(nothing, "reviews.csv") == ([], [], "")
    assert said(None, "somebody/reviews") == ([], ["somebody/reviews"], "")
    (tmp_path / "bare").mkdir()  # a folder of that name is meant before a repository
    assert said("bare", "reviews.csv") == ([], [], "")


def test_the_card_is_one_that_the_hub_reads(tmp_path):
    supernet = Supernet(tiny_model("bert"))
    known = {"base_model": ["somebody/base"], "datasets": ["somebody/reviews"], "license": "mit"}
    origin = Origin(*known.values())
    for provenance, said in (
        (replace(PROVENANCE, origin=origin, metric="accuracy"), {**known, "metrics": ["accuracy"]}),
        (PROVENANCE, {}),
    ):
        for form, write in FORMS.items():
            written = write(supernet, TOKENIZER, LENGTHS, tmp_path / form, provenance)
            verify(supernet, [written], random_rows(supernet), least_agreement=0.01)
            data = ModelCard.load(written.folder / "README.md").data.to_dict()
            assert data.pop("pipeline_tag") == "text-classification"
            assert data.pop("library_name") == ("transformers" if form == "hf" else "onnx")
            assert data.pop("tags")[0] == "ldsearch"
            assert data == said
