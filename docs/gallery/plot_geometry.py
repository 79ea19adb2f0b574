"""
The geometry of LTR
===================

A positive tensor is a point with two systems of coordinates, θ and η, and LTR is a projection. This example shows
three things: θ of a tensor before and after LTR, the Legendre decomposition, which reaches the same point by gradients,
and mean-field theory, which is the case of rank 1.
"""

import matplotlib.pyplot as plt
import numpy as np

import tucket as tk
from tucket import geometry

rng = np.random.default_rng(0)

# %%
# Bingos
# ------
# LTR at rank (3, 2) leaves θ free at the starts of blocks and in the first row and column. Everywhere else it makes θ
# zero. A row of zeros in θ, apart from its first entry, is a *bingo*: that row of the tensor is a multiple of the row
# before.

x = np.exp(rng.normal(size=(9, 8)))
partition = tk.Partition.uniform(x.shape, (3, 2))
model = tk.ltr(x, blocks=partition)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
marked = geometry.bingo_indices(partition)
for ax, tensor, title in ((axes[0], x, "θ of a tensor"), (axes[1], model.to_tensor(), "θ after LTR at rank (3, 2)")):
    parameters = geometry.theta(tensor)
    image = ax.imshow(parameters, cmap="PuOr", vmin=-3, vmax=3)
    ax.set_title(title, fontsize=10)
    found = geometry.bingos(tensor)
    ax.set_xlabel(f"bingos: {len(found.rows[0])} rows, {len(found.rows[1])} columns; rank at most {found.rank_bound}")
figure.colorbar(image, ax=axes[:2], shrink=0.8)
axes[2].imshow(np.where(marked, 1.0, 0.2), cmap="Greys", vmin=0, vmax=1.4)
axes[2].set_title("where the partition makes θ 0", fontsize=10)

# %%
# Two ways to one point
# ---------------------
# The Legendre decomposition starts at the uniform tensor and lowers the divergence, by the natural or by the plain
# gradient. Both end at the tensor that the closed form gives in one step.

x = np.exp(rng.normal(size=(6, 6, 6)) / 2)
partition = tk.Partition.uniform(x.shape, (3, 2, 2))
closed = tk.ltr(x, blocks=partition).kl(x)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for method, colour, marker in (("natural", "#0072b2", "o"), ("gradient", "#d55e00", "")):
    steps = geometry.legendre(x, partition, method=method, n_iter_max=3000).trace
    excess = [max(step.loss - closed, 1e-14) for step in steps]
    label = f"{method}: {len(steps)} steps, {1000 * steps[-1].seconds:.0f} ms"
    ax.loglog(range(1, len(steps) + 1), excess, color=colour, marker=marker, label=label)
ax.set_xlabel("iteration")
ax.set_ylabel("divergence above the closed form")
ax.legend()

# %%
# Mean field
# ----------
# A Boltzmann machine of n units is a tensor with n modes of size 2. Its best rank-1 tensor is the nearest product of
# independent units. The mean-field equation gives another product, the nearest in the other direction of the
# divergence, and needs no sum over all states. The two products differ more as the coupling grows.

bias = rng.normal(size=8) / 2
upper = np.triu(rng.normal(size=(8, 8)), 1)
couplings = np.linspace(0, 1.5, 16)
rows = [geometry.mean_field(bias, (upper + upper.T) * coupling) for coupling in couplings]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for ax, direction, title in ((left, 0, "D(machine; product)"), (right, 1, "D(product; machine)")):
    ax.plot(couplings, [row.kl_exact[direction] for row in rows], "o-", color="#0072b2", label="rank-1 LTR, exact")
    ax.plot(
        couplings, [row.kl_approximate[direction] for row in rows], "s--", color="#d55e00", label="mean-field equation"
    )
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("coupling")
left.set_ylabel("nats")
left.legend()

plt.show()
