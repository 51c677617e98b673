"""Greedy search and sampling: both extend one hypothesis of each sequence, by the likeliest token
or by one drawn."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, NamedTuple

from keras import ops

from ..checks import plain
from ..gather import first_maximum, gather_in_rows
from ..rules import Positive, Share, Size, check
from ..tensors import Dimension, Tensor, last_size
from .constraints import NO_CONSTRAINTS, Constraints, History, is_any_of
from .continuations import top_k as top_k_of
from .protocol import Hypotheses, State, Step
from .search_loop import check_search_arguments, extend_until_finished

# The constants of Threefry.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def greedy_search(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
) -> Hypotheses:
    """Takes the most probable token at each step until the end token or the maximum length.

    The score is the log probability of the sequence, as in beam search with a length penalty of 0.
    Greedy search never goes back. Beam search with a beam of 1 also considers an end token that is
    second best, so that it may return another sequence, whose log probability is never lower.

    Args and errors are those of `beam_search`; the step function's beam_size is 1. The result has
    n_best = 1.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> hypotheses = greedy_search(step, (), [5], max_length=5, start_id=0, end_id=1)
        >>> np.array(hypotheses.token_ids[0, 0]).tolist()
        [2, 1, 0, 0, 0]
    """
    arguments = check_search_arguments(max_lengths, max_length, start_id, end_id, constraints)

    def choose(position: Tensor, places: Tensor, logits: Tensor) -> Tensor:
        return first_maximum(logits)

    return _extend_one_hypothesis(choose, step, state, *arguments, constraints, drop_finished)


def sample(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_id: int | Annotated[Tensor, "int (batch, n)"],
    end_id: int | Sequence[int],
    seed: Dimension,
    rows: Annotated[Tensor, "int (batch,)"] | None = None,
    temperature: float | Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
) -> Hypotheses:
    """Draws each next token from the model's probabilities until an end token or the maximum
    length.

    The logits, with the repetition penalty, are divided by the temperature; of the tokens that are
    not forbidden the top_k are kept, and of these the fewest that together have the probability
    top_p. The next token is drawn from what is kept, in proportion to the probabilities.

    Random numbers depend on the seed, the row and the position only: not on the backend, nor on the
    rest of the batch. The score is the log probability of the sequence as in greedy search: before
    the temperature, top_k and top_p.

    The other arguments are those of `beam_search`; the step function's beam_size is 1.

    Args:
        seed: int, of which 64 bits count, or int32 scalar. The same seed gives the same tokens.
        rows: the row numbers that random numbers depend on. Defaults to None: 0, 1, 2, ...
        temperature: what the logits are divided by: below 1 for more probable tokens, above 1 for
            more variety. Defaults to 1.
        top_k: how many of the most probable tokens are kept; ties go to lower ids. Defaults to
            None: all.
        top_p: the probability that is kept, above 0 and at most 1 (Holtzman et al., 2020). Defaults
            to None: all.

    Returns:
        `Hypotheses` with n_best = 1.

    Raises:
        ConfigError: An argument breaks its rule.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> hypotheses = sample(step, (), [5, 5], max_length=5, start_id=0, end_id=1, seed=7)
        >>> np.array(hypotheses.token_ids[:, 0]).tolist()
        [[2, 1, 0, 0, 0], [2, 2, 1, 0, 0]]
    """
    check_sampling(temperature, top_k, top_p)
    # The softmax of logits that are divided by less, or by infinity, is not finite on every
    # backend.
    temperature = ops.clip(ops.convert_to_tensor(temperature, "float32"), 1e-10, 1e20)
    arguments = check_search_arguments(max_lengths, max_length, start_id, end_id, constraints)
    max_lengths, max_length, _, _ = arguments
    if rows is None:
        rows = ops.arange(ops.shape(max_lengths)[0], dtype="int32")
    numbers = uniform_numbers(plain(seed), rows, max_length)

    def choose(position: Tensor, places: Tensor, logits: Tensor) -> Tensor:
        # One column of the numbers of the rows that are left: (n, 1).
        row_numbers = ops.take(ops.take(numbers, position, axis=1), places, axis=0)[:, None]
        return draw(ops.squeeze(logits, 1) / temperature, row_numbers, plain(top_k), top_p)

    return _extend_one_hypothesis(choose, step, state, *arguments, constraints, drop_finished)


class _Results(NamedTuple):
    lengths: Tensor  # int32 (n, 1)
    log_probs: Tensor  # float32 (n, 1)


class _Active(NamedTuple, Generic[State]):
    rows: Tensor  # int32 (n,), places in the batch
    max_lengths: Tensor  # int32 (n, 1)
    results: _Results
    is_unfinished: Tensor  # bool (n, 1)
    token_ids: Tensor  # int32 (n, 1), the newest tokens
    history: History
    state: State  # of the step function


def _extend_one_hypothesis(
    choose: Callable[[Tensor, Tensor, Tensor], Tensor],
    step: Step[State],
    state: State,
    max_lengths: Tensor,
    max_length: Dimension,
    start_ids: Tensor,
    end_ids: Sequence[int],
    constraints: Constraints,
    drop_finished: bool,
) -> Hypotheses:
    """Extends each sequence by one token per step until an end token or its maximum length.

    Args:
        choose: takes the position of the newest tokens, int32 scalar, the places of the active
            sequences in the batch, (n,), and the allowed logits of their next tokens, (n, 1,
            vocab_size). Returns the tokens, int32 (n, 1).
    """

    def extend(position: Tensor, active: _Active[State]) -> tuple[_Active[State], Tensor]:
        """Adds a token to each active sequence, and returns it too; those that are finished stay as
        they are."""
        newest = active.token_ids
        history = active.history.append(newest)
        logits, state = step(
            constraints.token_at(newest), ops.zeros_like(newest), position, active.state
        )
        logits, allowed_logits = constraints.apply(
            logits, newest, history, position, active.max_lengths, end_ids
        )
        token_ids = choose(position, active.rows, allowed_logits)
        log_probs = ops.log_softmax(logits)
        if allowed_logits is not logits:
            log_probs = log_probs + (allowed_logits - logits)  # -inf where a token is forbidden
        log_probs = gather_in_rows(ops.squeeze(log_probs, 1), token_ids)  # (n, 1)
        # NaN if all logits of a row are -inf; the comparison is then false.
        is_possible = log_probs > -math.inf
        log_probs = active.results.log_probs + ops.where(active.is_unfinished, log_probs, 0.0)
        lengths = active.results.lengths + ops.cast(active.is_unfinished, "int32")
        is_end = is_any_of(token_ids, end_ids) | (position + 1 >= active.max_lengths)
        active = active._replace(
            results=_Results(lengths, log_probs),
            is_unfinished=active.is_unfinished & is_possible & ops.logical_not(is_end),
            token_ids=token_ids,
            history=history,
            state=state,
        )
        return active, token_ids

    batch = ops.shape(max_lengths)[0]
    active = _Active(
        rows=ops.arange(batch, dtype="int32"),
        max_lengths=max_lengths,
        results=_Results(ops.zeros((batch, 1), "int32"), ops.zeros((batch, 1), "float32")),
        is_unfinished=max_lengths > 0,
        token_ids=start_ids[:, -1][:, None],
        history=constraints.start_history(start_ids, max_length),
        state=state,
    )
    record = ops.zeros((max_length, batch, 1), "int32")  # the tokens of every step
    _, record, (lengths, scores) = extend_until_finished(
        extend, lambda active: active.is_unfinished, active, record, drop_finished
    )
    is_possible = scores > -math.inf
    lengths, scores = ops.where(is_possible, lengths, 0), ops.where(is_possible, scores, -math.inf)
    token_ids = constraints.token_at(ops.transpose(record, (1, 2, 0)))  # (batch, 1, max_length)
    is_token = ops.arange(max_length, dtype="int32") < lengths[..., None]
    return Hypotheses(ops.where(is_token, token_ids, 0), lengths, scores)


def check_sampling(
    temperature: float | Tensor, top_k: int | None, top_p: float | Tensor | None
) -> None:
    """Raises a ConfigError if an argument of `sample` breaks its rule; the values of tensors may
    not be known yet."""
    if not ops.is_tensor(temperature):
        check("temperature", temperature, Positive)
    check("top_k", top_k, Size | None)
    if not ops.is_tensor(top_p):
        check("top_p", top_p, Share | None)


def draw(
    logits: Annotated[Tensor, "float32 (n, vocab_size)"],
    numbers: Annotated[Tensor, "float32 (n, 1)"],
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
) -> Annotated[Tensor, "int32 (n, 1)"]:
    """Draws a token for each row from the probabilities of those that `sample` keeps.

    Args:
        logits: of all tokens; -inf is never drawn unless there is nothing else.
        numbers: uniform, from 0, inclusive, to 1, exclusive.
    """
    token_ids = None
    if top_k is not None or top_p is not None:
        k = last_size(logits) if top_k is None else top_k
        logits, token_ids = (part[:, 0] for part in top_k_of(logits[:, None], k))
    probabilities = ops.softmax(logits)  # (n, k)
    # The sums include the token itself, in the order of `token_ids`.
    cumulative = ops.cumsum(probabilities, axis=-1)
    is_kept = probabilities > 0
    if top_p is not None:
        # A token is kept if those before it have less than top_p.
        is_kept = ops.logical_and(is_kept, cumulative - probabilities < top_p)
    total = ops.max(ops.where(is_kept, cumulative, 0.0), axis=-1, keepdims=True)
    is_reached = ops.logical_and(cumulative > numbers * total, is_kept)
    places = ops.cast(
        ops.argmax(ops.cast(is_reached, "int32"), axis=-1, keepdims=True), "int32"
    )  # the first
    return places if token_ids is None else gather_in_rows(token_ids, places)


def uniform_numbers(
    seed: Dimension, rows: Annotated[Tensor, "int (num_rows,)"], num_positions: Dimension
) -> Annotated[Tensor, "float32 (num_rows, num_positions)"]:
    """Returns numbers from 0, inclusive, to 1, exclusive: multiples of 2 ** -23.

    Generators with a state give a row other numbers as soon as another row joins the batch, and
    differ between backends. Here each number is computed from its place: the same text comes from
    the same seed on every backend, in any batch, and inside a compiled loop, where the seed may be
    a tensor.
    """
    low, high = (
        (_signed(seed), _signed(seed >> 32))
        if isinstance(seed, int)
        else (ops.cast(seed, "int32"), 0)
    )
    positions = ops.arange(num_positions, dtype="int32")[None, :]
    rows = ops.cast(rows, "int32")[:, None] + ops.zeros_like(positions)
    bits, _ = threefry((low, high), (rows, ops.zeros_like(rows) + positions))
    return ops.cast(_shifted_right(bits, 9), "float32") * 2.0**-23


def threefry(
    key: tuple[Dimension, Dimension], counter: tuple[Tensor, Tensor]
) -> tuple[Annotated[Tensor, "int32 (...)"], Annotated[Tensor, "int32 (...)"]]:
    """Computes Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1,
    2, 3", 2011).

    All numbers are the 32 bits of an int32, of which every backend has sums, products and bitwise
    operations. The key is two scalars; the counter, two tensors (...).
    """
    keys = [ops.convert_to_tensor(part, "int32") for part in key]
    keys.append(
        ops.bitwise_xor(ops.bitwise_xor(keys[0], keys[1]), ops.convert_to_tensor(_PARITY, "int32"))
    )
    first, second = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            first = first + second
            rotated = ops.bitwise_or(
                ops.left_shift(second, rotation), _shifted_right(second, 32 - rotation)
            )
            second = ops.bitwise_xor(rotated, first)
        first = first + keys[(block + 1) % 3]
        second = second + keys[(block + 2) % 3] + (block + 1)
    return first, second


def _shifted_right(bits: Tensor, count: int) -> Tensor:
    # Clear the bits that the sign was shifted into.
    return ops.bitwise_and(ops.right_shift(bits, count), 2 ** (32 - count) - 1)


def _signed(number: int) -> int:
    """The int32 that has the lowest 32 bits of a number."""
    return (number + 2**31) % 2**32 - 2**31
