"""
Digits from ten times smaller features
======================================

Handwritten digits are 8 x 8 pixels. LTR cuts the 64 pixels into a few blocks, chosen so that they keep the most
information, and a digit becomes the sums of its blocks. How much does a linear classifier lose, beside NMF and PCA with
as many features, and what does it take?
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF, PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tucket as tk

digits = load_digits()
train, test = train_test_split(np.arange(len(digits.target)), test_size=0.3, random_state=0, stratify=digits.target)

# %%
# Which pixels go together
# ------------------------
# Each colour is a block: pixels that are dark and light together.

model = tk.LTR(rank=(None, 6)).fit(digits.data[train])
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
axes[0].imshow(model.partition_[0].labels.reshape(8, 8), cmap="Set2")
axes[0].set_title("6 blocks of 64 pixels")
back = model.inverse_transform(model.transform(digits.data[test[:1]]))
for ax, image, title in ((axes[1], digits.data[test[0]], "a digit"), (axes[2], back, "from 6 numbers")):
    ax.imshow(np.reshape(image, (8, 8)), cmap="cividis")
    ax.set_title(title)
for ax in axes:
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# Accuracy and time
# -----------------
# The same linear classifier on the features of each method.

figure, ax = plt.subplots(layout="constrained")
marks = {"LTR": "o-", "NMF": "s--", "PCA": "^:"}
counts = (4, 6, 12, 16, 24)
for name, mark in marks.items():
    scores, took = [], 0.0
    for count in counts:
        method = {
            "LTR": tk.LTR(rank=(None, count), blocks="segments"),
            "NMF": NMF(count, init="nndsvda", max_iter=500, tol=1e-3),
            "PCA": PCA(count),
        }[name]
        began = time.perf_counter()
        features = method.fit_transform(digits.data[train])
        took += time.perf_counter() - began
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        classifier.fit(features, digits.target[train])
        scores.append(classifier.score(method.transform(digits.data[test]), digits.target[test]))
    ax.plot(counts, scores, mark, label=f"{name}, {1000 * took / len(counts):.0f} ms to fit")
ax.set(xlabel="features", ylabel="accuracy on new digits", ylim=(0.5, 1))
ax.legend()
ax.grid(alpha=0.3)
plt.show()
