"""Tokens inside a block: score them, select which stay, gather their rows. Tensors only.

Nothing here knows a model. Shapes: B sequences of n positions, H heads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ldsearch.registry import Registry
from ldsearch.supernet import operators
from ldsearch.supernet.dropout import dropout


@dataclass(frozen=True)
class State:
    """State of a batch between two stages.

    Args:
        hidden: Shape (B, n, d).
        real: Shape (B, n), True where a position is no padding.
        positions: Shape (B, n), where each token stood in the input; None while none was dropped.
        per_token: What else belongs to a token (rotary angles), each of shape (B or 1, n, …).
        padded: Whether some position may be padding; False spares a look at the data.
        per_pair: What belongs to two positions of the input (a relative bias), each of shape (1, C, n₀, n₀)
            whatever was dropped: ``pair`` looks it up.
        shared: What every block reads and belongs to no token (a table of relative positions).
        pinned: Shape (B, 1), how many of the first tokens are never dropped; None: at most position 0 is not.
        entered: The mean (B, d) of the states that entered the first block, and how many they were, (B, 1);
            None: nothing reads them later.
    """

    hidden: Tensor
    real: Tensor
    positions: Tensor | None = None
    per_token: Mapping[str, Tensor] = field(default_factory=dict)
    padded: bool = True
    per_pair: Mapping[str, Tensor] = field(default_factory=dict)
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    pinned: Tensor | None = None
    entered: tuple[Tensor, Tensor] | None = None

    def pair(self, name: str, channels: Sequence[int] | None = None) -> Tensor:
        """The bias between the kept queries and keys, for a range of channels: (1 or B, C, n, n)."""
        whole = self.per_pair[name] if channels is None else self.per_pair[name][:, list(channels)]
        return whole if self.positions is None else pairs(whole, self.positions)

    def take(self, index: Tensor, real: Tensor, padded: bool = True, flat: Tensor | None = None) -> "State":
        """The state of the tokens at ``index``, ``real`` (B, k) where they are no padding; see ``gather``."""
        positions = index if self.positions is None else self.positions.gather(1, index)
        per_token = {
            name: gather(tensor.expand(index.shape[0], -1, -1), index, flat)
            for name, tensor in self.per_token.items()
        }
        return replace(
            self,
            hidden=gather(self.hidden, index, flat),
            real=real,
            positions=positions,
            per_token=per_token,
            padded=padded,
        )

    def pinned_first(self, scores: Tensor) -> Tensor:
        """Token scores (B, n), those of pinned tokens above all others."""
        if self.pinned is None:
            return scores
        first = torch.arange(scores.shape[1], device=scores.device) < self.pinned
        return scores.masked_fill(first, torch.inf)


# Field of a configuration: the token that ends a pair's first text, whose tokens are then never dropped.
PINNED = "pinned_until"


def first_text(ids: Tensor, end: int) -> Tensor:
    """Tokens of the first text of pairs (B, n), with the one that ends it: (B, 1); 1 where none does."""
    return (ids == end).int().argmax(dim=1, keepdim=True) + 1


@dataclass(frozen=True)
class Attention:
    """One block's attention, as token scores and the block itself see it.

    Args:
        queries: Shape (B, H, n, head width).
        keys: Shape (B, H, n, head width).
        values: Shape (B, H, n, head width).
        real: Shape (B, n), True where a position is no padding.
        scaling: Factor on the products of queries and keys.
        allowed: Shape (B, 1, n, n), True where a query may see a key (a window); None: every real key.
        padded: Whether some position may be padding; False spares a look at the data.
        bias: Shape (1 or B, H, n, n), added to the scaled products (relative positions); None: nothing.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    real: Tensor
    scaling: float
    allowed: Tensor | None = None
    padded: bool = True
    bias: Tensor | None = None

    def of_queries(self, first: int) -> "Attention":
        """The same with the queries of the first tokens only."""
        allowed = None if self.allowed is None else self.allowed[:, :, :first]
        bias = None if self.bias is None else self.bias[:, :, :first]
        return replace(self, queries=self.queries[:, :, :first], allowed=allowed, bias=bias)

    def part(self, rows: slice, heads: slice | list[int]) -> "Attention":
        """The same of some rows and heads only."""
        bias = self.bias
        if bias is not None:
            bias = bias[rows if len(bias) > 1 else slice(None), heads]
        return Attention(
            self.queries[rows, heads],
            self.keys[rows, heads],
            self.values[rows, heads],
            self.real[rows],
            self.scaling,
            None if self.allowed is None else self.allowed[rows],
            self.padded,
            bias,
        )

    @cached_property
    def masked(self) -> bool:
        """Whether keys must be masked; with ``allowed`` always, and the data are not read."""
        return self.allowed is not None or (self.padded and not bool(self.real.all()))

    @cached_property
    def probabilities(self) -> Tensor:
        """Shape (B, H, n, n): row q is the distribution of query q over the real keys."""
        # Queries are fewer numbers than products.
        products = (self.queries * self.scaling) @ self.keys.transpose(-1, -2)
        if self.bias is not None:
            products += self.bias
        if (visible := self.visible) is not None:
            products.masked_fill_(~visible, torch.finfo(products.dtype).min)
        return products.softmax(dim=-1)

    @property
    def visible(self) -> Tensor | None:
        """True where a query may see a key, of a shape that broadcasts to (B, H, n, n); None: everywhere."""
        if not self.masked:
            return None
        return self.real[:, None, None, :] if self.allowed is None else self.allowed

    @property
    def mask(self) -> Tensor | None:
        """The mask for torch's fused attention: ``visible``, or numbers to add where there is a bias."""
        visible = self.visible
        if self.bias is None:
            return visible
        bias = self.bias.to(self.queries.dtype)
        return bias if visible is None else torch.where(visible, bias, torch.finfo(bias.dtype).min)


@dataclass(frozen=True)
class Chosen:
    """The tokens that a block of a traced graph keeps, as tensors: no number may depend on the data.

    Args:
        longest: Shape (1,), tokens of the row that keeps most.
        real: Shape (B, longest), True where a row keeps that many.
        bonus: Shape (1 or B, n), what is added to scores so that position 0, and what is pinned, stays.
        first: Shape (B, 1), where each row begins in the batch's rows laid end to end, before the drop.
    """

    longest: Tensor
    real: Tensor
    bonus: Tensor
    first: Tensor


# Not cuDNN's, which is compiled anew for every number of tokens: sub-networks draw new ones each step.
_FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
TokenScore = Callable[[Attention], Tensor]
_SUMS_OVER_HEADS: list[TokenScore] = []


def sums_over_heads(score: TokenScore) -> TokenScore:
    """Mark a score that is a sum over heads, each row on its own: ``attend`` makes it in parts."""
    _SUMS_OVER_HEADS.append(score)
    return score


@sums_over_heads
def column(attention: Attention) -> Tensor:
    """Attention received: column sums over heads and real query rows (Kim & Cho 2020, Sec. 3.1).

    Returns:
        Shape (B, n).
    """
    received = attention.probabilities
    if attention.masked:
        received = received * attention.real[:, None, :, None]
    return received.sum(dim=(1, 2))


@sums_over_heads
def power(attention: Attention) -> Tensor:
    """``column`` without what a token gives itself, as PoWER-BERT's code has it (Goyal et al. 2020).

    Returns:
        Shape (B, n).
    """
    received = attention.probabilities.diagonal(dim1=-2, dim2=-1) * attention.real[:, None, :]
    return column(attention) - received.sum(dim=1)


@sums_over_heads
def column_with_pads(attention: Attention) -> Tensor:
    """``column`` with the rows of pad queries counted, as the length-adaptive reference code has it.

    Returns:
        Shape (B, n).
    """
    return attention.probabilities.sum(dim=(1, 2))


TOKEN_SCORES: Registry[TokenScore] = Registry(
    "token_scores",
    {"column": column, "power": power, "column-with-pads": column_with_pads},
)


# Of attention probabilities at a time and a thread on a CPU, which should stay in a core's cache.
CHUNK_BYTES = 2**20


def attend(
    attention: Attention, score: TokenScore | None, rate: float | None = None
) -> tuple[Tensor, Tensor | None]:
    """Attention and its token scores, the probabilities of a few heads or rows at a time.

    Args:
        attention: Whose queries may be the first q of the n tokens.
        score: Token score; None: nothing is scored. One that is no sum over heads
            (``sums_over_heads``) sees the whole attention.
        rate: In training, the probability that the context misses a probability; None in evaluation.

    Returns:
        Context of shape (B, H, q, head width) and scores of shape (B, n).
    """
    if score is None and rate == 0 and _fused_trains_faster(attention):
        inputs = attention.queries, attention.keys, attention.values, attention.mask
        with sdpa_kernel(_FUSED):
            return nn.functional.scaled_dot_product_attention(*inputs, scale=attention.scaling), None
    apart = score is None or any(score is known for known in _SUMS_OVER_HEADS)
    rows, heads = _chunk(attention) if apart and not rate else attention.queries.shape[:2]
    if (rows, heads) == attention.queries.shape[:2]:
        # A copy keeps the probabilities that it computes, which the scores need too.
        attention = replace(attention)
        read = dropout(attention.probabilities, rate) if rate else attention.probabilities
        context = read @ attention.values
        return context, None if score is None else score(attention)
    # Laid out as the output projection reads it.
    context = torch.empty_like(attention.queries.transpose(1, 2), memory_format=torch.contiguous_format)
    context = context.transpose(1, 2)
    scores = None if score is None else context.new_zeros(attention.real.shape, dtype=torch.float32)
    for row in range(0, context.shape[0], rows):
        for head in range(0, context.shape[1], heads):
            where = slice(row, row + rows), slice(head, head + heads)
            part = attention.part(*where)
            context[where] = part.probabilities @ part.values
            if scores is not None and score is not None:
                scores[where[0]].add_(score(part))
    return context, scores


def _fused_trains_faster(attention: Attention) -> bool:
    """Whether torch's fused attention is the faster forward and backward pass.

    In half precision on a processor its backward pass takes twice as long as products and a softmax do
    (results/training).
    """
    queries = attention.queries
    return queries.device.type != "cpu" or queries.dtype == torch.float32


def _chunk(attention: Attention) -> tuple[int, int]:
    """Rows and heads per chunk; all of them where gradients keep every probability anyway."""
    rows, heads, queries, _ = attention.queries.shape
    if attention.queries.requires_grad or attention.queries.device.type != "cpu":
        return rows, heads
    one = queries * attention.keys.shape[2] * attention.queries.element_size()
    fit = max(1, CHUNK_BYTES * torch.get_num_threads() // one)
    return min(rows, max(1, fit // heads)), min(fit, heads)


def select(scores: Tensor, real: Tensor, counts: Tensor, keep_first: bool) -> tuple[Tensor, Tensor]:
    """The positions that stay: the best ``counts`` real tokens of each row, in their original order.

    Ties go to the earlier position. Pads never win against a real token; rows that keep fewer than
    the longest row end in pads.

    Args:
        scores: Shape (B, n).
        real: Shape (B, n).
        counts: Shape (B,).
        keep_first: Whether position 0 ([CLS]) always stays.

    Returns:
        Indices of shape (B, k), ascending over the kept tokens, and the new ``real`` of shape (B, k),
        with k the largest count.

    """
    fewest, most = (int(count) for count in counts.aminmax())
    order = _best(scores.float().masked_fill(~real, -torch.inf), most, keep_first)
    if fewest == most:
        return order.sort(dim=1).values, torch.ones_like(order, dtype=torch.bool)
    stays = torch.arange(order.shape[1], device=order.device) < counts[:, None]
    # Rows shorter than the longest are filled with positions sorted behind every real one.
    position = torch.where(stays, order, order + real.shape[1]).sort(dim=1).values
    return position % real.shape[1], position < real.shape[1]


def select_alike(scores: Tensor, count: int, keep_first: bool) -> Tensor:
    """The indices (B, count) of ``select`` where nothing is padded and every row keeps as many tokens."""
    return _best(scores.to(torch.float32, copy=True), count, keep_first).sort(dim=1).values


def _best(ranked: Tensor, count: int, keep_first: bool) -> Tensor:
    """Indices (B, count), best first; writes to what it is given."""
    if keep_first:
        ranked[:, 0].fill_(torch.inf)
    return ranked.sort(dim=1, descending=True, stable=True).indices[:, :count]


def gather(hidden: Tensor, index: Tensor, flat: Tensor | None = None) -> Tensor:
    """Rows ``index`` (B, k) of ``hidden`` (B, n, d): shape (B, k, d).

    Args:
        hidden: Whose rows.
        index: Which of each.
        flat: In a traced graph: the same, as places among the batch's rows laid end to end.
    """
    if flat is not None:
        return operators.rows(hidden, flat)
    batch, n = hidden.shape[:2]
    if batch == 1:
        return hidden[0].index_select(0, index[0])[None]
    first = torch.arange(batch, device=index.device)[:, None] * n
    # Whole rows are copied, where ``gather`` looks up every number by itself.
    return hidden.flatten(0, 1).index_select(0, (first + index).flatten()).reshape(*index.shape, -1)


def pairs(whole: Tensor, index: Tensor) -> Tensor:
    """Rows and columns ``index`` (B, k) of ``whole`` (1 or B, C, n, n): shape (B, C, k, k)."""
    if torch.onnx.is_in_onnx_export():
        return operators.pairs(whole, index)
    rows, k = index.shape
    flat = (index[:, :, None] * whole.shape[-1] + index[:, None, :]).reshape(rows, 1, k * k)
    # Of one for all rows a view, no copies.
    whole = whole.expand(rows, -1, -1, -1).flatten(2)
    return whole.gather(2, flat.expand(-1, whole.shape[1], -1)).reshape(rows, -1, k, k)


def drop_tokens(state: State, scores: Tensor, keep: Sequence[int], keep_first: bool) -> tuple[State, Tensor]:
    """The state of the best tokens of each row, and their indices (B, longest).

    Args:
        state: Of n tokens.
        scores: Shape (B, n).
        keep: How many tokens of each row stay.
        keep_first: Whether position 0 always stays.
    """
    scores = state.pinned_first(scores)
    alike = min(keep) == max(keep)
    if alike and not state.padded:
        index, real = select_alike(scores, keep[0], keep_first), state.real[:, : keep[0]]
    else:
        counts = torch.tensor(keep, device=scores.device)
        index, real = select(scores, state.real, counts, keep_first)
    return state.take(index, real, padded=not alike), index


def put_back(sequence: Tensor, state: State) -> Tensor:
    """The sequence (B, n₀, d) with the state's real tokens at the positions they came from."""
    assert state.positions is not None
    index = state.positions[..., None].expand(-1, -1, sequence.shape[-1])
    # Under autocast the two may differ in precision, which scatter refuses.
    written = torch.where(state.real[..., None], state.hidden.to(sequence.dtype), sequence.gather(1, index))
    return sequence.scatter(1, index, written)


def restored(whole: State, state: State) -> State:
    """The whole state with the other's real tokens at the positions they came from."""
    return replace(whole, hidden=put_back(whole.hidden, state))
