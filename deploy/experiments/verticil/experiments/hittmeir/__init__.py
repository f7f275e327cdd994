"""The experiments of Hittmeir, Mayer & Ekelhart, "Efficient Bayesian Network Construction for Increased Privacy on Synthetic
Data" (IEEE Big Data 2022): `synthesizer` is what is measured, `measures` and `scale` measure it, `paper` has
the results beside theirs.
"""
