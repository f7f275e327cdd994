"""Models, estimation, joint tables, posteriors and knowledge: values in, values out; no files, no study."""
