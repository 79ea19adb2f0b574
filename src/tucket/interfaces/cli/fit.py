"""The commands `fit` and `reduce`: from a tensor to a saved model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from tucket.interfaces.cli import output as out
from tucket.interfaces.cli.options import Data, DataOptions, Json, Quiet, Rank, Workers, parse_rank

Method = StrEnum("Method", ["ltr", "ntd"])
Variant = StrEnum("Variant", ["projection", "published"])
Loss = StrEnum("Loss", ["kl", "ls"])

ModelOutput = Annotated[
    Path | None, Option("--output", "-o", help="File of the model; default: the name of DATA with .model.npz.")
]


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

    blocks: Annotated[
        str | None,
        Option(help="ltr: clusters (default), segments, uniform or random, or one per mode: uniform,random."),
    ] = None
    variant: Annotated[Variant | None, Option(help="ltr: projection (default), or Algorithm 1 as printed.")] = None
    retain: Annotated[float | None, Option(help="ltr: instead of a rank, the share of information to keep.")] = None
    max_parameters: Annotated[int | None, Option(help="ltr: instead of a rank, the maximum number of parameters.")] = (
        None
    )

    def fit(self, source: Any, rank: str | None, run: RunOptions) -> tuple[Any, dict[str, Any]]:
        """Return the model, and what to print about the fit."""
        from tucket import ltr

        options = _given(self)
        if self.blocks and "," in self.blocks:
            options["blocks"] = tuple(self.blocks.split(","))
        has_criterion = self.retain is not None or self.max_parameters is not None
        ranks = None if rank is None and has_criterion else parse_rank(rank, source)
        with out.progress_bar(run.quiet or run.json) as progress:
            return ltr(source, ranks, rng=run.seed, workers=run.workers, progress=progress, **options), {}

    def measure(self, model: Any, source: Any, run: RunOptions) -> dict[str, float]:
        """Return KL / sum, and for the projection the information kept, which follows from it."""
        from tucket import Statistics
        from tucket.models.metrics import total_correlation

        if isinstance(source, Statistics):
            return {}
        with out.progress_bar(run.quiet or run.json, "error: pass") as progress:
            kl = model.kl(source, workers=run.workers, progress=progress) / (float(model.core.sum()) or 1.0)
        if self.variant == Variant.published:
            return {"kl_over_sum": kl}
        kept = total_correlation(model.core)
        return {"kl_over_sum": kl, "information_kept": kept / (kept + kl) if kept + kl > 1e-15 else 1.0}


@dataclass(frozen=True)
class NtdOptions:
    """Options of `ntd`, each None where the user leaves it out."""

    loss: Annotated[Loss | None, Option(help="ntd: KL divergence (default), or least squares.")] = None
    init: Annotated[
        str | None, Option(help="ntd: auto (default), ltr, hosvd or random, or the file of a model to improve.")
    ] = None
    budget: Annotated[float | None, Option(help="ntd: seconds after which to stop.")] = None
    n_iter_max: Annotated[int | None, Option(help="ntd: maximum iterations per level; default: 1000.")] = None
    tol: Annotated[
        float | None, Option(help="ntd: stop when ten iterations together gain less than this share; default: 1e-4.")
    ] = None

    def fit(self, source: Any, rank: str | None, run: RunOptions) -> tuple[Any, dict[str, Any]]:
        """Return the model, and what to print about the fit."""
        from tucket import load, ntd

        options = _given(self)
        has_model = self.init is not None and Path(self.init).is_file()
        if has_model:
            options["init"] = load(options["init"])
        ranks = None if rank is None and has_model else parse_rank(rank, source)
        with out.iteration_status(run.quiet or run.json) as callback:
            found = ntd(source, ranks, rng=run.seed, workers=run.workers, callback=callback, **options)
        error = {"relative_error": found.loss} if self.loss == Loss.ls else {}
        return found.model, {"iterations": found.n_iterations, "stopped": found.stopped, **error}

    def measure(self, model: Any, source: Any, run: RunOptions) -> dict[str, float]:
        """Return KL / sum."""
        from tucket import collect

        total = collect(source, 1, workers=run.workers).total
        with out.progress_bar(run.quiet or run.json, "error: pass") as progress:
            return {"kl_over_sum": model.kl(source, workers=run.workers, progress=progress) / (total or 1.0)}


def fit(
    *,
    data: Data,
    rank: Rank = None,
    output: ModelOutput = None,
    method: Annotated[
        Method, Option(help="ltr: closed form, each index in one block. ntd: iterative, lower error.")
    ] = Method.ltr,
    ltr: LtrOptions,
    ntd: NtdOptions,
    reading: DataOptions,
    run: RunOptions,
) -> None:
    """Fit a small model to a tensor, and save it."""
    is_ltr = method == Method.ltr
    if unused := _given(ntd if is_ltr else ltr):
        hint = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        other = Method.ntd if is_ltr else Method.ltr
        raise typer.BadParameter(f"only --method {other} has it; leave it out", param_hint=hint)
    save_fit(data, rank, output, ltr if is_ltr else ntd, reading, run)


def reduce(
    *, data: Data, rank: Rank = None, output: ModelOutput = None, ltr: LtrOptions, reading: DataOptions, run: RunOptions
) -> None:
    """Reduce a tensor to a small model: fit --method ltr."""
    save_fit(data, rank, output, ltr, reading, run)


def _given(options: LtrOptions | NtdOptions) -> dict[str, Any]:
    """Return the options that the user gave."""
    return {name: value for name, value in vars(options).items() if value is not None}


def save_fit(
    data: str,
    rank: str | None,
    output: Path | None,
    method: LtrOptions | NtdOptions,
    reading: DataOptions,
    run: RunOptions,
) -> None:
    """Fit, save and print."""
    target = out.default_output(data) if output is None else output
    out.check_output(target, data)
    began = time.perf_counter()
    with reading.open(data, allow_statistics=isinstance(method, LtrOptions)) as opened:
        model, facts = method.fit(opened, rank, run)
        model.save(target)
        seconds = time.perf_counter() - began
        if not run.quiet:
            facts |= method.measure(model, opened, run)
    facts = {**out.facts_of_model(model), **facts, "seconds": seconds, "saved": str(target)}
    out.print_facts(facts, run.json, run.quiet)
