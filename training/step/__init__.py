"""The training step: losses, gradients, and the update of the weights."""
