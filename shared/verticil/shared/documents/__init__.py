"""Records of TOML and JSON, configuration, views and progress: documents without a study."""
