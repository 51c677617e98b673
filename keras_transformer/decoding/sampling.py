"""Sampling: draws each next token from the model's probabilities."""

from collections.abc import Sequence
from typing import Annotated

from keras import ops

from ..checks import plain
from ..config import search_options
from ..gather import gather_in_rows
from ..tensors import Dimension, Tensor, last_size
from .constraints import NO_CONSTRAINTS, Constraints
from .continuations import top_k as top_k_of
from .protocol import Hypotheses, State, Step
from .random_numbers import uniform_numbers
from .single_hypothesis import Choose, SingleHypothesisSearch


def sample(
    step: Step[State],
    state: State,
    max_lengths: Annotated[Tensor, "int (batch,)"] | Sequence[int],
    *,
    max_length: Dimension,
    start_ids: int | Annotated[Tensor, "int (batch, n)"],
    end_ids: int | Sequence[int],
    seed: Dimension,
    rows: Annotated[Tensor, "int (batch,)"] | None = None,
    temperature: float | Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
    drop_finished: bool = False,
) -> Hypotheses:
    """Samples one token at a time until an end token or the maximum length is reached.

    At each step, the logits, after the repetition penalty, are divided by the temperature. Only the
    top_k most probable of the allowed tokens are kept, and among these only the smallest set whose
    probabilities sum to at least top_p. The next token is drawn from this set in proportion to the
    probabilities. If every next token is forbidden, a sequence ends with its tokens so far.

    Random numbers depend only on the seed, the row and the position, not on the backend or on the
    rest of the batch. As in greedy search, the score is the log probability of the sequence, before
    temperature, top_k and top_p are applied.

    See `beam_search` for the other arguments. The step function must have beam_size = 1.

    Args:
        seed: int or int32 scalar. The lowest 64 bits of an int are used. The same seed produces the
            same tokens.
        rows: row numbers that the random numbers depend on. Defaults to None: 0, 1, 2, ...
        temperature: divisor of the logits. Below 1, probable tokens become more probable; above 1,
            there is more variety. Defaults to 1.
        top_k: number of most probable tokens to keep; ties go to the lower token id. Defaults to
            None: keep all tokens.
        top_p: total probability to keep, above 0 and at most 1 (Holtzman et al., 2020). Defaults to
            None: keep all tokens.

    Returns:
        `Hypotheses` with n_best = 1.

    Raises:
        ConfigError: An argument is invalid.

    Example:
        >>> probabilities = [[0.1, 0.3, 0.6], [0.1, 0.7, 0.2], [0.2, 0.7, 0.1]]  # [previous][next]
        >>> def step(token_ids, parents, position, state):
        ...     return ops.take(ops.log(probabilities), token_ids, axis=0), state
        >>> hypotheses = sample(step, (), [5, 5], max_length=5, start_ids=0, end_ids=1, seed=7)
        >>> np.array(hypotheses.token_ids[:, 0]).tolist()
        [[2, 1, 0, 0, 0], [2, 2, 1, 0, 0]]
    """
    search = SingleHypothesisSearch(step, max_lengths, max_length, start_ids, end_ids, constraints)
    if rows is None:
        rows = ops.arange(search.batch_size, dtype="int32")
    choose = choose_at_random(seed, rows, max_length, temperature, top_k, top_p)
    return search.run(choose, state, drop_finished)


def choose_at_random(
    seed: Dimension,
    rows: Annotated[Tensor, "int (batch,)"],
    max_length: Dimension,
    temperature: float | Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
) -> Choose:
    """Returns a function that draws the next tokens. See `sample` for the arguments."""
    check_sampling(temperature, top_k, top_p)
    # The value of a tensor is not checked, so clip it: with a lower temperature, or with infinity,
    # the softmax would not be finite on every backend.
    temperature = ops.clip(ops.convert_to_tensor(temperature, "float32"), 1e-10, 1e20)
    numbers = uniform_numbers(plain(seed), rows, plain(max_length))

    def choose(position: Tensor, places: Tensor, logits: Tensor) -> Tensor:
        # The numbers at this position for the unfinished rows, (n, 1).
        row_numbers = ops.take(ops.take(numbers, position, axis=1), places, axis=0)[:, None]
        return draw(ops.squeeze(logits, 1) / temperature, row_numbers, plain(top_k), top_p)

    return choose


def check_sampling(
    temperature: float | Tensor, top_k: int | None, top_p: float | Tensor | None
) -> None:
    """Raises a ConfigError if an argument is invalid. Values of tensors are not checked."""
    if not ops.is_tensor(temperature):
        search_options.temperature("temperature", temperature)
    search_options.top_k("top_k", top_k)
    if not ops.is_tensor(top_p):
        search_options.top_p("top_p", top_p)


def draw(
    logits: Annotated[Tensor, "float32 (n, vocab_size)"],
    numbers: Annotated[Tensor, "float32 (n, 1)"],
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
) -> Annotated[Tensor, "int32 (n, 1)"]:
    """Draws a token for each row from the tokens that `sample` keeps.

    Args:
        logits: logits of all tokens. A token with a logit of -inf is drawn only if all logits are
            -inf.
        numbers: uniform random numbers in [0, 1).
        top_k: see `sample`.
        top_p: see `sample`.
    """
    token_ids = None
    if top_k is not None or top_p is not None:
        k = last_size(logits) if top_k is None else top_k
        logits, token_ids = (part[:, 0] for part in top_k_of(logits[:, None], k))
    probabilities = ops.softmax(logits)  # (n, k)
    # The sums include the token itself.
    cumulative = ops.cumsum(probabilities, axis=-1)
    is_kept = probabilities > 0
    if top_p is not None:
        # A token is kept if the tokens before it have a total probability below top_p.
        is_kept = ops.logical_and(is_kept, cumulative - probabilities < top_p)
    total = ops.max(ops.where(is_kept, cumulative, 0.0), axis=-1, keepdims=True)
    is_reached = ops.logical_and(cumulative > numbers * total, is_kept)
    places = ops.cast(
        ops.argmax(ops.cast(is_reached, "int32"), axis=-1, keepdims=True), "int32"
    )  # the first
    return places if token_ids is None else gather_in_rows(token_ids, places)
