"""What a decomposition lowers: one file per loss, all under one contract, `Loss`."""

from __future__ import annotations

from collections.abc import Mapping

from tucket.decomposition.losses.kl import KullbackLeibler
from tucket.decomposition.losses.loss import FREE, Fixed, Loss, Problem, Update, restore
from tucket.decomposition.losses.ls import SquaredError

__all__ = ["FREE", "LOSSES", "Fixed", "Loss", "Problem", "Update", "restore"]

LOSSES: Mapping[str, Loss] = {"kl": KullbackLeibler(), "ls": SquaredError()}
