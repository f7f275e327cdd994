"""Published experiments, run again through the product's own randomization, counting and estimators."""
