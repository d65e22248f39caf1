"""What ldsearch does with every text model type of the installed transformers, tried on tiny random models.

    python scripts/families.py --out results/families

A row for each kind with what was tried: blocks left out, tokens dropped, evaluation that shares prefixes, a
folder that reloads as it was, an ONNX graph that is its sub-network, int8, and each runtime of files that is
installed. A refusal is its sentence; anything else that goes wrong is called a fault. ``--kinds`` tries some
only, and keeps the others' rows of an earlier run.
"""

import argparse
import os
import re
import signal
import tempfile
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, BertTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from ldsearch.disk.files import read_fields, write_json
from ldsearch.disk.fingerprint import versions
from ldsearch.errors import LdsearchError, one_line
from ldsearch.evaluation.executor import Executor
from ldsearch.export.card import Provenance
from ldsearch.export.folder import write_huggingface
from ldsearch.export.loading import load_exported
from ldsearch.latency.runtimes import RUNTIMES, GraphRuntime
from ldsearch.subnet import Lengths, Stack, Subnet
from ldsearch.supernet import Supernet
from ldsearch.supernet.graph import trace
from ldsearch.supernet.supernet import inference
from ldsearch.testing import padded_batch, randomised
from ldsearch.testing.inputs import assert_close, stock_output

BLOCKS, WIDTH, VOCABULARY, REFERENCE, SECONDS = 3, 16, 60, 12, 90
NAMES: Mapping[int, str] = {
    BLOCKS: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers",
    WIDTH: "hidden_size d_model n_embd dim embedding_size word_embed_proj_dim emb_dim",
    2 * WIDTH: "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_dim hidden_dim",
    2: "num_attention_heads n_head n_heads num_heads num_key_value_heads encoder_attention_heads "
    "decoder_attention_heads",
    WIDTH // 2: "head_dim d_kv attention_head_size",
    64: "max_position_embeddings n_positions max_seq_len",
    VOCABULARY: "vocab_size",
    0: "pad_token_id",
}
SIZES = {name: size for size, names in NAMES.items() for name in names.split()}
# The head of a kind, the first that it has.
HEADS = ("SEQ_TO_SEQ_CAUSAL_LM", "SEQUENCE_CLASSIFICATION", "MASKED_LM", "CAUSAL_LM")
TOKENIZER = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
PROVENANCE = Provenance("a tiny random model", "not trained", "none", "by hand", "none")
YES = "yes"


def mapping(head: str) -> Mapping[str, str]:
    """Names of the stock classes with a head, by kind."""
    found: Mapping[str, Any] = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES")
    return {kind: name if isinstance(name, str) else name[0] for kind, name in found.items()}


def architectures() -> dict[str, str]:
    """The stock class of every kind."""
    encoders = mapping("MASKED_LM")
    found: dict[str, str] = {}
    for head in HEADS:
        for kind, name in mapping(head).items():
            # A decoder is one whatever heads it has.
            decodes = head == "SEQUENCE_CLASSIFICATION" and kind in mapping("CAUSAL_LM")
            if kind not in found and not (decodes and kind not in encoders):
                found[kind] = name
    return dict(sorted(found.items()))


def tiny(kind: str, architecture: str) -> PreTrainedModel:
    """A random model of a kind."""
    fields = AutoConfig.for_model(kind).to_dict()
    sizes = {name: size for name, size in SIZES.items() if isinstance(fields.get(name), int | type(None))}
    sizes = {name: size for name, size in sizes.items() if name in fields}
    config = AutoConfig.for_model(kind, **sizes, decoder_start_token_id=2)
    if any(isinstance(value, PreTrainedConfig) for value in vars(config).values()):
        raise LdsearchError("a model of several configurations (pictures, sound), which is no text model")
    model_class = getattr(transformers, architecture)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > 2**24:
        raise LdsearchError(f"its stock class has {size:,} parameters whatever sizes it is given here")
    torch.manual_seed(0)
    return randomised(model_class(config))


def tried(call: Callable[[], object]) -> str:
    """What came of it: yes, the sentence of a refusal, or a fault."""
    try:
        call()
    except LdsearchError as refusal:
        return str(refusal)
    except AssertionError as wrong:
        return f"refused by the check of an export: outputs differ ({one_line(wrong)})"
    except Exception as fault:  # what a user would see as a traceback: it is the finding
        return f"fault: {type(fault).__name__}: {one_line(fault)[:200]}"
    return YES


def row_of(kind: str, architecture: str) -> dict[str, str]:
    """What works of a kind."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of its own work, however busy the machine is
    row = {"class": architecture}
    try:
        model = tiny(kind, architecture)
        pad = getattr(model.config, "pad_token_id", None) or 0
        batch = padded_batch([REFERENCE, 5, 1], VOCABULARY, pad)
        if model.config.is_encoder_decoder:
            batch["decoder_input_ids"] = batch["input_ids"]
        stock_output(model, batch)
    except LdsearchError as refusal:
        return {**row, "left out": str(refusal)}
    except Exception as error:
        return {**row, "left out": f"no tiny one can be made of these sizes: {one_line(error)[:120]}"}
    found: list[Supernet] = []
    row["depth"] = tried(lambda: found.append(Supernet(model)))
    if row["depth"] == YES:
        row["depth"] = tried(lambda: row.update(answers(found[0])))
        row["depth"] = row.pop("blocks", row["depth"])
    signal.setitimer(signal.ITIMER_PROF, 0)
    return row


def answers(supernet: Supernet) -> dict[str, str]:
    """What works of a model whose blocks are found."""
    batch = padded_batch(
        [REFERENCE, 5, 1], VOCABULARY, getattr(supernet.model.config, "pad_token_id", None) or 0
    )
    batch = supernet.inputs({**batch, "labels": batch["input_ids"][:, :5]})
    stacks, first = supernet.full.stacks(), supernet.stack
    left_out = len(supernet.pinned_of(first))
    fewer = Subnet(
        **{**stacks, first: Stack(tuple(b for b in range(supernet.depths[first]) if b != left_out))}
    )
    short = Lengths((8, 5, 2), REFERENCE)
    shorter = Subnet(**{**stacks, first: Stack(tuple(range(supernet.depths[first])), short)})

    def runs(subnet: Subnet) -> None:
        assert inference(supernet, batch, subnet).isfinite().all(), "not finite"

    def shared() -> None:
        Executor(supernet).run(batch, [fewer, supernet.full], lambda ends, logits: None)

    def reloads() -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_huggingface(supernet, TOKENIZER, fewer, Path(folder), PROVENANCE)
            found = stock_output(load_exported(folder), batch)
        own = inference(supernet, batch, fewer)
        real = batch["attention_mask"].bool()
        each = own.dim() == 3 and own.shape[:2] == real.shape
        assert_close(found[real] if each else found, own[real] if each else own, fewer, 1e-4)

    def served(runtime: GraphRuntime) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subnet = shorter if supernet.supports_lengths else fewer
            trace(supernet, subnet, path := Path(folder) / "model.onnx")
            found: Any = runtime.of_graph(path)(batch)
        ours, theirs = torch.from_numpy(np.array(found[0])), inference(supernet, batch, subnet)
        assert ours.shape == theirs.shape, "another shape"
        assert ours.isfinite().all(), "not finite"
        if not runtime.rounds:
            real = batch["attention_mask"].bool()
            each = theirs.dim() == 3
            assert_close(ours[real] if each else ours, theirs[real] if each else theirs, subnet, 1e-4)

    files = {name: one for name, one in RUNTIMES.items() if isinstance(one, GraphRuntime)}
    row = {
        "blocks": tried(lambda: runs(fewer)),
        "lengths": tried(lambda: runs(shorter)),
        "executor": tried(shared),
        "hf": tried(reloads),
    }
    for name, title in (("onnx", "ONNX"), ("onnx-int8", "int8")):
        row[title] = tried(lambda name=name: served(files[name]))  # type: ignore[misc]
    others = [name for name, one in files.items() if "onnx" not in name and find_spec(one.library)]
    if row["ONNX"] != YES:
        return {**row, "runtimes": row["ONNX"]}
    each = {name: tried(lambda name=name: served(files[name])) for name in others}  # type: ignore[misc]
    wrong = "; ".join(f"{name}: {said}" for name, said in each.items() if said != YES)
    return {**row, "runtimes": wrong or YES}


def _late(*signal_and_frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds of processor time")


COLUMNS = ("depth", "lengths", "executor", "hf", "ONNX", "int8", "runtimes")


def page(rows: Mapping[str, Mapping[str, str]], made_with: Mapping[str, str]) -> str:
    """The table, and the sentences by number."""
    sentences: dict[str, int] = {}

    def number(said: str, kind: str, row: Mapping[str, str]) -> int:
        said = said.replace(row["class"], "CLASS")
        said = said.replace(kind, "KIND", 1) if said.startswith(f"{kind} ") else said
        return sentences.setdefault(said, len(sentences) + 1)

    lines = []
    for kind, row in rows.items():
        if "left out" not in row:
            cells = [row.get(column, row["depth"]) for column in COLUMNS]
            marks = [YES if said == YES else f"[{number(said, kind, row)}]" for said in cells]
            lines.append(f"| {kind} | {row['class']} | {' | '.join(marks)} |")
    left = [
        f"- {kind} ({row['class']}): {row['left out']}" for kind, row in rows.items() if "left out" in row
    ]
    said = "\n".join(f"{place}. {sentence}" for sentence, place in sentences.items())
    faults = sum("fault: " in said for said in sentences)
    stands = ", ".join(f"{name} {version}" for name, version in made_with.items())
    return f"""# Families: what works of every text model type

Tiny random models of every text model type of the installed transformers: {BLOCKS} blocks of width {WIDTH}.
*depth*: a block is left out; *lengths*: tokens are dropped; *executor*: sub-networks share what they have in
common; *hf*: the folder of a sub-network reloads with the same outputs; *ONNX*: the graph of a sub-network
gives its outputs in ONNX Runtime, and in *int8* numbers of their shape; *runtimes*: so does every other
runtime of files. A number stands for the sentence of a refusal below the table. Tiny models say nothing of
how well a family trains. Kinds of fault, which a user would see as a traceback: {faults}.

`python scripts/families.py --out results/families` wrote this page and `families.json` ({stands}).

| kind | class | {" | ".join(COLUMNS)} |
|{"---|" * (len(COLUMNS) + 2)}
{chr(10).join(lines)}

## Sentences

{said}

## Left out

{chr(10).join(left)}
"""


def main() -> None:
    """Try the kinds and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", help="of them all only these, with commas")
    given = parser.parse_args()
    known, record = architectures(), given.out / "families.json"
    rows = dict(read_fields(record, LdsearchError)["rows"]) if given.kinds and record.exists() else {}
    wanted = given.kinds.split(",") if given.kinds else list(known)
    given.out.mkdir(parents=True, exist_ok=True)
    made_with = {name: versions()[name] for name in ("torch", "transformers")}
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        for kind, row in zip(wanted, pool.map(row_of, wanted, map(known.get, wanted)), strict=True):
            # Not where it lay on this machine.
            rows[kind] = {name: re.sub(r"'/[^']*'", "FOLDER", said) for name, said in row.items()}
            print(kind, row, flush=True)
            rows = dict(sorted(rows.items()))
            write_json(record, {"versions": made_with, "rows": rows})
            (given.out / "README.md").write_text(page(rows, made_with), encoding="utf-8")


if __name__ == "__main__":
    main()
