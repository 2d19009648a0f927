"""What a rank trains on: examples, batches, augmentation."""
