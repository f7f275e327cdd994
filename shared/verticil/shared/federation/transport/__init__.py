"""Messages and calls between nodes: mutual TLS and gRPC, or the same in memory."""
