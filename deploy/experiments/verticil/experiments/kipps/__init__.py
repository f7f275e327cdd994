"""`verticil reproduce kipps`: Kotal & Joshi's experiments with right definitions, their comparators, and our models beside.

A. Kotal, A. Joshi, "KIPPS: knowledge infusion in privacy preserving synthetic data generation" (arXiv 2409.17315).
"""
