"""Reference numbers of Gaussian noise: the standard deviation of Balle & Wang's theorem 8, at sensitivity 1."""

SIGMAS = [
    # epsilon, delta, sigma
    (1, 1e-5, 3.730632),
    (0.5, 1e-5, 7.031827),
    (0.1, 1e-5, 30.749566),
    (1, 1e-6, 4.224679),
    (1, 1e-9, 5.495266),
    (2, 1e-9, 2.844547),
    (4, 1e-9, 1.487804),
    (8, 1e-9, 0.792237),
]
