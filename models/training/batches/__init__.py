"""The training data of a rank: examples, batches, augmentation."""
