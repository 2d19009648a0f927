"""The training examples of a rank: batches and augmentation."""
