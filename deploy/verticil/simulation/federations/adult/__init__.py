"""The Adult federation: three compressed tables and a study; `SOURCE.md` says where they come from."""
