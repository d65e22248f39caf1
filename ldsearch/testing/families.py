"""The laws of a model family."""

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertTokenizer, PreTrainedModel

from ldsearch.costs.workload import Workload
from ldsearch.errors import SupernetError
from ldsearch.evaluation.executor import Executor
from ldsearch.export.card import Provenance
from ldsearch.export.check import export_subnet
from ldsearch.export.loading import load_exported
from ldsearch.latency.runtimes import RUNTIMES, GraphRuntime, graph_runtime
from ldsearch.subnet import Stack, Subnet, keep_of
from ldsearch.supernet import FixedSubnet, Supernet
from ldsearch.supernet.families import Family
from ldsearch.supernet.graph import KEEP, trace
from ldsearch.supernet.heads import logits_of
from ldsearch.supernet.supernet import inference
from ldsearch.supernet.tokens import State
from ldsearch.testing.inputs import (
    assert_close,
    one_of_each,
    padded_batch,
    refuses,
    stock_masks,
    stock_output,
)
from ldsearch.testing.reference import stock_logits
from ldsearch.training.distillation import without_dropout

REFERENCE = 24
LENGTHS = (24, 3, 17, 9, 1, 24, 12, 5)


class FamilyContract:
    """Laws of a registered family, checked on several models; a test class inherits it.

    Attributes:
        scores: Token scores under which padding must not matter.
        runtimes: Runtimes that serve its graphs; those that are not installed are passed over.
    """

    scores: Sequence[str] = ("column",)
    runtimes: Sequence[str] = tuple(n for n, one in RUNTIMES.items() if isinstance(one, GraphRuntime))

    def models(self) -> Iterable[PreTrainedModel]:
        """Tiny stock models of the family, one per head that matters, each made anew.

        Of at least three blocks with two heads each, 24 positions and some dropout, their weights random,
        norms included (``ldsearch.testing.randomised``).
        """
        raise NotImplementedError

    def subnets(self, model: PreTrainedModel) -> Sequence[Subnet]:
        """The sub-networks that the laws are tried on: of every kind, and every depth."""
        blocks = model.config.num_hidden_layers
        depths = [Subnet.of_encoder(range(depth)) for depth in range(1, blocks)]
        return [*one_of_each(blocks, REFERENCE).values(), *depths]

    def test_the_full_subnetwork_is_the_stock_model_bit_for_bit(self) -> None:
        """Eager and sdpa, padded, unpadded and without a mask, also at lengths that drop nothing."""
        for model in self._models():
            blocks = model.config.num_hidden_layers
            dropless = Subnet.of_encoder(range(blocks), range(99, 99 - blocks, -1), 99, "absolute")
            for attention in _implementations(model):
                model.set_attn_implementation(attention)
                supernet = Supernet(model)
                for lengths in (LENGTHS, (REFERENCE, REFERENCE)):
                    batch = _batch(model, lengths)
                    theirs = stock_output(model, batch)
                    for subnet in (Subnet.full(blocks), dropless):
                        assert torch.equal(inference(supernet, batch, subnet), theirs), attention
                del batch["attention_mask"]
                assert torch.equal(inference(supernet, batch, Subnet.full(blocks)), theirs), attention

    def test_a_subnetwork_is_the_stock_model_with_that_hidden_zeroed_or_bypassed(self) -> None:
        """Bit for bit where whole blocks are left out, and within 1e-5 of the eager model elsewhere."""
        for model in self._models():
            for subnet in self.subnets(model):
                stack = cast(Stack, subnet.encoder)
                whole = stack == Stack(stack.blocks)
                model.set_attn_implementation(_implementations(model)[-1] if whole else "eager")
                supernet, batch = Supernet(model, "column"), _batch(model, LENGTHS)
                ours = inference(supernet, batch, subnet)
                theirs = stock_logits(supernet, batch, stack)
                if whole:
                    assert torch.equal(ours, theirs), subnet
                else:
                    assert_close(_real(ours, batch), _real(theirs, batch), subnet)

    def test_training_drops_out_what_the_stock_model_drops_out(self) -> None:
        """The path that can drop tokens draws as the stock layer's own does; nothing, without dropout."""
        for model in self._models():
            model.set_attn_implementation("eager")
            blocks, batch = range(model.config.num_hidden_layers), _batch(model, LENGTHS)
            # All units after rounding, but not on the stock layer's own path.
            shares = tuple((block, math.nextafter(1, 0)) for block in blocks)
            subnet = Subnet(encoder=Stack(tuple(blocks), ffn_share=shares))
            supernet = Supernet(model.train(), attention_dropout=None)
            torch.manual_seed(0)
            theirs = _real(logits_of(model(**batch)), batch)
            torch.manual_seed(0)
            with stock_masks():
                ours = logits_of(supernet(batch, subnet, _everything))
            assert_close(_real(ours, batch), theirs, subnet)
            quiet = _real(stock_output(model.eval(), batch), batch)
            assert not torch.allclose(theirs, quiet, atol=1e-3), "the model needs dropout"
            without_dropout(model.train())
            with stock_masks():
                still = [model(**batch), supernet(batch, subnet, _everything)]
            for outputs in still:
                assert_close(_real(logits_of(outputs), batch), quiet, subnet)

    def test_gradients_reach_exactly_the_blocks_that_run_and_checkpointing_leaves_them(self) -> None:
        """Through blocks that drop tokens."""
        for model in self._models():
            last = model.config.num_hidden_layers - 1
            subnet = Subnet.of_encoder([0, last], [REFERENCE // 2, 2], REFERENCE)
            supernet, gradients = Supernet(model.train()), []
            for checkpointing in (False, True):
                if checkpointing:
                    supernet.gradient_checkpointing_enable()
                model.zero_grad()
                torch.manual_seed(0)
                torch.autograd.backward(logits_of(supernet(_batch(model, LENGTHS), subnet)).square().sum())
                for block, layer in enumerate(supernet.layers_of("encoder")):
                    touched = [parameter.grad is not None for parameter in layer.parameters()]
                    assert all(touched) if block in (0, last) else not any(touched), block
                gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            assert all(map(torch.equal, *gradients))

    def test_a_materialised_model_is_its_subnetwork_and_counts_as_it(self) -> None:
        """Narrow weights give what the whole ones give when they are masked.

        Parameters are exactly its own, MACs half of what a row adds to those of torch's ``FlopCounterMode``.
        """
        for model in self._models():
            model.set_attn_implementation("eager")
            supernet, batch = Supernet(model), _batch(model, LENGTHS)
            for index, subnet in enumerate(self.subnets(model)):
                own = supernet.materialise(subnet).eval()
                ours, theirs = stock_output(own, batch), inference(supernet, batch, subnet)
                assert_close(_real(ours, batch), _real(theirs, batch), subnet)
                parameters = sum(parameter.numel() for parameter in own.parameters())
                assert supernet.parameters_cost([subnet])[0] == parameters, subnet
                n = LENGTHS[index % len(LENGTHS)]
                one, two = (_flops(own, _batch(model, lengths)) for lengths in ([n], [n, n]))
                counted = (two - one) / 2
                assert supernet.macs(Workload.padded(n))([subnet])[0] == counted, subnet

    def test_batching_and_padding_do_not_change_a_score(self) -> None:
        """Within 1e-5 of one by one, and the same prediction wherever the margin exceeds 1e-4."""
        for model in self._models():
            batch = _batch(model, LENGTHS)
            rows = [{name: t[i : i + 1, :n] for name, t in batch.items()} for i, n in enumerate(LENGTHS)]
            for score in self.scores:
                supernet = Supernet(model, score)
                for subnet in self.subnets(model):
                    together = _real(inference(supernet, batch, subnet), batch)
                    alone = torch.cat([_real(inference(supernet, row, subnet), row) for row in rows])
                    assert_close(together, alone, subnet)
                    best = alone.topk(2, dim=-1).values
                    sure = best[..., 0] - best[..., 1] > 1e-4
                    assert torch.equal(together.argmax(-1)[sure], alone.argmax(-1)[sure]), subnet

    def test_sub_networks_that_share_give_what_each_gives_alone(self) -> None:
        """Queries, keys and values of those that keep fewer tokens are rows of those that keep more."""
        for model in self._models():
            supernet, batch = Supernet(model), _batch(model, LENGTHS)
            blocks = range(supernet.blocks)
            shorter = [Subnet.of_encoder(blocks, [12 - k, *[5] * blocks[-1]], REFERENCE) for k in range(3)]
            subnets = [*self.subnets(model), *shorter]
            shared: dict[int, Tensor] = {}

            def note(ends: Sequence[int], logits: Tensor, shared: dict[int, Tensor] = shared) -> None:
                shared.update(dict.fromkeys(ends, logits))

            Executor(supernet).run(batch, subnets, note)
            for place, subnet in enumerate(subnets):
                alone = inference(supernet, batch, subnet)
                assert_close(_real(shared[place], batch), _real(alone, batch), subnet)

    def test_a_graph_is_its_subnetwork_in_every_runtime_installed(self) -> None:
        """A batch and a row of it, also where lengths are fed; of runtimes that round, only that they run."""
        known = map(graph_runtime, self.runtimes)
        serving = [one for one in known if find_spec(one.library) and find_spec("onnx")]
        for model in self._models() if serving else ():
            supernet, batch = Supernet(model), _batch(model, LENGTHS)
            row = {name: tensor[4:5, :9] for name, tensor in batch.items()}
            kinds = one_of_each(supernet.blocks, REFERENCE)
            for kind, fed in (("lengths", "lengths that level off"), ("all at once", None)):
                subnet, keep = kinds[kind if fed is None else fed], {}
                if fed is not None:
                    keep = {KEEP: torch.tensor([keep_of(subnet, REFERENCE)])}
                with tempfile.TemporaryDirectory() as folder:
                    places = range(supernet.blocks) if fed is not None else ()
                    trace(supernet, kinds[kind], path := Path(folder) / "model.onnx", fed=places)
                    served = [(one, one.of_graph(path)) for one in serving]
                for inputs in (batch, row):
                    theirs = inference(supernet, inputs, subnet)
                    for runtime, forward in served:
                        found = [
                            torch.from_numpy(np.array(one)) for one in cast(Any, forward({**inputs, **keep}))
                        ]
                        ours = found[0] if len(found) == 1 else torch.stack(found, dim=-1)
                        assert ours.shape == theirs.shape, runtime.title
                        assert ours.isfinite().all(), runtime.title
                        if not runtime.rounds:
                            assert_close(_real(ours, inputs), _real(theirs, inputs), subnet)

    def test_an_export_reloads_as_its_subnetwork(self) -> None:
        """As a stock class where only whole blocks, none of them pinned, or one width are missing."""
        tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4})
        for model in self._models():
            supernet, batch = Supernet(model), _batch(model, LENGTHS)
            kinds = one_of_each(supernet.blocks, REFERENCE)
            for kind in ("no first block", "narrow", "all at once"):
                with tempfile.TemporaryDirectory() as folder:
                    export_subnet(supernet, tokenizer, kinds[kind], Path(folder), _PROVENANCE)
                    loaded = load_exported(folder)
                ours = inference(supernet, batch, kinds[kind])
                assert_close(_real(stock_output(loaded, batch), batch), _real(ours, batch), kinds[kind])
                own = kind == "all at once" or (
                    kind == "no first block" and 0 in supernet.pinned_of("encoder")
                )
                own = own or (kind == "narrow" and not cast(Family, supernet.family).narrows)
                assert isinstance(loaded, FixedSubnet) == own, kind

    def test_the_longest_input_runs(self) -> None:
        """At the most positions that the model has, in one batch with a short one; some have no bound."""
        for model in self._models():
            supernet = Supernet(model)
            batch = _batch(model, [min(supernet.longest, 1024), 2])
            assert inference(supernet, batch, Subnet.full(supernet.blocks)).isfinite().all()

    def test_input_padded_on_the_left_is_refused(self) -> None:
        """Positions and the first token would be others."""
        for model in self._models():
            supernet = Supernet(model)
            flipped = {name: tensor.flip(1) for name, tensor in _batch(model, [5, 3]).items()}
            shared = Executor(supernet)
            for call in (
                lambda: supernet(flipped, Subnet.full(3)),  # noqa: B023 (run at once)
                lambda: shared.run(flipped, [Subnet.full(3)], lambda ends, logits: None),  # noqa: B023
            ):
                assert refuses(call, SupernetError)

    def _models(self) -> Iterator[PreTrainedModel]:
        """Models that can tell a right family from a wrong one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            models = list(self.models())
        assert models, "models() gives none"
        for model in models:
            assert Supernet(model).family is not None, f"{model.config.model_type} is not registered"
            assert model.config.num_hidden_layers >= 3
            assert model.config.num_attention_heads >= 2
            yield model


_PROVENANCE = Provenance("a supernet", "not trained", "none", "by hand", "none")


def _flops(model: torch.nn.Module, batch: Mapping[str, Tensor]) -> int:
    with FlopCounterMode(display=False) as counter:
        model(**batch)
    return int(counter.get_total_flops())


def _implementations(model: PreTrainedModel) -> tuple[str, ...]:
    """The attention implementations that the stock class has."""
    return ("eager", "sdpa") if model._supports_sdpa else ("eager",)


def _batch(model: PreTrainedModel, lengths: Sequence[int]) -> dict[str, Tensor]:
    config = model.config
    return padded_batch(lengths, config.vocab_size, config.pad_token_id or 0)


def _everything(block: int, before: State, after: State) -> Tensor:
    """Make a reader of all that leaves a block."""
    return after.hidden


def _real(logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits without those of pads, where there is one per token."""
    return logits if logits.dim() < 3 else logits[batch["attention_mask"].bool()]
