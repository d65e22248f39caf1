"""ldsearch recover: a short distillation of a chosen sub-network."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ldsearch.cli.console import (
    MovedData,
    Name,
    Runs,
    Seed,
    Steps,
    SubnetOption,
    print_fields,
    quiet_libraries,
    resumable,
)


def recover(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A search run, or a supernet with --subnet.")],
    subnet: SubnetOption = None,
    steps: Steps = 300,
    data: MovedData = None,
    name: Name = None,
    runs: Runs = Path("runs"),
    seed: Seed = 0,
) -> dict[str, Any]:
    """Distil the full model into the chosen sub-network; report it beside the score it inherits.

    Flags that ldsearch does not know go to Hugging Face's TrainingArguments. The same command goes on after
    an interruption. What is written is evaluated and exported like a run.

    **Examples**

    - `ldsearch recover runs/sst2-lengthdrop-evolve`

    - `ldsearch recover runs/sst2-lengthdrop-evolve --steps 1000 --bf16 --learning_rate 3e-5`
    """
    from ldsearch.commands.fixed import FixedOptions
    from ldsearch.commands.recover import recover as run

    quiet_libraries()
    options = FixedOptions(steps=steps, seed=seed, trainer=tuple(context.args))
    output = runs / (name or f"{folder.resolve().name}-recovered")
    with resumable("run the same command again to go on from the last checkpoint"):
        found = run(folder, output, subnet=subnet, options=options, data=data)
    gain, gap = found.gain, found.against_full
    print_fields(
        {
            "sub-network": found.subnet.describe(),
            "inherited": f"{found.metric} {found.inherited:.4f} on {gain.examples} {found.split} examples",
            "recovered": f"{found.recovered:.4f}, {gain.mean:+.4f} (95% interval {gain.low:+.4f} to "
            f"{gain.high:+.4f}, paired bootstrap)",
            "full model": f"{found.full:.4f}; recovered minus full {gap.mean:+.4f} (95% interval "
            f"{gap.low:+.4f} to {gap.high:+.4f})",
            "written": f"{found.folder}; next: ldsearch export {found.folder} exported/{found.folder.name}",
        }
    )
    return {"run": str(found.folder), "inherited": found.inherited, "recovered": found.recovered}
