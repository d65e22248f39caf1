"""Wrong input for scripts/torture.py, drawn by hypothesis: options of every verb, data, and damaged files.

An input is a command line and what is done to the files of its place before; both are JSON, so that one that
fails can be run again.
"""

import json
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import yaml
from hypothesis import strategies as st

from ldsearch.options import VERBS, flag_of


def words(text: str) -> list[str]:
    """What spaces separate."""
    return text.split()


SECRET = "s3cret-t0ken"
# A command of each verb that works and is quick; what is drawn is put in its place or added.
BASES: dict[str, tuple[list[str], dict[str, str]]] = {
    "train-supernet": (
        [],
        {"--data": "reviews.csv", "--model": "config.json", "--max-length": "16", "--max_steps": "2"},
    ),
    "evolve": ([], {"--supernet": "runs/tiny", "--evaluations": "6"}),
    "evaluate": (["runs/tiny-evolve"], {}),
    "compare": (
        [],
        {"--supernet": "runs/tiny", "--evaluations": "4", "--seeds": "1", "--strategy": "random"},
    ),
    "profile": (["runs/tiny-evolve"], {"--batch": "1", "--length": "8", "--repeats": "1", "--threads": "1"}),
    "export": (["runs/tiny-evolve", "out"], {}),
    "report": (["runs/tiny-evolve"], {}),
    "info": (["runs/tiny-evolve"], {}),
    "distill-data": (["runs/tiny"], {"--data": "reviews.csv", "--out": "distilled.jsonl"}),
}
# Beginnings of the files that a verb reads: damage to others shows nothing.
_NET, _RUN = ("runs/tiny/", "reviews"), ("runs/tiny-evolve/",)
_READS: dict[str, tuple[str, ...]] = {
    "train-supernet": ("config", "reviews"),
    "evolve": (*_NET, "runs/measurements", "space"),
    "evaluate": (*_NET, *_RUN),
    "compare": (*_NET, "runs/measurements"),
    "profile": (*_NET, *_RUN),
    "export": (*_NET, *_RUN),
    "report": (*_RUN, "runs/tiny/supernet.json"),
    "info": (*_NET, *_RUN, "runs/measurements"),
    "distill-data": _NET,
}
_NEW = {"train-supernet", "evolve", "compare"}  # which write to --name
# Valid however large, and then long.
_LONG = {"evaluations", "repeats", "seeds", "steps", "count", "subsets", "max_steps", "num_train_epochs"}
_LONG |= {"target_layers", "max_target", "min_target", "beams"}
_TRAINER = words(
    "adam_beta1 adam_epsilon bf16 dataloader_num_workers fp16 gradient_accumulation_steps hub_token "
    "label_smoothing_factor learning_rate logging_steps lr_scheduler_type max_grad_norm max_steps "
    "neftune_noise_alpha num_train_epochs optim output_dir per_device_train_batch_size push_to_hub "
    "report_to remove_unused_columns resume_from_checkpoint save_steps seed torch_compile "
    "warmup_steps weight_decay nope"
)

_small = st.integers(-2, 9).map(str)
_odd = st.sampled_from(
    ["-0", "1e3", "1e400", "0.5", "1/2", "1/0", "nan", "inf", "-inf", "٣", "²", "0x10", ""]
)
_large = st.sampled_from(["99999999999", "4294967296", "9" * 5000, "1e18"])
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_name = st.sampled_from(
    ["x" * 300, "..", "../up", "a/b", "/", "r?x=1", "r%41b", "a b", "=1+1<b>", "new\nline", "-"]
)
_file = st.sampled_from(
    words(
        "nowhere nowhere.csv runs runs/tiny runs/tiny-evolve runs/measurements.db reviews.csv "
        "config.json . / /dev/null /dev/full /etc/passwd out.csv.xz runs/tiny/model.safetensors "
        "no/such/hub-id space.yaml"
    )
)
_any = st.one_of(_small, _odd, _text, _name, _file)
_SUBNETS = (
    "full",
    "{}",
    "[]",
    '{"encoder":{"blocks":[0]},"version":1}',
    '{"encoder":{"blocks":[0,9]},"version":1}',
    '{"encoder":{"blocks":[0,1],"lengths":{"tokens":[9,1],"reference":16,"mode":"ratio"}},"version":1}',
    '{"encoder":{"blocks":[],"heads_off":[[0,0]]},"version":7}',
    '{"a":' * 3000,
    "x" * 5000,
)
_budget = st.builds(
    "{}{}{}".format,
    st.one_of(_small, _odd),
    st.sampled_from(["", "%", "MACs", "GMACs", "Mparams", "ms", "mjoules", "xyz"]),
    st.sampled_from(["", "@", "@batch=8", "@batch=8,length=16", "@batch=0,length=-1", "@length=data"]),
)
_VALUES: dict[str, st.SearchStrategy[str]] = {
    "budget": _budget,
    "at_least": st.builds("{}{}".format, st.sampled_from(["", "full", "full-", "best-"]), _budget),
    "objective": st.sampled_from(
        words("kl macs score+macs parameters latency latency@batch=1 a+b macs+macs +")
    ),
    "strategy": st.sampled_from(
        words(
            "nsga greedy random lat every-other chunk-first assignment validation beam swaps learned "
            "influence constant-ratio layerdrop lengthdrop flexible-depth surrogate:depth nope"
        )
    ),
    "genes": st.sampled_from(words("depth lengths groups depth+lengths depth+depth + nope")),
    "storage": st.sampled_from(
        [
            "journal:",
            "journal:reviews.csv",
            "journal:/proc/x/y",
            "journal:j/log",
            "sqlite:///reviews.csv",
            "sqlite://",
            f"postgresql://me:{SECRET}@127.0.0.1:1/x",
            f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/x",
            "postgresql://u:p@h:port/x",
            "nope://x",
        ]
    ),
    "subnet": st.sampled_from(_SUBNETS),
    "space": st.one_of(st.just("space.yaml"), st.sampled_from(["demo", "joint-6x128", "depth-grid-4x4"])),
    "keep": st.sampled_from(["1", "2", "3", "9", "encoder=1", "encoder=1,encoder=2", "1,1", "9" * 5000]),
    "layer_drop": st.sampled_from(words("0 1 0.5,0.5 0.1,0.2,0.3 encoder=0.2 decoder=0.1 2")),
    "name": _name,
    "hub_token": st.just(SECRET),
    "metric": st.sampled_from(words("accuracy f1 mcc pearson bleu nats nope")),
    "text_column": st.sampled_from(["text", "label", "0", "nope", ""]),
    "label_column": st.sampled_from(["text", "label", "1", "nope", ""]),
    "pair_column": st.sampled_from(["text", "label", "nope"]),
    "task": st.sampled_from(words("classification regression tokens questions causal translation nope")),
    "format": st.sampled_from(["hf", "onnx", "nope"]),
}

_leaf: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([10**9, 10**30, -(10**30), 0.5, 1.5, float("nan"), float("inf"), 1e-320]),
    st.sampled_from(["", "x", "²", "\ud800", "../x", "<script>", "0.4", "None"]),
)
_value = st.one_of(
    _leaf, st.lists(_leaf, max_size=3), st.dictionaries(st.sampled_from(["x", "blocks", "encoder"]), _leaf)
)
_JSON = words(
    "config.json runs/tiny/config.json runs/tiny/supernet.json runs/tiny/training.json "
    "runs/tiny/tokenizer.json runs/tiny/tokenizer_config.json runs/tiny-evolve/run.json "
    "runs/tiny-evolve/best.json"
)
_BYTES = [*_JSON, "reviews.csv", "space.yaml", "runs/measurements.db", "runs/tiny/model.safetensors"]
_BYTES += [f"runs/tiny-evolve/{name}.csv" for name in ("trials", "controls", "frontier")]
_CELL = st.sampled_from(
    ["", "nan", "=1+1", "0.nan", "-1", "1e400", "x", "²", "--1", '"', "9" * 5000, "'", "a b", "[0]", "\ufeff"]
)
_KEYS = words(
    "subnet metric score higher_is_better costs examples split seconds fingerprint worker names dead"
)
_SQL = st.one_of(
    st.builds(
        "update trial_user_attributes set value_json = '{}' where key = '{}'".format,
        st.sampled_from(["", "x", "null", "[]", "{}", "1e999", '"x"', '{"macs":"x"}', "[" * 3000, '"{}"']),
        st.sampled_from(_KEYS),
    ),
    st.sampled_from(
        [
            "delete from studies",
            "delete from trials where trial_id % 2",
            "delete from trial_user_attributes where key = 'subnet'",
            "drop table trials",
            "update version_info set schema_version = 1",
            "update alembic_version set version_num = 'x'",
            "update trials set number = number * 3",
            "update trials set state = 'RUNNING'",
            "update studies set study_name = 'x' || study_id",
        ]
    ),
)
_YAML = (
    "name: &a [*a]",
    "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "\n".join(
        f"{c}: &{c} [{','.join([f'*{b}'] * 10)}]" for b, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "\nname: *i\nblocks: 3",
    "name: x\nblocks: 999999999999\ndepth: {keep: [2]}",
    "name: x\nblocks: 3\ndepth: {keep: [.inf]}",
    "name: x\nblocks: 3\noptions: [{ffn_share: 5}]",
    "name: x\nblocks: " + "9" * 5000,
    "name: x\nblocks: " + "[" * 3000,
    "name: !!python/object/apply:os.system [touch pwned]\nblocks: 3",
)
_space = st.builds(
    lambda base, extra: yaml.safe_dump({**base, **extra}),
    st.sampled_from(
        [
            {"name": "x", "blocks": 3, "depth": {"keep": [1, 2]}},
            {"name": "x", "blocks": 3, "lengths": {"reference": 16, "mode": "ratio", "drop_bound": 0.3}},
        ]
    ),
    st.dictionaries(
        st.sampled_from(words("name blocks depth depths lengths options pin assignment")),
        _value,
    ),
)
_steps = st.lists(st.one_of(st.integers(0, 6), st.sampled_from(["blocks", "splits"])), min_size=1, max_size=4)
_EDITS = st.one_of(
    # Path into the object: each number takes that member, counted round.
    st.tuples(st.just("set"), st.sampled_from(_JSON), _steps, _value),
    st.tuples(st.just("drop"), st.sampled_from(_JSON), _steps),
    st.tuples(
        st.just("set"),
        st.just("config.json"),
        st.sampled_from(
            [
                [k]
                for k in [
                    "num_hidden_layers",
                    "hidden_size",
                    "num_attention_heads",
                    "hidden_act",
                    "model_type",
                ]
            ]
        ),
        _value,
    ),
    st.tuples(st.just("cut"), st.sampled_from(_BYTES), st.floats(0, 1)),
    st.tuples(st.just("flip"), st.sampled_from(_BYTES), st.floats(0, 1), st.integers(1, 255)),
    st.tuples(
        st.just("cell"), st.sampled_from([f for f in _BYTES if f.endswith(".csv")]), st.integers(0, 60), _CELL
    ),
    st.tuples(st.just("sql"), st.just("runs/measurements.db"), _SQL),
    st.tuples(st.just("write"), st.just("space.yaml"), st.one_of(st.sampled_from(_YAML), _space)),
    st.tuples(st.just("remove"), st.sampled_from([*_BYTES, "runs/tiny/tokenizer.json"])),
)


def _worth(kind: Any, name: str) -> st.SearchStrategy[str]:
    """A value of an option: mostly of its kind."""
    if name in _VALUES:
        return st.one_of(_VALUES[name], _VALUES[name], _any)
    numbers = {int, float} & {kind, *get_args(kind)}
    if numbers:
        own = st.one_of(_small, _odd) if name in _LONG else st.one_of(_small, _odd, _large)
        return st.one_of(own, own, _any)
    return _any


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, Any]:
    """A verb's own command with up to three options drawn, in a place with up to two files changed."""
    edits = draw(st.lists(_EDITS, max_size=2))
    touched = edits[0][1] if edits else ""
    verb = draw(st.sampled_from([v for v in BASES if not edits or touched.startswith(_READS[v])]))
    arguments, given = list(BASES[verb][0]), dict(BASES[verb][1])
    if verb in _NEW:
        given["--name"] = "new"
    options = VERBS[verb]
    hints = get_type_hints(options)
    known = {f.name: hints[f.name] for f in fields(options) if f.metadata and not f.metadata["argument"]}
    for _ in range(draw(st.integers(0 if edits else 1, 3))):
        if "trainer" in hints and draw(st.booleans()):
            name = draw(st.sampled_from(_TRAINER))
            given[f"--{name}"] = draw(_worth(float, name))
            continue
        name = draw(st.sampled_from(sorted(known)))
        given[flag_of(name)] = "" if known[name] is bool else draw(_worth(known[name], name))
    if touched == "reviews.csv" and "data" in known:
        given["--data"] = touched
    if any(edit[1] == "space.yaml" for edit in edits) and verb == "evolve":
        given["--space"] = "space.yaml"
    if "--health" in given:  # by default two minutes of training
        given.setdefault("--steps", "3")
    if arguments and draw(st.integers(0, 9)) == 0:
        arguments[0] = draw(_file)
    flags = [word for flag, value in given.items() for word in ([flag, value] if value else [flag])]
    return json.loads(json.dumps({"argv": [verb, *arguments, *flags], "edits": edits}))
