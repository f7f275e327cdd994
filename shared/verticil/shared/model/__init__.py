"""Values and numerics: pure functions of arrays and frozen values. No asyncio, grpc, files, clocks or global random state."""
