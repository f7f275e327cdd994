from verticil.shared.privacy.accountant import compose, cost_of
from verticil.shared.privacy.total_count import TotalCount

print(compose(cost_of(TotalCount(epsilon=epsilon)) for epsilon in (0.25, 0.5)))
