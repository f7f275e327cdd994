"""What a server is made of: its services, the gate before them, and the certificate that it shows."""
