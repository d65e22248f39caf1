"""The result that ``compress``, ``info`` and ``report`` open with: one table and a sentence."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pandas as pd

from ldsearch.errors import RunError, one_line
from ldsearch.runs.run import Choice, Run
from ldsearch.subnet import Subnet
from ldsearch.trials.pareto import beside


@dataclass(frozen=True)
class Summary:
    """The full model, the chosen sub-network, and others that may be had instead.

    Args:
        points: The full model first, then the chosen one: ``name``, ``macs`` (share of the full model's),
            ``score``, ``difference`` to the full model (95% interval; None: not known), ``ms`` by batch and
            length (empty: not timed).
        metric: Of the scores.
        words: On data and choice, a sentence each.
    """

    points: Sequence[Mapping[str, Any]]
    metric: str
    words: Sequence[str]

    # What differences are to.
    reference: ClassVar[str] = "full"

    @property
    def table(self) -> pd.DataFrame:
        """The points as they are printed."""
        cells = list(dict.fromkeys(cell for point in self.points for cell in point["ms"]))
        compared = any(point["difference"] for point in self.points)
        rows = []
        for point in self.points:
            gap = point["difference"]
            apart = f"{gap['low']:+.4f} to {gap['high']:+.4f}" if gap else ""
            rows.append(
                {
                    "": point["name"],
                    "MACs": f"{point['macs']:.2f}",
                    self.metric: f"{point['score']:.4f}",
                    **({f"minus {self.reference}, 95%": apart} if compared else {}),
                    **{
                        f"ms, {cell}": f"{point['ms'][cell]:.3g}" if cell in point["ms"] else ""
                        for cell in cells
                    },
                }
            )
        return pd.DataFrame(rows)

    @classmethod
    def of_run(cls, run: Run) -> "Summary":
        """The summary of a search, with the milliseconds that its folder has.

        Raises:
            RunError: If the folder is damaged.
        """
        best = run.best
        try:
            times = {} if run.latency is None else _times(run.latency)
            front = [point for point in run.points() if _share(point) < 1 and point.subnet != best.subnet]
            others = [front[at] for at in beside([_share(point) for point in front], _share(best))]
            own = times.get(best.subnet, {})
            runtimes = dict.fromkeys(row["full_runtime"] for row in own.values())
            full = {
                "name": ", ".join(["full model", *runtimes]),
                "macs": 1.0,
                "score": best.held_out.full_score if best.held_out else best.full_score,
                "difference": None,
                "ms": {cell: row["full_ms"] for cell, row in own.items()},
            }
            chosen = _point("chosen", best, times)
            points = [full, chosen, *(_point("on the frontier", other, times) for other in others)]
            taken = f"chosen ({best.selector}): {best.subnet.describe()}"
            runtime = next((str(row["runtime"]) for row in own.values()), "")
            untimed = f"no milliseconds yet: ldsearch profile {run.folder} --frontier"
            words = [f"{taken}; {gained(points, runtime) or untimed}", _on_rows(best)]
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{run.folder} is damaged: {one_line(error)}") from error
        return cls(points, best.metric, words)


def gained(points: Sequence[Mapping[str, Any]], runtime: str) -> str:
    """The time that the chosen one takes, as shares of the full model's; nothing where neither was timed."""
    full, chosen, *_ = points
    ratios = [f"{ms / full['ms'][cell]:.2f} at {cell}" for cell, ms in chosen["ms"].items()]
    if not ratios:
        return ""
    times = " and ".join(ratios)
    return f"in {runtime} it takes {times} (rows x tokens) of the time of the {full['name']}"


def _share(choice: Choice) -> float:
    return choice.costs["macs"] / choice.full_costs["macs"]


def _times(latency: pd.DataFrame) -> dict[Subnet, dict[str, dict[Hashable, Any]]]:
    """Rows of ``latency.csv`` by sub-network and cell; of several runtimes the fastest."""
    found: dict[Subnet, dict[str, dict[Hashable, Any]]] = {}
    for row in latency.sort_values("median_ms", ascending=False).to_dict("records"):
        phase = "" if row["phase"] == "forward" else f" {row['phase']}"
        found.setdefault(Subnet.from_json(row["subnet"]), {})[f"{row['batch']}x{row['length']}{phase}"] = row
    return {
        subnet: dict(sorted(rows.items(), key=lambda own: (own[1]["batch"], own[1]["length"])))
        for subnet, rows in found.items()
    }


def _point(name: str, choice: Choice, times: Mapping[Subnet, Mapping[str, Any]]) -> dict[str, Any]:
    held = choice.held_out
    return {
        "name": name,
        "macs": _share(choice),
        "score": held.score if held else choice.score,
        "difference": asdict(held.difference) if held else None,
        "ms": {cell: row["median_ms"] for cell, row in times.get(choice.subnet, {}).items()},
    }


def _on_rows(best: Choice) -> str:
    if best.held_out is None:
        return f"the scores are of the {best.examples} {best.split} rows that chose, and optimistic"
    return (
        f"the scores are of {best.held_out.difference.examples} {best.held_out.split} rows that chose nothing"
    )
