"""The commands `fit` and `reduce`: from a tensor to a saved model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from tucket.interfaces.cli import output as out
from tucket.interfaces.cli.options import (
    RANK_HELP,
    Data,
    DataOptions,
    GapOptions,
    Json,
    Quiet,
    Workers,
    given_options,
    parse_blocks,
    parse_rank,
)

Method = StrEnum("Method", ["ltr", "ntd"])
Variant = StrEnum("Variant", ["projection", "published"])
Loss = StrEnum("Loss", ["kl", "ls"])

FitRank = Annotated[
    str | None,
    Option(help=f"{RANK_HELP}; or cv: the rank that predicts held-out cells best; or, for ltr and counts, mdl."),
]
Blocks = Annotated[
    str | None,
    Option(help="ltr: clusters (default), segments, uniform or random, or one per mode: uniform,random."),
]
LossChoice = Annotated[Loss | None, Option(help="ntd: KL divergence (default), or least squares.")]
ModelOutput = Annotated[
    Path | None, Option("--output", "-o", help="File of the model; default: the name of DATA with .model.npz.")
]

Known = Mapping[str, Any]
"""Arguments that say which cells are known, and for what exposure; none if all are."""


@dataclass(frozen=True)
class RunOptions:
    """How to run, and what to print."""

    seed: Annotated[int | None, Option(help="Seed of all random numbers.")] = None
    workers: Workers = None
    json: Json = False
    quiet: Quiet = False


@dataclass(frozen=True)
class LtrOptions:
    """Options of `ltr`, each None where the user leaves it out."""

    blocks: Blocks = None
    variant: Annotated[Variant | None, Option(help="ltr: projection (default), or Algorithm 1 as printed.")] = None
    retain: Annotated[float | None, Option(help="ltr: instead of a rank, the share of information to keep.")] = None
    max_parameters: Annotated[int | None, Option(help="ltr: instead of a rank, the maximum number of parameters.")] = (
        None
    )

    def fit(self, source: Any, rank: str | None, run: RunOptions, known: Known) -> tuple[Any, dict[str, Any]]:
        """Return the model, and what to print about the fit."""
        from tucket import ltr

        options = given_options(self)
        if self.blocks is not None:
            options["blocks"] = parse_blocks(self.blocks)
        has_criterion = self.retain is not None or self.max_parameters is not None
        ranks = None if rank is None and has_criterion else parse_rank(rank, source, ("cv", "mdl"))
        watch: Any = out.search_status if is_search(ranks) else out.progress_bar
        with watch(run.quiet or run.json) as report:
            options["callback" if is_search(ranks) else "progress"] = report
            return ltr(source, ranks, rng=run.seed, workers=run.workers, **options, **known), {}

    def measure(self, model: Any, source: Any, run: RunOptions, known: Known) -> dict[str, float]:
        """Return KL / sum, and for the projection the information kept, which follows from it."""
        from tucket import Statistics
        from tucket.models.metrics import total_correlation

        if isinstance(source, Statistics):
            return {}
        total = sum_of_known(source, run, known) if known else float(model.core.sum())
        kl = kl_over_sum(model, source, total, run, known)
        if known or self.variant == Variant.published:
            return {"kl_over_sum": kl}
        kept = total_correlation(model.core)
        return {"kl_over_sum": kl, "information_kept": kept / (kept + kl) if kept + kl > 1e-15 else 1.0}


@dataclass(frozen=True)
class NtdOptions:
    """Options of `ntd`, each None where the user leaves it out."""

    loss: LossChoice = None
    init: Annotated[
        str | None, Option(help="ntd: auto (default), ltr, hosvd or random, or the file of a model to improve.")
    ] = None
    budget: Annotated[float | None, Option(help="ntd: seconds after which to stop.")] = None
    n_iter_max: Annotated[int | None, Option(help="ntd: maximum iterations per level; default: 1000.")] = None
    tol: Annotated[
        float | None, Option(help="ntd: stop when ten iterations together gain less than this share; default: 1e-4.")
    ] = None

    def fit(self, source: Any, rank: str | None, run: RunOptions, known: Known) -> tuple[Any, dict[str, Any]]:
        """Return the model, and what to print about the fit."""
        from tucket import load, ntd

        options = given_options(self)
        has_model = self.init is not None and Path(self.init).is_file()
        if has_model:
            options["init"] = load(options["init"])
        ranks = None if rank is None and has_model else parse_rank(rank, source, ("cv",))
        watch = out.search_status if is_search(ranks) else out.iteration_status
        with watch(run.quiet or run.json) as callback:
            found = ntd(source, ranks, rng=run.seed, workers=run.workers, callback=callback, **options, **known)
        error = {"relative_error": found.loss} if self.loss == Loss.ls else {}
        return found.model, {"iterations": found.n_iterations, "stopped": found.stopped, **error}

    def measure(self, model: Any, source: Any, run: RunOptions, known: Known) -> dict[str, float]:
        """Return KL / sum."""
        return {"kl_over_sum": kl_over_sum(model, source, sum_of_known(source, run, known), run, known)}


def is_search(rank: Any) -> bool:
    """Say whether a rank is to be found by held-out cells."""
    return isinstance(rank, str) and rank == "cv"


def sum_of_known(source: Any, run: RunOptions, known: Known) -> float:
    """Return the sum of what is known of a tensor."""
    from tucket.base.run import Run
    from tucket.models.expected import total_of
    from tucket.sources.observed import Observed, observe

    found = observe(source, **known)
    return total_of(found.x if isinstance(found, Observed) else found, Run.of(run.workers))


def kl_over_sum(model: Any, source: Any, total: float, run: RunOptions, known: Known) -> float:
    """Return the divergence of what is known from a model, divided by its sum."""
    with out.progress_bar(run.quiet or run.json, "error: pass") as progress:
        found: float = model.kl(source, workers=run.workers, progress=progress, **known)
    return found / (total or 1.0)


def fit(
    *,
    data: Data,
    rank: FitRank = None,
    output: ModelOutput = None,
    method: Annotated[
        Method, Option(help="ltr: closed form, each index in one block. ntd: iterative, lower error.")
    ] = Method.ltr,
    ltr: LtrOptions,
    ntd: NtdOptions,
    reading: DataOptions,
    gaps: GapOptions,
    run: RunOptions,
) -> None:
    """Fit a small model to a tensor, and save it."""
    is_ltr = method == Method.ltr
    if unused := given_options(ntd if is_ltr else ltr):
        hint = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        other = Method.ntd if is_ltr else Method.ltr
        raise typer.BadParameter(f"only --method {other} has it; leave it out", param_hint=hint)
    if rank == "mdl" and not is_ltr:
        raise typer.BadParameter("only --method ltr has mdl; give cv, or a rank", param_hint="--rank")
    save_fit(data, rank, output, ltr if is_ltr else ntd, reading, gaps, run)


def reduce(
    *,
    data: Data,
    rank: FitRank = None,
    output: ModelOutput = None,
    ltr: LtrOptions,
    reading: DataOptions,
    gaps: GapOptions,
    run: RunOptions,
) -> None:
    """Reduce a tensor to a small model: fit --method ltr."""
    save_fit(data, rank, output, ltr, reading, gaps, run)


def save_fit(
    data: str,
    rank: str | None,
    output: Path | None,
    method: LtrOptions | NtdOptions,
    reading: DataOptions,
    gaps: GapOptions,
    run: RunOptions,
) -> None:
    """Fit, save and print."""
    target = out.default_output(data) if output is None else output
    out.check_output(target, data)
    began = time.perf_counter()
    with (
        reading.open(data, allow_statistics=isinstance(method, LtrOptions)) as opened,
        gaps.open(opened.shape) as known,
    ):
        model, facts = method.fit(opened, rank, run, known)
        model.save(target)
        seconds = time.perf_counter() - began
        if not run.quiet:
            facts |= method.measure(model, opened, run, known)
    facts = {**out.facts_of_model(model), **facts, "seconds": seconds, "saved": str(target)}
    out.print_facts(facts, run.json, run.quiet)
