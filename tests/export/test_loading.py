"""``ldsearch.load`` of folders and of repositories; what a folder of ours says to stock transformers."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.utils import filter_repo_objects
from transformers import AutoModelForSequenceClassification, dynamic_module_utils, pipeline

import ldsearch
from ldsearch.errors import MachineError, SupernetError
from ldsearch.export import loading
from ldsearch.export.folder import write_onnx
from ldsearch.export.loading import OnnxModel
from ldsearch.subnet import Subnet
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.supernet.remote_code import CODE
from ldsearch.supernet.saliency import LEARNED, WEIGHTS_FILE, score_weights
from ldsearch.supernet.supernet import inference
from tests.cli.conftest import Ldsearch
from tests.export.test_export import (
    BATCH,
    DEPTH,
    HEADS_OFF,
    LENGTHS,
    NO_ATTENTION,
    PROVENANCE,
    TOKENIZER,
    exported,
    logits,
    wanted,
)
from tests.tiny import learned, tiny_model

NAME = "somebody/reviews"
COMMITS = ("1" * 40, "2" * 40)
ADVICE = "load_with_ldsearch_or_trust_remote_code"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, which is not asked."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where transformers copies code that it is told to trust."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    path = list(sys.path)
    yield
    sys.path[:] = path


def cached(cache: Path, folder: Path, commit: str = COMMITS[0], branch: str = "main") -> Path:
    """A repository in the cache, as the Hub's library leaves it."""
    home = cache / f"models--{NAME.replace('/', '--')}"
    shutil.copytree(folder, home / "snapshots" / commit)
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / branch).write_text(commit)
    return home / "snapshots" / commit


def written_onnx(supernet: Supernet, subnet: Subnet, folder: Path) -> Path:
    return write_onnx(supernet, TOKENIZER, subnet, folder, PROVENANCE).folder


def frontier(supernet: Supernet, folder: Path) -> Path:
    exported(supernet, LENGTHS, folder / "0")
    exported(supernet, DEPTH, folder / "1")
    written_onnx(supernet, LENGTHS, folder / "2")
    (folder / "index.json").write_text(json.dumps([{"folder": str(index)} for index in range(3)]))
    return folder


WRITERS = {
    FixedSubnet: (exported, LENGTHS),
    OnnxModel: (written_onnx, LENGTHS),
    torch.nn.Module: (exported, DEPTH),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_repository_is_what_its_folder_is(tmp_path, cache, kind):
    supernet = Supernet(tiny_model("bert"))
    write, subnet = WRITERS[kind]
    folder = write(supernet, subnet, tmp_path / "out")
    cached(cache, folder)
    for name in (folder, str(folder), NAME):
        loaded = ldsearch.load(name)
        assert isinstance(loaded, kind)
        assert isinstance(loaded, FixedSubnet) == (kind is FixedSubnet)
        assert not loaded.training
        torch.testing.assert_close(logits(loaded), wanted(supernet, subnet), atol=1e-5, rtol=0)


def test_a_model_of_the_hub_brings_its_token_score_if_it_has_one(tmp_path, cache):
    model = learned(tiny_model("bert")).model
    save_model(model, TOKENIZER, tmp_path / "out")
    home = cached(cache, tmp_path / "out")
    found = score_weights(load_model(NAME)[0])
    assert found.keys() == score_weights(model).keys()
    assert all(torch.equal(found[name], own) for name, own in score_weights(model).items())
    (home / WEIGHTS_FILE).unlink()
    assert not score_weights(load_model(NAME)[0])


def test_a_revision_is_asked_for(tmp_path, cache):
    supernets = [Supernet(tiny_model("bert", seed=seed)) for seed in (0, 1)]
    for index, (supernet, branch) in enumerate(zip(supernets, ("main", "v2"), strict=True)):
        cached(cache, exported(supernet, LENGTHS, tmp_path / branch), COMMITS[index], branch)
    for revision, supernet in ((None, 0), ("main", 0), ("v2", 1), (COMMITS[1], 1)):
        found = logits(ldsearch.load(NAME, revision=revision))
        torch.testing.assert_close(found, wanted(supernets[supernet], LENGTHS), atol=1e-5, rtol=0)
    with pytest.raises(SupernetError, match="has no revision v2"):
        ldsearch.load(tmp_path / "v2", revision="v2")
    with pytest.raises(MachineError, match="cannot be reached"):
        ldsearch.load(NAME, revision="v3")


def test_a_frontier_is_asked_which_of_its_models(tmp_path, cache):
    supernet = Supernet(tiny_model("bert"))
    folder = frontier(supernet, tmp_path / "all")
    cached(cache, folder)
    for name in (folder, NAME):
        with pytest.raises(SupernetError, match=r"several models.* subfolder= one of 0, 1, 2"):
            ldsearch.load(name)
        for subfolder, subnet in (("0", LENGTHS), ("1", DEPTH), ("2", LENGTHS)):
            found = logits(ldsearch.load(name, subfolder=subfolder))
            torch.testing.assert_close(found, wanted(supernet, subnet), atol=1e-5, rtol=0)
        with pytest.raises(SupernetError, match="7"):
            ldsearch.load(name, subfolder="7")


def test_what_the_cache_has_not_is_the_networks_fault_and_one_line(tmp_path, cache):
    with pytest.raises(MachineError, match="cannot be reached"):
        ldsearch.load(NAME)
    folder = exported(Supernet(tiny_model("bert")), LENGTHS, tmp_path / "out")
    (folder / "model.safetensors").unlink()
    cached(cache, folder)
    with pytest.raises(MachineError, match=r"the cache holds no model\*.safetensors of somebody/reviews"):
        ldsearch.load(NAME)
    with pytest.raises(SupernetError, match="no model folder"):
        ldsearch.load(tmp_path / "gone")


@pytest.mark.parametrize("score", ["column", LEARNED])
def test_nothing_is_downloaded_but_what_is_read(tmp_path, cache, monkeypatch, score):
    """The Hub's own filter of names, on a repository that holds much besides."""
    supernet = learned(tiny_model("bert")) if score == LEARNED else Supernet(tiny_model("bert"), score)
    remote = frontier(supernet, tmp_path / "remote")
    exported(supernet, LENGTHS, tmp_path / "one")
    for path in (tmp_path / "one").iterdir():
        shutil.copy(path, remote)
    for name in ("pytorch_model.bin", "onnx/model.onnx", "checkpoints/model.safetensors", "0/notes.bin"):
        (remote / name).parent.mkdir(exist_ok=True)
        (remote / name).write_text("large")

    def download(name, *, revision, local_files_only, allow_patterns, ignore_patterns):
        assert name == NAME
        assert local_files_only  # as HF_HUB_OFFLINE has it here
        home = cache / "snapshots" / COMMITS[0]
        assert revision in ("main", COMMITS[0])
        names = [str(path.relative_to(remote)) for path in remote.rglob("*") if path.is_file()]
        for own in filter_repo_objects(names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns):
            (home / own).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(remote / own, home / own)
        return str(home)

    monkeypatch.setattr(loading, "snapshot_download", download)
    for subfolder, weights in (("", "model.safetensors"), ("2", "2/onnx/model.onnx")):
        shutil.rmtree(cache, ignore_errors=True)
        found = logits(ldsearch.load(NAME, revision="main", subfolder=subfolder))
        torch.testing.assert_close(found, wanted(supernet, LENGTHS), atol=1e-5, rtol=0)
        home = cache / "snapshots" / COMMITS[0]
        names = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
        heavy = {name for name in names if not name.endswith((".json", ".py"))}
        scores = {WEIGHTS_FILE} if score == LEARNED and not subfolder else set()
        assert heavy == {weights} | scores
        assert {str(Path(name).parent) for name in names - heavy} == {subfolder or "."}


def test_a_graph_runs_without_masks(tmp_path):
    supernet = Supernet(tiny_model("bert"))
    loaded = ldsearch.load(written_onnx(supernet, LENGTHS, tmp_path / "out"))
    alone = {"input_ids": BATCH["input_ids"][:1]}
    expected = inference(supernet, {**alone}, LENGTHS)
    torch.testing.assert_close(loaded(**alone).logits, expected, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("subnet", [LENGTHS, HEADS_OFF, NO_ATTENTION], ids=["lengths", "heads", "sublayers"])
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_trusted_code_runs_the_sub_network(tmp_path, subnet, head):
    supernet = Supernet(tiny_model("bert", head=head))
    folder = exported(supernet, subnet, tmp_path / "out")
    loaded = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder, trust_remote_code=True)
    assert isinstance(loaded, FixedSubnet)
    torch.testing.assert_close(logits(loaded), wanted(supernet, subnet), atol=1e-5, rtol=0)


@pytest.mark.usefixtures("modules")
def test_a_repository_brings_its_code_to_pipelines_too(tmp_path, cache):
    supernet = Supernet(tiny_model("bert"))
    folder = exported(supernet, LENGTHS, tmp_path / "out")
    cached(cache, folder)
    loaded = AutoModelForSequenceClassification.from_pretrained(NAME, trust_remote_code=True)
    torch.testing.assert_close(logits(loaded), wanted(supernet, LENGTHS), atol=1e-5, rtol=0)
    assert load_model(NAME)[0].config.model_type == "bert"  # as a start of training: the code is known
    classify = pipeline("text-classification", model=str(folder), trust_remote_code=True)
    assert isinstance(classify.model, FixedSubnet)
    torch.testing.assert_close(logits(classify.model), wanted(supernet, LENGTHS), atol=1e-5, rtol=0)


@pytest.mark.usefixtures("modules")
def test_options_that_would_be_ignored_are_refused(tmp_path):
    folder = exported(Supernet(tiny_model("bert")), LENGTHS, tmp_path / "out")
    asked, own = {"trust_remote_code": True}, {"device_map": "cpu"}
    for load in (
        AutoModelForSequenceClassification.from_pretrained,
        partial(pipeline, "text-classification"),
    ):
        with pytest.raises(SupernetError, match="is loaded without device_map"):
            load(str(folder), **asked, **({"model_kwargs": own} if isinstance(load, partial) else own))
    half = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.bfloat16, **asked)
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}


WITHOUT_US = """
import sys

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "ldsearch":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Hidden)
from transformers import AutoModelForSequenceClassification as Auto
print(*(type(Auto.from_pretrained(folder)).__name__ for folder in sys.argv[1:]))
Auto.from_pretrained(sys.argv[1], trust_remote_code=True)
"""


def test_where_ldsearch_is_not_stock_transformers_says_so(tmp_path):
    supernet = Supernet(tiny_model("bert"))
    subnets = {"lengths": LENGTHS, "heads": HEADS_OFF}
    folders = [str(exported(supernet, subnet, tmp_path / name)) for name, subnet in subnets.items()]
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
    command = [sys.executable, "-c", WITHOUT_US, *folders]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["BertForSequenceClassification"] * 2, done.stderr
    for what in ("this_class_runs_at_full_length", "this_class_leaves_nothing_out"):
        assert re.search(rf"{what}\.{ADVICE} +\| UNEXPECTED", done.stderr)
    assert done.returncode == 1
    assert "pip install ldsearch" in done.stderr.splitlines()[-1]


def test_only_stock_classes_are_warned(tmp_path, caplog):
    supernet = Supernet(tiny_model("bert"))
    for name, subnet in (("depth", DEPTH), ("lengths", LENGTHS)):
        folder = exported(supernet, subnet, tmp_path / name)
        ldsearch.load(folder)
        assert ADVICE not in caplog.text
        AutoModelForSequenceClassification.from_pretrained(folder)
        assert (ADVICE in caplog.text) == (name == "lengths")
    assert "auto_map" not in json.loads((tmp_path / "depth" / "config.json").read_text())


def changed(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


OURS = "modeling_ldsearch.ExportedModel"
AUTO = "AutoModelForSequenceClassification"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "modeling_ldsearch.py").write_text(f"{CODE}import os\n"),
        lambda folder: (folder / "modeling_ldsearch.py").unlink(),
        lambda folder: changed(folder, auto_map={AUTO: "own.Model"}),
        lambda folder: changed(folder, auto_map={AUTO: OURS, "AutoConfig": "own.Config"}),
        lambda folder: changed(folder, auto_map={AUTO: f"stranger/model--{OURS}"}),
        lambda folder: changed(folder, auto_map=[OURS]),
        lambda folder: changed(folder, auto_map={AUTO: [OURS]}),
    ],
    ids=["a line more", "no code", "another's", "another's too", "elsewhere", "a list", "a list inside"],
)
def test_code_that_is_not_ours_to_the_letter_is_refused(tmp_path, spoil):
    folder = exported(Supernet(tiny_model("bert")), LENGTHS, tmp_path / "out")
    load_model(str(folder))
    spoil(folder)
    for load in (load_model, ldsearch.load):
        with pytest.raises(SupernetError, match="brings code of its own") as refusal:
            load(str(folder))
        assert "\n" not in str(refusal.value)


def test_an_export_comes_back_as_what_it_is(tmp_path):
    supernet = Supernet(tiny_model("bert"))
    folder = exported(supernet, LENGTHS, tmp_path / "out")
    again = ldsearch.load(folder)
    again.save_pretrained(tmp_path / "again")
    TOKENIZER.save_pretrained(tmp_path / "again")
    for name in ("config.json", "ldsearch_subnet.json", "modeling_ldsearch.py"):
        assert (tmp_path / "again" / name).read_text() == (folder / name).read_text()
    torch.testing.assert_close(logits(ldsearch.load(tmp_path / "again")), wanted(supernet, LENGTHS))


@pytest.mark.usefixtures("timing_jobs")
def test_an_export_is_exported_again_at_its_lengths(ldsearch: Ldsearch, wild_place: Path):
    supernet = Supernet(tiny_model("bert"))
    folder = exported(supernet, LENGTHS, wild_place / "first")
    outcome = ldsearch("export", folder, "second", "--format", "onnx", "--runtime", "onnx")
    assert outcome.code == 0, outcome.err
    again = OnnxModel(wild_place / "second")
    torch.testing.assert_close(logits(again), wanted(supernet, LENGTHS), atol=1e-5, rtol=0)
