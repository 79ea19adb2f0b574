"""
The idea: sums of blocks, and shares within them
================================================

The table counts travellers from four stations in six hours. Stations with the same pattern form a block, whatever their
size, and so do hours with the same pattern. The model keeps the sum of each block and the share of each index in its
block.
"""

import matplotlib.pyplot as plt
import numpy as np

import tucket as tk

stations, hours = ["north", "south", "harbour", "airport"], ["6h", "7h", "8h", "9h", "10h", "11h"]
counts = np.array([[10, 40, 44, 12, 3, 3], [5, 20, 22, 6, 2, 1], [1, 2, 3, 9, 20, 22], [2, 4, 6, 18, 40, 44]])
model = tk.ltr(counts, blocks=[[0, 2], [0, 1, 3, 4]])


def draw(ax, values, title, rows=stations, columns=hours):
    ax.imshow(values, cmap="cividis", vmin=0, vmax=values.max())
    for (i, j), value in np.ndenumerate(values):
        ax.text(j, i, f"{value:.0f}", ha="center", va="center", color="white" if value < values.max() / 2 else "black")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_title(title, fontsize=10)


figure, axes = plt.subplots(1, 3, figsize=(11, 2.8), layout="constrained")
draw(axes[0], counts, "the counts, and where they are cut")
axes[0].axhline(1.5, color="#d55e00", linewidth=3)
for cut in (0.5, 2.5, 3.5):
    axes[0].axvline(cut, color="#d55e00", linewidth=3)
draw(
    axes[1],
    model.core,
    "the core: sums of blocks",
    ["north, south", "harbour, airport"],
    ["6h", "7-8h", "9h", "10-11h"],
)
draw(axes[2], model.to_tensor(), "the model: sum x share x share")
plt.show()

# %%
# The share of an index is its part of the sum of its block.

for name, labels, shares in (("stations", stations, model.weights[0]), ("hours", hours, model.weights[1])):
    print(name, {label: round(float(share), 2) for label, share in zip(labels, shares)})

# %%
# The model keeps all row and column sums. It loses the information that stations and hours have about each other inside
# the blocks.

assert np.allclose(model.to_tensor().sum(axis=0), counts.sum(axis=0))
print(f"{model.kl(counts) / counts.sum():.4f} of {tk.metrics.total_correlation(counts):.4f} nats are lost")
