"""What `verticil doctor` looks at, before anything is sent: this machine, and the way to other nodes."""
