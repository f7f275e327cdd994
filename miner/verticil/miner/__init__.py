"""The coordinator: stores randomized columns, counts, learns, publishes. It never sees a raw value."""
