"""What everything stands on: errors, arrays, registries, threads, logs. Imports nothing of ours."""
