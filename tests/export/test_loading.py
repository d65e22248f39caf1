"""``ldsearch.load`` of folders and of repositories; what a folder of ours says to stock transformers."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.utils import filter_repo_objects
from transformers import AutoModelForSequenceClassification, pipeline

import ldsearch
from ldsearch.errors import MachineError, SupernetError
from ldsearch.export import loading
from ldsearch.export.loading import OnnxModel
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.folder import load_model, save_model
from ldsearch.supernet.remote_code import CODE
from ldsearch.supernet.saliency import WEIGHTS_FILE, score_weights
from ldsearch.supernet.supernet import inference
from tests.cli.conftest import Ldsearch
from tests.export.test_export import (
    BATCH,
    DEPTH,
    HEADS_OFF,
    LENGTHS,
    NO_ATTENTION,
    TOKENIZER,
    exported,
    runs,
)
from tests.export.test_onnx import written
from tests.tiny import learned, tiny_model

NAME = "somebody/reviews"
COMMITS = ("1" * 40, "2" * 40)
ADVICE = "load_with_ldsearch_or_trust_remote_code"
SUPERNET = Supernet(tiny_model("bert"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An export that drops tokens."""
    return exported(SUPERNET, LENGTHS, tmp_path / "out")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, which is not asked."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def cached(cache: Path, folder: Path, commit: str = COMMITS[0], branch: str = "main") -> Path:
    """A repository in the cache, as the Hub's library leaves it."""
    home = cache / f"models--{NAME.replace('/', '--')}"
    shutil.copytree(folder, home / "snapshots" / commit)
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / branch).write_text(commit)
    return home / "snapshots" / commit


# What lies in the folders of a frontier, and what it is loaded as.
FRONTIER = {
    "0": (exported, LENGTHS, FixedSubnet),
    "1": (exported, DEPTH, transformers.BertForSequenceClassification),
    "2": (written, LENGTHS, OnnxModel),
}


def frontier(supernet: Supernet, folder: Path) -> Path:
    for name, (write, subnet, _) in FRONTIER.items():
        write(supernet, subnet, folder / name)
    (folder / "index.json").write_text(json.dumps([{"folder": name} for name in FRONTIER]))
    return folder


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
        assert runs(ldsearch.load(NAME, revision=revision), supernets[supernet], LENGTHS)
    with pytest.raises(SupernetError, match="has no revision v2"):
        ldsearch.load(tmp_path / "v2", revision="v2")
    with pytest.raises(MachineError, match="cannot be reached"):
        ldsearch.load(NAME, revision="v3")


def test_a_frontier_is_asked_which_of_its_models(tmp_path, cache):
    """From a repository as from its folder."""
    place = frontier(SUPERNET, tmp_path / "all")
    cached(cache, place)
    for name in (place, str(place), NAME):
        with pytest.raises(SupernetError, match=r"several models.* subfolder= one of 0, 1, 2"):
            ldsearch.load(name)
        for subfolder, (_, subnet, kind) in FRONTIER.items():
            loaded = ldsearch.load(name, subfolder=subfolder)
            assert isinstance(loaded, kind)
            assert not loaded.training
            assert runs(loaded, SUPERNET, subnet)
        with pytest.raises(SupernetError, match="7"):
            ldsearch.load(name, subfolder="7")


def test_what_the_cache_has_not_is_the_networks_fault_and_one_line(tmp_path, cache, folder):
    with pytest.raises(MachineError, match="cannot be reached"):
        ldsearch.load(NAME)
    (folder / "model.safetensors").unlink()
    cached(cache, folder)
    with pytest.raises(MachineError, match=r"the cache holds no model\*.safetensors of somebody/reviews"):
        ldsearch.load(NAME)
    with pytest.raises(SupernetError, match="no model folder"):
        ldsearch.load(tmp_path / "gone")


def test_nothing_is_downloaded_but_what_is_read(tmp_path, cache, monkeypatch):
    """The Hub's own filter of names, on a repository that holds much besides."""
    supernet, home = learned(tiny_model("bert")), cache / "snapshots" / COMMITS[0]
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
        assert revision in ("main", COMMITS[0])
        names = [str(path.relative_to(remote)) for path in remote.rglob("*") if path.is_file()]
        for own in filter_repo_objects(names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns):
            (home / own).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(remote / own, home / own)
        return str(home)

    monkeypatch.setattr(loading, "snapshot_download", download)
    for subfolder, weights in (("", {"model.safetensors", WEIGHTS_FILE}), ("2", {"2/onnx/model.onnx"})):
        shutil.rmtree(cache, ignore_errors=True)
        assert runs(ldsearch.load(NAME, revision="main", subfolder=subfolder), supernet, LENGTHS)
        names = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
        assert weights == {name for name in names if not name.endswith((".json", ".py"))}
        assert {str(Path(name).parent) for name in names - weights} == {subfolder or "."}


def test_a_graph_runs_without_masks(tmp_path):
    loaded = ldsearch.load(written(SUPERNET, LENGTHS, tmp_path))
    alone = {"input_ids": BATCH["input_ids"][:1]}
    torch.testing.assert_close(loaded(**alone).logits, inference(SUPERNET, alone, LENGTHS), atol=1e-5, rtol=0)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux lists them")
def test_a_graph_runs_in_as_many_threads_as_torch(tmp_path):
    """A time of one with all cores would not compare with the full model's on some."""
    place, before = written(SUPERNET, LENGTHS, tmp_path), torch.get_num_threads()
    running, opened = lambda: len([*Path("/proc/self/task").iterdir()]), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            first = running()
            opened.append(ldsearch.load(place))
            assert running() - first == threads - 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("subnet", [LENGTHS, HEADS_OFF, NO_ATTENTION], ids=["lengths", "heads", "sublayers"])
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_trusted_code_runs_the_sub_network(tmp_path, subnet, head):
    supernet = Supernet(tiny_model("bert", head=head))
    folder = exported(supernet, subnet, tmp_path / "out")
    loaded = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder, trust_remote_code=True)
    assert isinstance(loaded, FixedSubnet)
    assert runs(loaded, supernet, subnet)


@pytest.mark.usefixtures("modules")
def test_a_repository_brings_its_code_to_pipelines_too(cache, folder):
    cached(cache, folder)
    loaded = AutoModelForSequenceClassification.from_pretrained(NAME, trust_remote_code=True)
    assert load_model(NAME)[0].config.model_type == "bert"  # as a start of training: the code is known
    classify = pipeline("text-classification", model=str(folder), trust_remote_code=True)
    for own in (loaded, classify.model):
        assert isinstance(own, FixedSubnet)
        assert runs(own, SUPERNET, LENGTHS)


@pytest.mark.usefixtures("modules")
def test_options_that_would_be_ignored_are_refused(folder):
    own, asked = {"device_map": "cpu"}, {"trust_remote_code": True}
    classify = partial(pipeline, "text-classification", model_kwargs=own)
    for load in (partial(AutoModelForSequenceClassification.from_pretrained, **own), classify):
        with pytest.raises(SupernetError, match="is loaded without device_map"):
            load(str(folder), **asked)
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
    folders = [exported(SUPERNET, subnet, tmp_path / str(subnet)) for subnet in (LENGTHS, HEADS_OFF)]
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
    command = [sys.executable, "-c", WITHOUT_US, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["BertForSequenceClassification"] * 2, done.stderr
    for what in ("this_class_runs_at_full_length", "this_class_leaves_nothing_out"):
        assert re.search(rf"{what}\.{ADVICE} +\| UNEXPECTED", done.stderr)
    assert done.returncode == 1
    assert "pip install ldsearch" in done.stderr.splitlines()[-1]


def test_only_stock_classes_are_warned(tmp_path, caplog):
    for name, subnet in (("depth", DEPTH), ("lengths", LENGTHS)):
        made = exported(SUPERNET, subnet, tmp_path / name)
        ldsearch.load(made)
        assert ADVICE not in caplog.text
        AutoModelForSequenceClassification.from_pretrained(made)
        assert (ADVICE in caplog.text) == (name == "lengths")
    assert "auto_map" not in json.loads((tmp_path / "depth" / "config.json").read_text())


def changed(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


OURS = "modeling_ldsearch.ExportedModel"
AUTO = "AutoModelForSequenceClassification"


SPOILT = {
    "a line more": lambda folder: (folder / "modeling_ldsearch.py").write_text(f"{CODE}import os\n"),
    "no code": lambda folder: (folder / "modeling_ldsearch.py").unlink(),
    "another's": lambda folder: changed(folder, auto_map={AUTO: "own.Model"}),
    "another's too": lambda folder: changed(folder, auto_map={AUTO: OURS, "AutoConfig": "own.Config"}),
    "elsewhere": lambda folder: changed(folder, auto_map={AUTO: f"stranger/model--{OURS}"}),
    "a list": lambda folder: changed(folder, auto_map=[OURS]),
    "a list inside": lambda folder: changed(folder, auto_map={AUTO: [OURS]}),
}


@pytest.mark.parametrize("how", SPOILT)
def test_code_that_is_not_ours_to_the_letter_is_refused(folder, how):
    load_model(str(folder))
    SPOILT[how](folder)
    for load in (load_model, ldsearch.load):
        with pytest.raises(SupernetError, match="brings code of its own") as refusal:
            load(str(folder))
        assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("timing_jobs")
def test_an_export_is_exported_again_at_its_lengths(ldsearch: Ldsearch, wild_place: Path, folder: Path):
    ldsearch.done("export", folder, "second", "--format", "onnx", "--runtime", "onnx")
    assert runs(OnnxModel(wild_place / "second"), SUPERNET, LENGTHS)
