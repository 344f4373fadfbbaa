"""Named data sets and seeded generators."""
