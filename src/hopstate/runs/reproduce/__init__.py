"""From a published table to measured figures: run recipes, keep results, compare, print."""
