"""What is published: synthetic records, the release folder with its manifest and signature, the report."""
