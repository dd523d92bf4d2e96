"""Settings of the losses, one module for each formula.

A module that is put into this folder is found by itself: its subclasses of `LossSettings` become
kinds of `recipe.loss`. The module of the same name in `rollcast.recipe.losses` computes them.
Nothing here imports torch.
"""
