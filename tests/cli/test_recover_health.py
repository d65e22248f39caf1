"""Recovery and health: one sub-network trained on its own, beside the score it inherits."""

import csv
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from scipy.stats import kendalltau

from ldsearch.runs import newest_supernet
from tests.cli.conftest import Ldsearch, read, weights

PART = '{"version":1,"encoder":{"blocks":[0]}}'


def recover(ldsearch: Ldsearch, *flags: object) -> object:
    return ldsearch("train-supernet", "--model", "runs/tiny", "--subnet", PART, "--name", "recovered", *flags)


def test_a_recovered_model_is_evaluated_and_exported_like_a_run(ldsearch: Ldsearch, place: Path) -> None:
    before = weights(place / "runs/tiny")
    outcome = recover(ldsearch, "--max_steps", 4, "--learning_rate", "1e-3")
    assert outcome.code == 0
    assert "inherited" in outcome.out
    assert "recovered" in outcome.out
    after = weights(place / "runs/recovered")
    assert not before["classifier.weight"].equal(after["classifier.weight"])
    kept = [name for name in before if ".layer.1." in name]
    assert kept
    assert all(before[name].equal(after[name]) for name in kept)
    assert all(tensor.equal(before[name]) for name, tensor in weights(place / "runs/tiny").items())
    assert "encoder blocks 0" in ldsearch("evaluate", "runs/recovered").out
    assert ldsearch("export", "runs/recovered", "out").code == 0
    assert "4 steps on its own, from the full model's logits" in (place / "out/README.md").read_text()
    # The full model is still the newest supernet to search.
    assert newest_supernet(place / "runs").name == "tiny"


def test_the_same_recovery_again_trains_nothing_and_another_is_refused(
    ldsearch: Ldsearch, place: Path
) -> None:
    first = recover(ldsearch, "--max_steps", 3)
    stamp = (place / "runs/recovered/model.safetensors").stat().st_mtime_ns
    again = recover(ldsearch, "--max_steps", 3)
    assert first.out.endswith(again.out)
    assert (place / "runs/recovered/model.safetensors").stat().st_mtime_ns == stamp
    other = recover(ldsearch, "--max_steps", 4)
    assert other.code == 2
    assert other.err.count("\n") == 1
    assert "another run" in other.err


def test_recovering_into_the_supernet_itself_is_refused(ldsearch: Ldsearch, place: Path) -> None:
    before = weights(place / "runs/tiny")
    outcome = ldsearch("train-supernet", "--model", "runs/tiny", "--subnet", PART, "--name", "tiny")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert all(tensor.equal(before[name]) for name, tensor in weights(place / "runs/tiny").items())


def health(ldsearch: Ldsearch, *flags: object) -> object:
    return ldsearch("report", "--health", "--count", 5, "--steps", 2, *flags)


def test_fine_tuning_with_a_rate_of_zero_changes_no_score(ldsearch: Ldsearch, place: Path) -> None:
    outcome = health(ldsearch, "--learning_rate", 0)
    assert outcome.code == 0
    with (place / "runs/tiny-health/health.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 5
    assert all(row["inherited"] == row["fine_tuned"] for row in found)


def test_tau_is_scipys_of_the_table_and_finished_sub_networks_are_kept(
    ldsearch: Ldsearch, place: Path
) -> None:
    assert health(ldsearch, "--learning_rate", "1e-2").code == 0
    folder = place / "runs/tiny-health"
    assert {path.name for path in folder.iterdir()} == {
        "health.csv",
        "health.json",
        "health.png",
        "run.json",
        *(f"subnet-{i}.json" for i in range(5)),
    }
    # Planted scores are taken as they are: nothing is trained again.
    for i in range(5):
        row = read(folder / f"subnet-{i}.json")
        text = (folder / f"subnet-{i}.json").read_text()
        text = text.replace(f'"inherited": {row["inherited"]}', f'"inherited": {[1, 3, 2, 4, 5][i]}')
        text = text.replace(f'"fine_tuned": {row["fine_tuned"]}', f'"fine_tuned": {[1, 2, 3, 4, 5][i]}')
        (folder / f"subnet-{i}.json").write_text(text)
    outcome = health(ldsearch, "--learning_rate", "1e-2")
    assert read(folder / "health.json")["tau"] == pytest.approx(
        kendalltau([1, 3, 2, 4, 5], range(5)).statistic
    )
    assert read(folder / "health.json")["tau"] == pytest.approx(0.8)
    assert "Kendall's tau 0.800" in outcome.out


@pytest.mark.parametrize("flags", [("--count", 2), ("--not_a_flag", 1), ("--space", "nowhere.yaml")])
def test_bad_health_options_are_one_line(ldsearch: Ldsearch, place: Path, flags: tuple[object, ...]) -> None:
    outcome = ldsearch("report", "--health", "--steps", 2, *flags)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) <= 2  # the announcement of a sub-network may come first
    assert "Traceback" not in outcome.err


def test_a_choice_of_the_report_rows_is_recovered_and_reported_on_the_search_rows(
    ldsearch: Ldsearch, place: Path
) -> None:
    assert ldsearch("evolve", "--swap", "--evaluations", 5).code == 0
    outcome = ldsearch(
        "train-supernet", "--model", "runs/tiny-evolve-swap", "--max_steps", 2, "--name", "swapped"
    )
    assert "search examples" in outcome.out
    assert "report examples" not in outcome.out
    assert "search examples" in ldsearch("evaluate", "runs/swapped").out
    warned = ldsearch("evaluate", "runs/swapped", "--split", "report")
    assert "chose by these very examples" in warned.err


def test_a_recovered_model_is_compared_with_the_full_model_of_its_supernet(
    ldsearch: Ldsearch, place: Path
) -> None:
    recover(ldsearch, "--max_steps", 2)
    path = place / "runs/recovered/model.safetensors"
    tensors = load_file(path)
    tensors["classifier.weight"] *= -1  # its own full model would now say the opposite
    tensors["classifier.bias"] *= -1
    save_file(tensors, path, metadata={"format": "pt"})

    def full_score(*target: object) -> str:
        out = ldsearch("evaluate", *target, "--split", "search").out
        return next(line for line in out.splitlines() if line.startswith("full model"))

    assert full_score("runs/recovered") == full_score("runs/tiny", "--subnet", "full")
    found = ldsearch("evaluate", "runs/recovered", "--split", "search").out
    assert "difference   +0.0000" not in found


@pytest.mark.parametrize(
    "command",
    [
        ("evolve", "--supernet", "runs/recovered"),
        ("evolve", "--strategy", "every-other", "--supernet", "runs/recovered"),
        ("report", "runs/recovered", "--health"),
        ("train-supernet", "--model", "runs/recovered", "--subnet", PART, "--name", "twice"),
    ],
    ids=lambda command: command[0],
)
def test_what_was_trained_for_one_sub_network_is_no_supernet_any_more(
    ldsearch: Ldsearch, place: Path, command: tuple[str, ...]
) -> None:
    recover(ldsearch, "--max_steps", 2)
    outcome = ldsearch(*command)
    assert outcome.code == 2
    assert outcome.err.endswith("has one sub-network trained on its own and is no supernet any more\n")


def test_health_reads_moved_data_once_and_is_described(ldsearch: Ldsearch, place: Path) -> None:
    (place / "elsewhere").mkdir()
    (place / "reviews.csv").rename(place / "elsewhere/reviews.csv")
    assert health(ldsearch, "--data", "elsewhere/reviews.csv").code == 0
    assert "tau" in ldsearch("info", "runs/tiny-health").out
    outcome = ldsearch("evaluate", "runs/tiny-health")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "is a health run" in outcome.err
