"""Prints what the health of a supernet is."""

from collections.abc import Mapping
from typing import Any

from ldsearch.commands.console import print_table
from ldsearch.runs.run import Study
from ldsearch.search.health import verdict
from ldsearch.subnet import Subnet


def print_health(study: Study) -> dict[str, Any]:
    """The scores and their rank correlations; returns what ``--json`` prints."""
    table, fields = study.table, study.fields
    columns = [name for name in ("inherited", "fine_tuned", "from_start") if name in table]
    print_table(
        f"{len(table)} sub-networks, inherited scores on {fields['inherited_examples']} examples, after "
        f"training on {fields['fine_tuned_examples']}"
        + (" (the same)" if fields["same_rows"] else " others"),
        ["MACs share", *(name.replace("_", " ") for name in columns), "sub-network"],
        [
            [
                f"{row['macs_share']:.3f}",
                *(f"{row[name]:.4f}" for name in columns),
                Subnet.from_json(row["subnet"]).describe(),
            ]
            for row in table.to_dict("records")
        ],
    )

    def number(name: str, values: Mapping[str, Any] = fields) -> str:
        return "undefined" if values[name] is None else f"{values[name]:.3f}"

    p_value = number("p_value_within")
    print(f"Kendall's tau at equal cost {number('tau_within')} (p = {p_value}): {verdict(study)}")
    print(
        f"over all costs {number('tau')}, of MACs alone {number('tau_of_cost')}, of inherited scores given "
        f"MACs {number('tau_partial')}"
    )
    if "from_start" in fields:
        print(f"trained from --start, at equal cost {number('tau_within', fields['from_start'])}")
    print(f"written: {study.folder}/ (health.csv, health.png, health.json)")
    return {"run": str(study.folder), **{key: value for key, value in fields.items() if key != "versions"}}
