"""Few features of digits: time and classification accuracy of LTR, NMF and PCA.

python -m benchmarks.estimator
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import tucket as tk
from benchmarks.measure import machine, seconds
from benchmarks.pages import fill

RESULTS = Path(__file__).parent / "results" / "estimator.json"


def main() -> None:
    """Measure, print, and save the results."""
    rows = list(measure())
    RESULTS.write_text(
        json.dumps({"date": date.today().isoformat(), "machine": machine(), "rows": rows}, indent=1) + "\n"
    )
    print(f"results saved in {RESULTS}")
    fill()


def measure(features: tuple[int, ...] = (6, 12, 16), splits: int = 5) -> Iterator[dict[str, Any]]:
    """Compare methods at equal numbers of features: mean accuracy over splits, median time of `fit_transform`."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import NMF, PCA
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    warnings.simplefilter("ignore", ConvergenceWarning)  # NMF at its defaults stops before it converges
    digits = load_digits()
    pixels, images, y = digits.data, digits.images, digits.target
    print(f"{'features':>8}  {'method':24} {'fit_transform':>13} {'accuracy':>9}")
    for count in features:
        grid = {6: (2, 3), 12: (4, 3), 16: (4, 4)}.get(count, (1, count))
        methods: dict[str, tuple[Any, Any]] = {
            "LTR, segments": (tk.LTR(rank=(None, count), blocks="segments"), pixels),
            "LTR, clusters": (tk.LTR(rank=(None, count)), pixels),
            "LTR, rows and columns": (tk.LTR(rank=(None, *grid), blocks="segments"), images),
            "NMF": (NMF(count, random_state=0), pixels),
            "PCA": (PCA(count, random_state=0), pixels),
        }
        for name, (method, x) in methods.items():
            method.fit_transform(x)
            took = float(np.median([seconds(lambda: method.fit_transform(x)) for _ in range(5)]))  # noqa: B023
            scores = []
            for seed in range(splits):
                train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed, stratify=y)
                classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
                classifier.fit(method.fit_transform(x[train]), y[train])
                scores.append(classifier.score(method.transform(x[test]), y[test]))
            print(f"{count:8}  {name:24} {1000 * took:10.2f} ms {np.mean(scores):9.3f}", flush=True)
            yield {"features": count, "method": name, "seconds": took, "accuracy": float(np.mean(scores))}


if __name__ == "__main__":
    main()
