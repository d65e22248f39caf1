"""What a user did wrong is one line on stderr and exit code 2, and leaves nothing behind.

Each row of the tables ended in a traceback, a hang or a silent acceptance once.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ldsearch.errors import TrainingError
from ldsearch.training.run import training_arguments
from tests.cli.conftest import TRAIN, Ldsearch, reviews

RUN = "runs/tiny-evolve"
NEW = (*TRAIN, "--max_steps", "2", "--name", "new")
RECOVER = "train-supernet --model runs/tiny --subnet one.json"
OTHER_BLOCKS = '--subnet \'{"version":1,"encoder":{"blocks":[0,7]}}\''


def listing(folder: Path) -> dict[str, int]:
    """Every path below with its time of change, links and hidden files too."""
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def expect_refusal(ldsearch: Ldsearch, place: Path, *arguments: object) -> str:
    """What a command says that must be refused and leave nothing."""
    before = listing(place.parent)
    said = ldsearch.refused(*arguments)
    assert listing(place.parent) == before
    return said


def shortened(text: str) -> str:
    return text[:40]


def naming(*commands: str) -> list[tuple[str, str]]:
    """Commands whose refusal names their last flag."""
    flags = re.compile("--[a-zA-Z][a-zA-Z0-9_-]*")
    return [(command, flags.findall(command)[-1]) for command in commands]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        *naming(
            *("--load_best_model_at_end", "--label-share 1.5", "--teacher none --label-share 0.5"),
            *("--strategy plain --label-share 0.5", "--strategy plain --teacher runs/tiny", "--memory kept"),
            *("--state-weight -1", "--state-weight inf", "--learning_rate inf", "--learning_rate -1"),
            *("--per_device_train_batch_size 0", "--gradient_accumulation_steps 0", "--max_grad_norm nan"),
            *("--weight_decay nan", "--weight_decay -1", "--warmup_steps nan", "--seed 4294967296"),
            *("--adam_epsilon -1", "--adam_beta1 2", "--dataloader_num_workers -1", "--torch_compile"),
            *("--neftune_noise_alpha 5", "--remove_unused_columns True", "--fsdp full_shard"),
            *("--name ''", "--name ../escape", "--name tiny/inside", "--name .", f"--name {'x' * 300}"),
        ),
        ("--data missing.csv", "missing.csv"),
        ("--model gpt2.json", "train it with --strategy lengthdrop --genes depth, layerdrop, plain"),
        ("--model broken.json", "broken.json"),
        ("--model ./missing", "./missing"),
        ("--model empty", "empty"),
        ("--name tiny", "runs/tiny"),
        ("--name other", "runs/other"),
        ("--runs reviews.csv", "reviews.csv"),
        ("--optim adamw_bnb_8bit", "Trainer"),
        ("reviews.csv", "reviews.csv"),
        ("--max-length 1", "2..512"),
        ("--max-length 513", "2..512"),
        ("--sandwich taught", "--teacher FOLDER"),
        ("--token-score sideways", "column, power"),
        ("--strategy layerdrop --skipped norm", "--skipped is for --drop-groups"),
        ("--task poetry", "unknown task 'poetry'"),
        ("--metric beauty", "beauty"),
        ("--teacher nowhere/at/all", "no model folder"),
        ("--dataloader_persistent_workers", "--dataloader_num_workers"),
        ("--label_smoothing_factor 0.1", "own loss"),
        ("--warmup_ratio 0.1", "--warmup_steps takes a share"),
        ("--evaluation_strategy=epoch", "--eval_strategy"),
        ("--overwrite_output_dir", "--name"),
        ("--epochs 3", "did you mean --num_train_epochs?"),
        ("--batch-size 8", "did you mean --per_device_train_batch_size?"),
        ("--drop-bond 0.5", "did you mean --drop-bound?"),
        ("--labels good,good", "distinct names"),
        ("--labels good,ugly", "the model classifies good, ugly"),
        ("--lr_scheduler_type warmup_stable_decay", "num_decay_steps"),
        ("--load_best_model_at_end --eval_strategy epoch --metric_for_best_model x", "accuracy, not x"),
        ("--num_train_epochs 3", "--max_steps and --num_train_epochs"),
        ("--average-last 99 --save_total_limit 99", "saves 2 checkpoints"),
        ("--length-mode other", "length mode"),
        ("--stride 5", "--task questions"),
        ("--config x", "hub dataset"),
        ("--assignment seq", "--strategy flexible-depth"),
        ("--encoder-tasks 99", "--strategy flexible-depth"),
        ("--batch-share 1/2", "--strategy flexible-depth"),
        ("--strategy plain --layer-drop 0.1", "layerdrop or lengthdrop"),
        ("--strategy plain --drop-bound 0.1", "lengthdrop or flexible-depth"),
        ("--strategy layerdrop --sandwich shares", "--strategy lengthdrop"),
        ("--genes heads", "--genes is depth, lengths or depth+lengths"),
        ("--genes lengths --layer-drop 0.1", "--layer-drop has no effect with --genes lengths"),
        ("--genes lengths --teacher-drops", "--teacher-drops has no effect with --genes lengths"),
        ("--genes depth --drop-bound 0.1", "--drop-bound has no effect with --genes depth"),
        ("--genes depth --parity", "--parity has no effect with --genes depth"),
        ("--strategy plain --genes depth", "--genes is for --strategy lengthdrop"),
        ("--parity --length-mode other", "length mode"),
        ("--parity --strategy layerdrop", "--parity is for --strategy lengthdrop"),
        ("--parity --strategy flexible-depth", "--parity is for --strategy lengthdrop"),
        ("--pair-column text", "no text column"),
        (f"--data {'x' * 5000}.csv", "too long"),
        (f"--model {'x' * 5000}", "xxx"),
    ],
    ids=shortened,
)
def test_a_training_that_makes_no_sense(ldsearch: Ldsearch, place: Path, flags: str, says: str) -> None:
    (place / "gpt2.json").write_text('{"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2}')
    (place / "broken.json").write_text("[]")
    (place / "empty").mkdir()
    (place / "runs" / "other").mkdir()
    (place / "runs" / "other" / "thesis.tex").write_text("years of work")
    assert says in expect_refusal(ldsearch, place, *NEW, *shlex.split(flags))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"mixed_precison": "yes"}, "--mixed_precison yes"),
        ({"num_train_epochs": "many"}, "'many'"),
        ({"save_strategy": "sometimes"}, "'sometimes'"),
        ({"output_di": "elsewhere"}, "--name"),
        ({"resume_from_checkpoint": "elsewhere"}, "goes on by itself"),
        ({"save_only_model": True}, "--save_only_model"),
        ({"activation_checkpointing_kwargs": '{"every_n_layers": 2}'}, "recomputed"),
        ({"num_train_epochs": "0"}, "--num_train_epochs"),
        ({"max_steps": "0"}, "--max_steps"),
    ],
)
def test_flags_that_the_trainer_would_not_understand_or_train_nothing_with(
    tmp_path: Path, flags: dict[str, object], says: str
) -> None:
    with pytest.raises(TrainingError, match=says):
        training_arguments(tmp_path / "new", flags, seed=0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        *naming(
            *("--max-memory inf", "--max-memory nan", "--latency-table nope.csv", "--name ''"),
            *("--name ../escape", f"--evaluations {10**23}", f"--seed {10**22}"),
            *("--strategy every-other --evaluations 5", "--strategy every-other --space demo"),
            *("--strategy constant-ratio --keep 1", "--strategy every-other --keep 1e999999999"),
            f"--strategy every-other --keep {'9' * 5000}",
        ),
        # The default bound of two blocks is 0.74 (0.26 + 0.26² = 0.33, a mean of 16%): of 16 tokens
        # ceil(0.26 · 16) = 5 and ceil(0.26 · 5) = 2 stay.
        ("--budget 0.05", "the cheapest (encoder blocks 0, lengths 2 of 16) costs 0."),
        ("--budget 0.05", "; --genes lengths --widen searches lengths down to 0.1"),
        ("--budget 0.05 --genes lengths", "; --widen searches lengths down to 0.1"),
        ("--budget 0.05 --dry-run", "the cheapest"),
        ("--budget 0.9 --runtime onnx", "--runtime and --latency-table are for a latency"),
        ("--budget 5ms@batch=2,length=16", "--batch 2 --length 16"),
        ("--budget 5ms@batch=3,length=16 --latency-table gone.csv", "--table gone.csv --batch 3 --length 16"),
        ("--strategy every-other --budget 0.1", "the cheapest (encoder blocks 0) costs 0.5"),
        ("--space config.json", "config.json"),
        ("--space absolute.yaml", "absolute lengths"),
        ("--genes depth --strategy lat", "it chooses lengths only"),
        ("--strategy every-other --keep 99", "1..2"),
        ("--strategy every-other --keep decoder=1", "one number of blocks for encoder each"),
        ("--strategy every-other --keep none", "cannot read --keep 'none'"),
        ("--strategy every-other-literal --keep 2", "rate"),
        ("--strategy beam --objective luck", "unknown objective 'luck'"),
        ("--keep 1 --genes depth", "--genes"),
        ("--name other", "runs/other"),
        ("--runs elsewhere", "ldsearch train-supernet"),
        ("--data longer.csv", "train rows"),
        ("--data ugly.csv", "bad, good, ugly"),
        ("--max-memory 0.1", "is the least"),
        ("--storage postgresql://user:word@host:port/x", "names no storage"),
    ],
    ids=shortened,
)
def test_a_search_that_makes_no_sense(ldsearch: Ldsearch, place: Path, flags: str, says: str) -> None:
    (place / "runs" / "other").mkdir()
    (place / "runs" / "other" / "thesis.tex").write_text("years of work")
    lengths = "{reference: 16, mode: absolute, drop_bound: 0.5, levels: 4}"
    (place / "absolute.yaml").write_text(f"{{name: s, source: here, blocks: 2, lengths: {lengths}}}")
    (place / "longer.csv").write_text(reviews().replace("\n", "\na film,good\n", 1))
    (place / "ugly.csv").write_text(reviews().replace("\n", "\na film,ugly\n", 1))
    said = expect_refusal(ldsearch, place, "evolve", "--name", "new", *shlex.split(flags))
    assert says in said
    assert "word" not in said


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("evaluate nowhere", "nowhere"),
        ("export nowhere out", "nowhere"),
        ("info nowhere", "nowhere"),
        ("info nowhere --budget 0.5", "nowhere"),
        ("info reviews.csv", "reviews.csv"),
        ("info runs/tiny --budget 0.5", "nothing was measured on runs/tiny"),
        ("info runs/tiny --budget 9ms@batch=1,length=8", "at which batch and length"),
        ("info runs/tiny --at-least full --most-accurate", "--most-accurate"),
        ("info runs/tiny --clean", "is for a folder of runs"),
        ("info damaged", "damaged"),
        ("info damaged --budget 0.5", "no finished search"),
        ("info damaged --save reviews.csv", "reviews.csv"),
        ("evaluate damaged", "damaged"),
        ("evaluate runs/tiny", "--subnet"),
        ("evaluate runs/tiny --subnet '{'", "no JSON"),
        ("evaluate runs/tiny --subnet best", "'best'"),
        (f"evaluate runs/tiny {OTHER_BLOCKS}", "block 7"),
        (f"evaluate runs/tiny {OTHER_BLOCKS.replace('0,7', '0.5')}", "0.5"),
        ("evaluate runs/tiny --subnet full --split test", "train, search, report"),
        ("evaluate runs/tiny --subnet full --metric bleu", "translation"),
        (f"export runs/tiny out {OTHER_BLOCKS}", "block 7"),
        ("export runs/tiny runs --subnet full", "not empty"),
        ("export runs/tiny reviews.csv/out --subnet full", "cannot write"),
        (f"{RECOVER} --name tiny", "is the supernet itself"),
        (f"{RECOVER} --teacher runs/tiny", "--teacher takes in-place or none"),
        (f"{RECOVER} --strategy plain", "--strategy is for training a supernet"),
        (f"{RECOVER} --max_steps 0", "--max_steps"),
        (f"{RECOVER} --label-share 1.5", "--label-share must lie in 0..1"),
        (f"{RECOVER} --teacher none --label-share 0.5", "need a teacher"),
        ("profile runs/tiny --frontier", "is a model, not a search run"),
        ("profile runs/tiny --frontier --subnet full", "exclude each other"),
        (f"profile runs/tiny {OTHER_BLOCKS}", "block 7 of a model of 2 blocks"),
        ("profile runs/tiny --subnet full --runtime tpu", "use one of eager, own, compile"),
        ("profile runs/tiny --subnet full --batch 0", "cannot read --batch '0'"),
        ("profile runs/tiny --subnet full --length 8,x", "cannot read --length '8,x'"),
        ("profile runs/tiny --subnet full --length 9999", "positions, too few for 9999 tokens"),
        ("profile runs/tiny --subnet full --batch 999 --length data", "a batch of 999 needs"),
        ("profile runs/tiny --table t.csv --subnet full", "--table goes with none of"),
        ("profile runs/tiny --table t.csv --runtime sloth", "unknown runtime 'sloth'"),
        ("profile runs/tiny --table t.csv --length data", "--length data is none"),
        ("profile runs/tiny --table reviews.csv --length 8", "reviews.csv is no latency table"),
        ("report runs/tiny --health --steps 2 --count 2", "needs at least 3 sub-networks"),
        ("report runs/tiny --health --steps 2 --start nowhere", "nowhere"),
        ("report runs/tiny --health --steps 2 --space nowhere.yaml", "nowhere.yaml"),
        ("report --importance --keep 2", "cannot keep 2 of 2 blocks and leave one out: possible is 1 to 1"),
        ("report --importance --stack decoder", "the model has no decoder: its blocks are the encoder's"),
        ("report --importance --objective speed", "unknown objective 'speed': use one of score, kl"),
        ("report --importance nowhere", "nowhere is not a search run: it has no run.json"),
        ("compare runs/tiny", "is a model, not a search run"),
        ("compare --budget cheap", "cannot read --budget 'cheap'"),
    ],
    ids=shortened,
)
def test_another_verb_that_makes_no_sense(ldsearch: Ldsearch, place: Path, command: str, says: str) -> None:
    (place / "one.json").write_text('{"version":1,"encoder":{"blocks":[0]}}')
    (place / "damaged").mkdir()
    (place / "damaged" / "run.json").write_text('{"identity": {}, "trials": 3}')
    (place / "damaged" / "best.json").write_text("{}")
    assert says in expect_refusal(ldsearch, place, *shlex.split(command))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        *naming(
            *("profile RUN --batch 999999999999999999999999999999", "profile RUN --threads 999999999999"),
            *("report runs/tiny --health --nope 1", "report runs/tiny --health --learning_rate nan"),
            *("train-supernet --model RUN --learning_rate nan", "train-supernet --model RUN --name ../x"),
            "train-supernet --model RUN --max_steps 2 --num_train_epochs 3",
            *("compare RUN --name ../x", "profile RUN --name ../x", "report RUN --importance --name ../x"),
        ),
        ("export RUN RUN/out", "lies inside"),
        ("export RUN runs/tiny/out", "lies inside"),
        (f"export RUN {'x' * 300}", "too long"),
        (f"info RUN --budget 0.8 --save {'x' * 300}", "too long"),
        ("compare RUN --strategy every-other --strategy every-other", "--strategy names every-other twice"),
        ("compare RUN --budget 0.4,0.4", "--budget names 0.4 twice"),
        ("report runs/tiny --health --max_steps 3", "--steps"),
        ("report RUN --nope 1", "--health"),
        ("report RUN --count 5", "--health"),
        ("report RUN --keep 1", "--importance"),
        (f"compare RUN {RUN}/../tiny-evolve", "a run is named twice"),
        (f"report RUN {RUN}/../tiny-evolve", "named twice"),
        ("report runs/tiny", "is a model"),
    ],
    ids=shortened,
)
def test_of_a_run_verbs_check_before_they_write(
    ldsearch: Ldsearch, wild_place: Path, command: str, says: str
) -> None:
    assert says in expect_refusal(ldsearch, wild_place, *command.replace("RUN", RUN).split(" "))


def test_the_console_script_says_it_the_same_way(place: Path) -> None:
    script = Path(sys.executable).parent / "ldsearch"
    before = listing(place)
    command = [script, "evolve", "--keep", "bananas"]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert found.returncode == 2
    assert re.fullmatch(r"error: .*--keep 'bananas'.*\n", found.stderr), found.stderr
    assert listing(place) == before


def test_several_gpus_in_one_process_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Trainer would copy the module for each, whose plain attributes stay those of the first."""
    monkeypatch.setattr("transformers.TrainingArguments.n_gpu", 2)
    with pytest.raises(TrainingError, match=r"2 GPUs .* torchrun"):
        training_arguments(tmp_path, {}, seed=0)
