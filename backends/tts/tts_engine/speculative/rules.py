"""The acceptance rules by name, what each one guarantees and needs, and which proposers it fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tts_engine.speculative import bias, exact, group, tolerance, top_k
from tts_engine.speculative.accepted import Accepted


@dataclass(frozen=True)
class Rule:
    """An acceptance rule.

    Attributes:
        verify: (draft, target_probs, uniforms, **settings) -> Accepted.
        uniforms: random numbers a position: `verify` takes float64 [B, 1 + D, uniforms].
        settings: names of the settings.
        lossless: whether the tokens are distributed as without speculation, at every setting.
        level: at which level the output is distributed as the target's; None: it is not.
        needs: "probs": reads the distribution that each token was drawn from and takes a draft without as one-hot;
            "tokens": never reads it.
        siblings: whether a node may have more than one child.
    """

    verify: Callable[..., Accepted]
    uniforms: int
    settings: tuple[str, ...]
    lossless: bool
    level: Literal["token", "group"] | None
    needs: Literal["probs", "tokens"]
    siblings: bool


RULES: dict[str, Rule] = {
    "exact": Rule(exact.verify, exact.UNIFORMS, (), True, "token", "probs", True),
    "tolerance": Rule(tolerance.verify, tolerance.UNIFORMS, ("tolerance", "eos"), False, None, "tokens", True),
    "bias": Rule(bias.verify, exact.UNIFORMS, ("bias", "eos"), False, None, "probs", True),
    "top_k": Rule(top_k.verify, top_k.UNIFORMS, ("k", "eos_k", "eos"), False, None, "tokens", True),
    "group": Rule(group.verify, group.UNIFORMS, ("groups",), False, "group", "probs", False),
}


@dataclass(frozen=True)
class Proposer:
    """What a kind of proposer supplies: siblings (a tree), the distributions its tokens were drawn from."""

    siblings: bool
    probs: bool


PROPOSERS: dict[str, Proposer] = {
    "medusa": Proposer(siblings=True, probs=False),  # the likeliest tokens of each head, arranged as a tree
    "mtp": Proposer(siblings=False, probs=True),
    "draft": Proposer(siblings=False, probs=True),
}


def check_pair(proposer: str, rule: str) -> None:
    """Raises ValueError with a sentence that says why this proposer cannot run with this acceptance rule."""
    if proposer == "none":
        raise ValueError(f"acceptance {rule!r} has nothing to verify with speculation 'none': choose a proposer")
    if proposer not in PROPOSERS:
        raise ValueError(f"speculation must be none, {', '.join(PROPOSERS)}; not {proposer!r}")
    if rule not in RULES:
        raise ValueError(f"acceptance must be {', '.join(RULES)}; not {rule!r}")
    if PROPOSERS[proposer].siblings and not RULES[rule].siblings:
        chains = ", ".join(name for name, kind in PROPOSERS.items() if not kind.siblings)
        raise ValueError(
            f"acceptance {rule!r} cannot verify the tree that {proposer!r} proposes, because it couples one group "
            f"label to one draft token and siblings would need several: choose one of {chains}"
        )
