"""
Digits from ten times fewer features
====================================

Handwritten digits are images of 8 x 8 pixels. LTR groups the 64 pixels into a few blocks that keep the most
information, and describes a digit by the sums of its blocks. This example compares the accuracy of a linear classifier
on such features with NMF and PCA, and the time that each method needs.
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
# Each colour is a block of pixels that tend to be dark together.

model = tk.LTR(rank=(None, 6)).fit(digits.data[train])
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
axes[0].imshow(model.partition_[0].labels.reshape(8, 8), cmap="Set2")
axes[0].set_title("6 blocks of 64 pixels")
restored = model.inverse_transform(model.transform(digits.data[test[:1]]))
for ax, image, title in ((axes[1], digits.data[test[0]], "a digit"), (axes[2], restored, "from 6 numbers")):
    ax.imshow(np.reshape(image, (8, 8)), cmap="cividis")
    ax.set_title(title)
for ax in axes:
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# Accuracy and time
# -----------------
# The same linear classifier runs on the features of each method.

figure, ax = plt.subplots(layout="constrained")
markers = {"LTR": "o-", "NMF": "s--", "PCA": "^:"}
counts = (4, 6, 12, 16, 24)
for name, marker in markers.items():
    scores, seconds = [], 0.0
    for count in counts:
        method = {
            "LTR": tk.LTR(rank=(None, count), blocks="segments"),
            "NMF": NMF(count, init="nndsvda", max_iter=500, tol=1e-3),
            "PCA": PCA(count),
        }[name]
        start = time.perf_counter()
        features = method.fit_transform(digits.data[train])
        seconds += time.perf_counter() - start
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        classifier.fit(features, digits.target[train])
        scores.append(classifier.score(method.transform(digits.data[test]), digits.target[test]))
    ax.plot(counts, scores, marker, label=f"{name}, {1000 * seconds / len(counts):.0f} ms to fit")
ax.set(xlabel="features", ylabel="accuracy on new digits", ylim=(0.5, 1))
ax.legend()
ax.grid(alpha=0.3)
plt.show()
