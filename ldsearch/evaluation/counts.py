"""Counts of an evaluator's work, for reports."""

from dataclasses import dataclass

from ldsearch.evaluation.memory import describe_peak_memory


@dataclass
class Counts:
    """Work of an evaluator, for reports.

    Args:
        full_pass_macs: MACs of one pass of the full model over the split at true lengths: the unit F that
            searches are compared in.
        measured: Sub-networks that were run.
        cached: Sub-networks whose measurement was known, or that another worker measured meanwhile.
        executed_macs: MACs that were executed, all examples.
        alone_macs: What the same sub-networks cost one by one, at true lengths.
        padded_macs: What they cost one by one with every input padded, as the papers' code runs them.
        evaluations: Block evaluations, each on one batch; counted where sub-networks run together.
        hits: Further block evaluations that an earlier generation had made.
        seconds: Wall-clock time of the runs.
        redone: Sub-networks, among those taken on here, that another worker had claimed and did not store
            before its lease ended.
    """

    full_pass_macs: float = 0.0
    measured: int = 0
    cached: int = 0
    executed_macs: float = 0.0
    alone_macs: float = 0.0
    padded_macs: float = 0.0
    evaluations: int = 0
    hits: int = 0
    seconds: float = 0.0
    redone: int = 0

    def describe(self) -> str:
        """One sentence, in full passes."""
        if not self.measured:
            return f"nothing was run: all {self.cached:,} measurements were known"
        known = f", {self.cached:,} more were known" if self.cached else ""
        known += f", {self.redone:,} were taken over from a worker that did not end" if self.redone else ""
        executed, alone, padded = (
            macs / self.full_pass_macs for macs in (self.executed_macs, self.alone_macs, self.padded_macs)
        )
        return (
            f"{self.measured:,} sub-networks were measured in {self.seconds:.0f} s{known}; that took "
            f"{executed:.1f} passes of the full model over the rows (one by one {alone:.1f}; padded too, "
            f"as the papers' code runs them, {padded:.1f}); {describe_peak_memory()}"
        )
