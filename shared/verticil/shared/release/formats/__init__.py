"""Open file formats: each module turns one value into bytes and, where the project reads it again, bytes into the value."""
