# SPDX-License-Identifier: Apache-2.0
"""Small modules in the shapes that other projects have, none of them written with a monitor in mind."""

from _helpers.zoo import autoencoders, batches, diffusion, flows, gans, habits

SHAPES = {
    name: shape
    for kind in (autoencoders, gans, diffusion, flows, batches, habits)
    for name, shape in kind.SHAPES.items()
}
